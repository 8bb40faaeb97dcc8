"""The public interface: load a model, explain items, evaluate and render explanations."""

import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import torch
from scipy.special import expit, softmax

from transexplain.data.picture_places import picture_at
from transexplain.errors import ConfigurationError, EngineError, ItemError, did_you_mean
from transexplain.evaluating.evaluate_items import evaluate_items
from transexplain.evaluating.evaluation_bench import Evaluation
from transexplain.explaining import Explained, Request, explain_items
from transexplain.explaining.item_loop import Silent
from transexplain.methods import METHODS, parameters_of
from transexplain.models.load import load_model, wrap
from transexplain.models.loaded_model import LoadedModel, checked_model
from transexplain.types.dataset_labels import BY_INDEX, label_mapping
from transexplain.types.graphs import drawn_of
from transexplain.types.items import Attribution, Compared, Item, ItemFailure
from transexplain.types.plans import Classification, several_of
from transexplain.types.scores import (
    DRAWS,
    RANDOM,
    EvaluatedMethod,
    EvaluationPlan,
    MethodSpec,
    MetricSpec,
)
from transexplain.types.targets import TargetLike, parse_target
from transexplain.types.token_labels import class_names

if TYPE_CHECKING:
    from transexplain.reports.evaluation import ScoreTable

OnError = Literal["raise", "record"]
_PROBABILITIES = 20  #: classes of an item whose probabilities its attributions hold
_OPTIONS = ("labels", "long_text", "max_length", "batch_tokens", "long_text_join", "thresholds")
#: options that are numbers of positions
_COUNTS = ("max_length", "batch_tokens", "window", "stride")

_CUT = (
    "the text of item {0.item_id!r} is longer than the model reads: its first {0.positions:,} "
    "positions were explained, and so for every such text. long_text='window' explains the whole, "
    "long_text='error' refuses it, and long_text='truncate' does this without a warning"
)

__all__ = ["evaluate", "explain", "explain_iter", "load_model", "wrap"]


@torch.inference_mode(False)
def explain(
    model: LoadedModel,
    items: Any,
    method: str | MethodSpec = "lrp",
    target: TargetLike | Sequence[TargetLike] = "predicted",
    *,
    on_error: OnError = "raise",
    **params: Any,
) -> list[Any]:
    """Explain items; one Attribution per item and target, in input order.

    Args:
        model: what `load_model` or `wrap` gave.
        items: a text, a picture or its path, encoded inputs, an `Item`, or an iterable of these;
            in an iterable a tuple of two texts is a pair.
        method: name in the method registry, or a MethodSpec with its parameters.
        target: `predicted`, `label`, `all`, `class:<id|name>` or the name or number of a class
            alone, `top:<k>`, `contrast:<a>-<b>`, a mapping form, a classification, or several of
            these.
        on_error: `raise` ItemError at the first item that fails, or `record` it as an ItemFailure
            in its place.
        params: `classifications`, `labels`, `thresholds` (of several labels: from which
            probability one is predicted, a number or by label), `max_length`, `batch_tokens`
            (positions of a batch; default: 2,048 on a CPU, what measuring finds on a GPU), and what
            becomes of texts that the model cannot read at once: `long_text` is `truncate`, `error`,
            or `window`, with `window` (positions of one), `stride` (positions of text between them,
            default: no overlap) and `long_text_join` (`mean` or `sum` of their logits). The rest
            are parameters of the method, such as `at`; a method's own `window` or `stride` is
            meant unless `long_text` is `window`.

    Raises:
        ItemError: an item could not be explained and `on_error` is `raise`.
        TargetError: a class that the model does not have.
        EngineError: an operator without a rule.
        ConfigurationError: parameters that the method does not have or that contradict each other.
    """
    given = _as_iterable(items)
    # pictures of a list are in memory anyway; those of a stream would fill it
    pictured = isinstance(given, list | tuple | np.ndarray)
    return list(_explained(model, given, method, target, on_error, params, pictured=pictured))


@torch.inference_mode(False)
def explain_iter(
    model: LoadedModel,
    items: Iterable[Any],
    method: str | MethodSpec = "lrp",
    target: TargetLike | Sequence[TargetLike] = "predicted",
    *,
    on_error: OnError = "raise",
    **params: Any,
) -> Iterator[Attribution | ItemFailure]:
    """Explain a stream of items of any length; see `explain`.

    Items are taken in windows, so that memory does not grow with the stream.
    """
    given = _as_iterable(items)
    yield from _explained(model, given, method, target, on_error, params, pictured=False)


def _explained(
    model: LoadedModel,
    items: Iterable[Any],
    method: str | MethodSpec,
    target: TargetLike | Sequence[TargetLike],
    on_error: OnError,
    params: dict[str, Any],
    *,
    pictured: bool,
) -> Iterator[Attribution | ItemFailure]:
    """As `explain_iter`; where it is `pictured`, attributions know their pictures."""
    if on_error not in get_args(OnError):
        raise ConfigurationError(f"on_error cannot be {on_error!r}; it is raise or record")
    unasked = not {"long_text", "max_length"} & params.keys()
    request = _request(model, method, target, params)
    numbered = (_as_item(model, content, index) for index, content in enumerate(items))
    for explained in explain_items(model, numbered, request):
        if unasked and explained.outcome is not None and explained.outcome.truncated:
            unasked = False
            warnings.warn(_CUT.format(explained.outcome), stacklevel=4)
        if explained.failure is None:
            yield from _results(model, explained, pictured=pictured)
        elif on_error == "record":
            yield explained.failure
        else:
            raise ItemError(explained.failure.kind, explained.failure.message)


@torch.inference_mode(False)
def evaluate(
    model: LoadedModel,
    items: Any,
    methods: str | Sequence[str | MethodSpec | EvaluatedMethod] = ("lrp",),
    metrics: str | Sequence[str | MetricSpec] = ("activation", "pruning"),
    target: TargetLike | Sequence[TargetLike] = "predicted",
    **params: Any,
) -> "list[ScoreTable]":
    """Measure explanations of items; one table per target and metric, the best method first.

    Args:
        model: what `load_model` or `wrap` gave.
        items: as of `explain`; an `Item` may carry evidence, and its label is read.
        methods: names, or methods with parameters and a label; 20 draws of `random` are added.
        metrics: names in the metric registry, or metrics with their parameters.
        target: `predicted`, `label`, `class:<id|name>`, or several of these.
        params: `seed` of every test and sample, `confidence` that the model must have in an item,
            and the options of `explain` that belong to no method.

    An item that cannot be read is left out of the tables. Raises ItemError where none can be read;
    ConfigurationError where a method, metric or target does not fit the model; EngineError: an
    operator without a rule.
    """
    from transexplain.reports.evaluation import tables_of

    checked_model(LoadedModel, model)
    made = (_as_item(model, content, row) for row, content in enumerate(_as_iterable(items)))
    given = [
        replace(item, index=n) if isinstance(item, Item) else item for n, item in enumerate(made)
    ]
    own = {name: params.pop(name) for name in ("seed", "confidence") if name in params}
    request = _request(model, MethodSpec(), target, params)
    if params:
        raise ConfigurationError(f"no option {min(params)!r}: give it to MetricSpec or MethodSpec")
    rows = [*map(_evaluated, [methods] if isinstance(methods, str) else methods)]
    rows += [_evaluated(RANDOM)] if all(row.label != RANDOM for row in rows) else []
    plan = EvaluationPlan(
        methods=tuple(rows),
        metrics=tuple(
            MetricSpec(name=metric) if isinstance(metric, str) else metric
            for metric in ([metrics] if isinstance(metrics, str) else metrics)
        ),
        targets=tuple(target.spec for target in request.targets),
        **own,
    )
    evaluation = Evaluation(request=request, plan=plan, rows=len(given))
    ends = list(evaluate_items(model, given, evaluation, observer=Silent()))
    failures = [end.failure for end in ends if end.failure is not None]
    if failures and len(failures) == len(ends):
        raise ItemError(failures[0].kind, failures[0].message)
    return list(tables_of((score for end in ends for score in end.scores), plan)[0])


def _evaluated(method: str | MethodSpec | EvaluatedMethod) -> EvaluatedMethod:
    if isinstance(method, EvaluatedMethod):
        return method
    spec = MethodSpec(name=method) if isinstance(method, str) else method
    return EvaluatedMethod(label=spec.name, method=spec, draws=DRAWS if spec.name == RANDOM else 1)


def _results(model: LoadedModel, explained: Explained, *, pictured: bool) -> Iterator[Attribution]:
    """The attributions of an item with its probabilities and, where wanted, its picture."""
    shares = _probabilities(model, explained.outcome.logits) if explained.outcome else {}
    largest = dict(sorted(shares.items(), key=lambda share: -share[1])[:_PROBABILITIES])
    picture = _picture_of(explained.item) if pictured and model.modality != "text" else None
    for attribution in explained.attributions:
        own = {name: shares[name] for name in (attribution.class_name,) if name in shares}
        known = replace(attribution, probabilities={**largest, **own})
        yield known if picture is None else known.over(picture)


def _picture_of(item: Item | None) -> Any:
    """The picture as it was given, or its path, to save memory; of a graph what draws it."""
    if item is None or isinstance(item.content, Mapping):
        return (drawn_of(item.content) or None) if item else None
    from_file = item.source is not None and Path(item.source).is_file()
    return item.source if from_file else item.content


def _probabilities(model: LoadedModel, logits: Sequence[float]) -> dict[str, float]:
    """Class -> probability; empty where the model has one output, which is a number."""
    values = np.asarray(logits)
    if model.ref.head == "labels":
        shares = expit(values)
    elif len(values) < 2 or len(values) != len(model.classes):
        return {}
    elif values.min() >= 0.0 and abs(values.sum() - 1.0) < 1e-5:
        shares = values  # the module ends in a softmax, which this method did not take off
    else:
        shares = softmax(values)
    return dict(zip(model.classes, shares.tolist(), strict=True))


def _request(
    model: LoadedModel,
    method: str | MethodSpec,
    target: TargetLike | Sequence[TargetLike],
    params: dict[str, Any],
) -> Request:
    classifications = list(map(_classification, params.pop("classifications", ())))
    names = class_names(checked_model(LoadedModel, model).ref, classifications)
    specs: list[Any] = [target]
    if isinstance(target, Iterable) and not isinstance(target, str | Mapping):
        specs = list(target)
    own = parameters_of(method.name if isinstance(method, MethodSpec) else method)
    windows = isinstance(method, MethodSpec) or params.get("long_text") == "window"
    apart = (name for name in ("window", "stride") if windows or name not in own)
    options = {name: params.pop(name) for name in (*_OPTIONS, *apart) if name in params}
    _check_options(options)
    # a misspelt option is refused here, a misspelt parameter by the method itself
    known = (*own, *_OPTIONS, "window", "stride", "classifications")
    for name in params:
        near = did_you_mean(name, known)
        if name not in own and near and not did_you_mean(name, own):
            raise ConfigurationError(f"there is no parameter {name!r}{near}")
    spec = method if isinstance(method, MethodSpec) else MethodSpec(name=method)
    options["head"] = model.ref.head
    options["several"] = several_of(model.ref, options.pop("thresholds", None))
    if "labels" in options:
        options["labels"] = label_mapping(options["labels"], names.classes)
    return Request(
        method=replace(spec, params={**spec.params, **params}),
        targets=tuple(parse_target(spec, names) for spec in specs),
        names=names,
        **options,
    )


def _classification(entry: Any) -> Classification:
    if isinstance(entry, Classification):
        return entry
    if not isinstance(entry, Mapping) or set(entry) != {"name", "classes"}:
        raise ConfigurationError(
            f"a classification cannot be {entry!r:.80}; it is {{'name': ..., 'classes': [...]}}"
        )
    return Classification(name=entry["name"], classes=tuple(entry["classes"]))


def _check_options(options: Mapping[str, Any]) -> None:
    """Refuse values of another type than an option's; ConfigurationError names it."""
    for name in _COUNTS:
        value = options.get(name)
        if value is not None and (not isinstance(value, int) or value < 1):
            raise ConfigurationError(f"{name} cannot be {value!r:.80}; it is a number above 0")
    labels = options.get("labels", {})
    if not isinstance(labels, Mapping) and labels != BY_INDEX:
        raise ConfigurationError(
            f"labels cannot be {labels!r:.80}; it is a mapping of labels to classes, or {BY_INDEX}"
        )


def _as_iterable(items: Any) -> Iterable[Any]:
    """`items` as an iterable; one item as a list; ConfigurationError where it is neither."""
    is_picture = hasattr(items, "convert") and hasattr(items, "getbands")
    if isinstance(items, str | Path | Mapping | Item) or is_picture:
        return [items]
    dimensions = len(getattr(items, "shape", (None,)))
    if dimensions == 2 and hasattr(items, "columns"):
        raise ConfigurationError(
            "the items are a DataFrame: give the column of texts, as in frame['text']"
        )
    if dimensions in (2, 3):  # an array that is one picture; of one or four axes it holds items
        return [items]
    if not isinstance(items, Iterable) or not dimensions:
        raise ConfigurationError(
            f"the items cannot be {items!r:.80} ({type(items).__name__}); give a text, a picture "
            "or its path, encoded inputs, or a list of these"
        )
    return items


def _as_item(model: LoadedModel, content: Any, index: int) -> Item | ItemFailure:
    source = str(content) if model.modality == "image" and isinstance(content, str | Path) else None
    item = Item(id=str(index), index=index, content=content, source=source)
    if isinstance(content, Item):
        item = content
    try:
        return item.paired() if source is None else replace(item, content=picture_at(source))
    except ItemError as error:
        return ItemFailure(item_id=item.id, index=index, kind=error.kind, message=str(error))


@torch.inference_mode(False)
def explain_by_methods(
    model: LoadedModel,
    content: Any,
    *,
    methods: str | Iterable[str] | None = None,
    target: TargetLike = "top:2",
    params: Mapping[str, Mapping[str, Any]] | None = None,
) -> list[Compared]:
    """Explain one item by every method, or by those named; in the order of the registry.

    Args:
        model: what `load_model` or `wrap` gave.
        content: a text, a tuple of two, a picture or encoded inputs.
        methods: names; default: all of the registry.
        target: the same for all.
        params: method -> its parameters.

    Returns:
        One record per method; a method that is not defined for the model has its reason there.

    Raises:
        TargetError: a class that the model does not have.
        ItemError: the item cannot be read.
        ConfigurationError: an unknown method, here or in `params`.
    """
    given = params or {}
    names = list(METHODS) if methods is None else list(methods)
    if isinstance(methods, str):
        names = [methods]
    for name in (*given, *names):
        METHODS[name]
    item = Item(id="0", index=0, content=content).paired()
    specs = (MethodSpec(name=name, params=dict(given.get(name, {}))) for name in names)
    return [_compared(model, item, _request(model, spec, target, {})) for spec in specs]


def _compared(model: LoadedModel, item: Item, request: Request) -> Compared:
    begun = time.perf_counter()
    attributions: tuple[Attribution, ...] = ()
    error = None
    try:
        (done,) = explain_items(model, [item], request)
    except (ConfigurationError, EngineError) as reason:
        error = str(reason)
    else:
        attributions = tuple(_results(model, done, pictured=True))
        if done.failure is not None and done.failure.kind != "model-error":
            raise ItemError(done.failure.kind, done.failure.message)
        error = done.failure.message if done.failure is not None else None
    return Compared(
        method=request.method.name,
        attributions=attributions,
        error=error,
        seconds=time.perf_counter() - begun,
    )
