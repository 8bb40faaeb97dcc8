"""The public interface: load a model, explain items, render what was found."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from transexplain.data.image_files import load_image
from transexplain.errors import ItemError
from transexplain.evaluating import Evaluation, evaluate_items
from transexplain.explaining import Explained, Request, explain_items
from transexplain.explaining.item_loop import Silent
from transexplain.methods import parameters_of
from transexplain.models.load import load_model
from transexplain.models.loaded_model import LoadedModel
from transexplain.models.wrap import wrap
from transexplain.types.items import Attribution, Item, ItemFailure
from transexplain.types.plans import Classification
from transexplain.types.scores import (
    RANDOM,
    EvaluatedMethod,
    EvaluationPlan,
    MethodSpec,
    MetricSpec,
)
from transexplain.types.targets import ClassNames, parse_target

if TYPE_CHECKING:
    from transexplain.reports.evaluation import Table

OnError = Literal["raise", "record"]
TargetLike = str | Mapping[str, Any]

__all__ = ["evaluate", "explain", "explain_iter", "load_model", "wrap"]


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
        items: a text, a picture or its path, encoded inputs, an `Item`, or an iterable of these.
        method: name in the method registry, or a MethodSpec with its parameters.
        target: `predicted`, `label`, `all`, `class:<id|name>`, `top:<k>`, `contrast:<a>-<b>`, a
            mapping form, a classification, or several of these.
        on_error: `raise` ItemError at the first item that fails, or `record` it as an ItemFailure
            in its place.
        params: `classifications`, `labels`, `max_length`, `batch_tokens`, and what becomes of
            texts that the model cannot read at once: `long_text` is `truncate`, `error`, or
            `window`, with `window` (positions of one), `stride` (positions of text between them,
            default: no overlap) and `long_text_join` (`mean` or `sum` of their logits). The rest
            are parameters of the method, such as `at`; a method's own `window` or `stride` is
            meant unless `long_text` is `window`.

    Raises:
        ItemError: an item could not be explained and `on_error` is `raise`.
        TargetError: a class that the model does not have.
        EngineError: an operator without a rule.
        ConfigurationError: parameters that the method does not have or that contradict each other.
    """
    found = explain_iter(model, _several(items), method, target, on_error=on_error, **params)
    return list(found)


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
    request = _request(model, method, target, params)
    numbered = (_as_item(model, content, index) for index, content in enumerate(items))
    for explained in explain_items(model, numbered, request):
        yield from _results(explained, on_error)


def evaluate(
    model: LoadedModel,
    items: Any,
    methods: Sequence[str | MethodSpec | EvaluatedMethod] = ("lrp",),
    metrics: Sequence[str | MetricSpec] = ("activation", "pruning"),
    target: TargetLike | Sequence[TargetLike] = "predicted",
    **params: Any,
) -> "list[Table]":
    """Measure explanations of items; one table per target and metric, the best method first.

    Args:
        model: what `load_model` or `wrap` gave.
        items: as of `explain`; an `Item` may carry evidence, and its label is read.
        methods: names, or methods with parameters and a label; random relevance is always added.
        metrics: names in the metric registry, or metrics with their parameters.
        target: `predicted`, `label`, `class:<id|name>`, or several of these.
        params: `seed` of every test and sample, `confidence` that the model must have in an item,
            and the options of `explain` that belong to no method.

    An item that cannot be read is left out of the tables. Raises ConfigurationError where a
    method, metric or target does not fit the model; EngineError: an operator without a rule.
    """
    from transexplain.reports.evaluation import tables_of

    given = [_as_item(model, content, index) for index, content in enumerate(_several(items))]
    own = {name: params.pop(name) for name in ("seed", "confidence") if name in params}
    request = _request(model, MethodSpec(), target, params)
    rows = [_evaluated(one) for one in methods]
    if all(one.label != RANDOM for one in rows):
        rows.append(_evaluated(RANDOM))
    plan = EvaluationPlan(
        methods=tuple(rows),
        metrics=tuple(MetricSpec(name=one) if isinstance(one, str) else one for one in metrics),
        targets=tuple(one.spec for one in request.targets),
        **own,
    )
    numbered = [
        replace(one, index=row) if isinstance(one, Item) else one for row, one in enumerate(given)
    ]
    evaluation = Evaluation(request=request, plan=plan, rows=len(given))
    ends = evaluate_items(model, numbered, evaluation, observer=Silent())
    return list(tables_of((score for end in ends for score in end.scores), plan)[0])


def _evaluated(method: str | MethodSpec | EvaluatedMethod) -> EvaluatedMethod:
    if isinstance(method, EvaluatedMethod):
        return method
    spec = MethodSpec(name=method) if isinstance(method, str) else method
    return EvaluatedMethod(label=spec.name, method=spec)


def _results(explained: Explained, on_error: OnError) -> Iterator[Attribution | ItemFailure]:
    if explained.failure is None:
        yield from explained.attributions
    elif on_error == "record":
        yield explained.failure
    else:
        raise ItemError(explained.failure.kind, explained.failure.message)


def _request(
    model: LoadedModel,
    method: str | MethodSpec,
    target: TargetLike | Sequence[TargetLike],
    params: dict[str, Any],
) -> Request:
    names = ClassNames(
        model.classes,
        [
            entry if isinstance(entry, Classification) else Classification(**entry)
            for entry in params.pop("classifications", ())
        ],
    )
    specs = [target] if isinstance(target, str | Mapping) else list(target)
    options = {name: params.pop(name) for name in _option_names(method, params) if name in params}
    return Request(
        method=_method(method, params),
        targets=tuple(parse_target(spec, names) for spec in specs),
        names=names,
        **options,
    )


def _option_names(method: str | MethodSpec, params: Mapping[str, Any]) -> list[str]:
    """Which parameters are not the method's."""
    names = ["labels", "long_text", "max_length", "batch_tokens", "long_text_join"]
    own = () if isinstance(method, MethodSpec) else parameters_of(method)
    windows = params.get("long_text") == "window"
    return names + [name for name in ("window", "stride") if windows or name not in own]


def _method(method: str | MethodSpec, params: dict[str, Any]) -> MethodSpec:
    if not isinstance(method, MethodSpec):
        return MethodSpec(name=method, params=params)
    return MethodSpec(name=method.name, params={**method.params, **params})


def _several(items: Any) -> Iterable[Any]:
    one = (
        isinstance(items, str | Path | Mapping | Item)
        or hasattr(items, "shape")
        or _is_picture(items)
    )
    return [items] if one else items


def _is_picture(value: Any) -> bool:
    return hasattr(value, "convert") and hasattr(value, "getbands")


def _as_item(model: LoadedModel, content: Any, index: int) -> Item | ItemFailure:
    if isinstance(content, Item):
        return content
    if model.modality == "image" and isinstance(content, str | Path):
        try:
            content = load_image(Path(content))
        except ItemError as error:
            return ItemFailure(item_id=str(index), index=index, kind=error.kind, message=str(error))
    return Item(id=str(index), index=index, content=content)
