"""Explains how alike pictures and texts are: each tower in batches, the other side held."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from torch import Tensor

from transexplain.data.picture_places import picture_at
from transexplain.engine.composites import COMPOSITES
from transexplain.errors import ConfigurationError, EngineError, ItemError, TargetError
from transexplain.explaining.batch_sizes import batches_of
from transexplain.explaining.explain_request import (
    Explained,
    Request,
    model_failure,
    portions,
    read_together,
)
from transexplain.explaining.item_loop import explain_items
from transexplain.explaining.long_texts import joined_ledger
from transexplain.extras.towers.two_towers import (
    Likeness,
    Side,
    TwoTowers,
    load_two_towers,
    opposite,
)
from transexplain.methods import facts_of, parameters_of
from transexplain.models.loaded_model import Encoded, LoadedModel, checked_model, failure
from transexplain.types.items import Attribution, Item, ItemFailure, Ledger, SimilarityAttribution
from transexplain.types.plans import USUAL_BATCH, LongTexts
from transexplain.types.scores import MethodSpec
from transexplain.types.targets import ClassNames, parse_target

_HALF = "picture and text have half each of the product of their vectors"
_PLAIN = (
    "picture and text have the whole product of their vectors each, as gradients do; what they "
    "have twice is booked under rules"
)
_HELD = "the other side is held as it is: picture and text explain the whole each"
#: composites under which a product of two signals has its plain gradient
_GRADIENTS = frozenset(
    name
    for name, composite in COMPOSITES.items()
    if composite.product == "gradient" and not composite.relevance_form
)


@dataclass(frozen=True, kw_only=True, slots=True)
class PairRequest:
    """What to explain of pairs and how, whatever the pairs."""

    method: MethodSpec
    target: Likeness = "similarity"
    at: Mapping[Side, str] = field(default_factory=dict)  #: input layer by side, where given
    long_text: LongTexts = "error"
    max_length: int | None = None
    batch_tokens: int | None = None

    def of_side(self, model: LoadedModel, side: Side) -> Request:
        """The request for one tower."""
        more = {"at": self.at[side]} if side in self.at else {}
        names = ClassNames(model.classes)
        return Request(
            method=replace(self.method, params={**self.method.params, **more}),
            targets=(parse_target(f"class:{self.target}", names),),
            names=names,
            batch_tokens=self.batch_tokens,
        )


def explain_pairs(
    model: TwoTowers, items: Iterable[Item | ItemFailure], request: PairRequest
) -> Iterator[SimilarityAttribution | ItemFailure]:
    """The attribution of each pair, or its failure, in the order of the pairs.

    An item's content is a tuple of a picture and a text. A few pairs are read at a time. Raises
    EngineError for an operator without a rule, ConfigurationError for a method that does not fit.
    """
    for given in portions(items, read_together(model.picture), ()):
        yield from _explained(model, given, request)


def _explained(
    model: TwoTowers, given: Sequence[Item | ItemFailure], request: PairRequest
) -> list[SimilarityAttribution | ItemFailure]:
    done: dict[int, SimilarityAttribution | ItemFailure] = {
        place: entry for place, entry in enumerate(given) if isinstance(entry, ItemFailure)
    }
    pairs = {place: entry for place, entry in enumerate(given) if isinstance(entry, Item)}
    pictures = _encoded(model, "picture", pairs, request, done)
    texts = _encoded(model, "text", pairs, request, done)
    seen = _vectors(model, "picture", pictures, done)
    read = _vectors(model, "text", texts, done)
    left = [place for place in pairs if place not in done]
    sides: dict[Side, dict[int, Encoded]] = {
        "picture": {place: opposite(pictures[place], read[place]) for place in left},
        "text": {place: opposite(texts[place], seen[place]) for place in left},
    }
    explained: dict[Side, dict[int, Explained]] = {}
    for side, encoded in sides.items():
        view = model.side(side, request.target)
        ends = explain_items(view, list(encoded.values()), request.of_side(view, side))
        explained[side] = dict(zip(encoded, ends, strict=True))
    for place in left:
        picture, text = explained["picture"][place], explained["text"][place]
        cosine = float((seen[place].double() * read[place].double()).sum())
        failed = picture.failure or text.failure
        done[place] = failed or _record(model, pairs[place], (picture, text), cosine, request)
    return [done[place] for place in range(len(given))]


def _encoded(
    model: TwoTowers,
    side: Side,
    pairs: Mapping[int, Item],
    request: PairRequest,
    done: dict[int, SimilarityAttribution | ItemFailure],
) -> dict[int, Encoded]:
    """The encoded side of each pair; `done` gets the failures."""
    which = 0 if side == "picture" else 1
    items = [
        Item(id=pair.id, index=pair.index, content=pair.content[which]) for pair in pairs.values()
    ]
    made = model.of(side).encode(
        items,
        long_text="truncate" if request.long_text == "truncate" else "error",
        max_length=request.max_length,
    )
    encodings: dict[int, Encoded] = {}
    for place, entry in zip(pairs, made, strict=True):
        if isinstance(entry, ItemFailure):
            done.setdefault(place, entry)
        else:
            encodings[place] = entry
    return encodings


def _vectors(
    model: TwoTowers,
    side: Side,
    encoded: Mapping[int, Encoded],
    done: dict[int, SimilarityAttribution | ItemFailure],
) -> dict[int, Tensor]:
    """(D,) the unit vector of one side of each pair that has not failed."""
    left = [place for place in encoded if place not in done]
    vectors: dict[int, Tensor] = {}
    waiting = (
        batches_of(model.of(side), [encoded[place] for place in left], USUAL_BATCH) if left else []
    )
    while waiting:
        batch = waiting.pop()
        places = [left[index] for index in batch]
        try:
            rows = model.vectors(side, [encoded[place] for place in places])
        except (EngineError, ConfigurationError):
            raise
        except Exception as error:  # noqa: BLE001 - becomes the pair's error row
            if len(batch) == 1:
                failed = model_failure(encoded[places[0]].item, error).failure
                assert failed is not None
                done[places[0]] = failed
            else:
                middle = len(batch) // 2
                waiting += [batch[:middle], batch[middle:]]
            continue
        vectors.update(zip(places, rows, strict=True))
    return vectors


def _record(
    model: TwoTowers,
    item: Item,
    ends: tuple[Explained, Explained],
    cosine: float,
    request: PairRequest,
) -> SimilarityAttribution:
    (picture,), (text,) = ends[0].attributions, ends[1].attributions
    logit = (picture.logit + text.logit) / 2
    bias = model.bias if request.target == "similarity" else 0.0
    share, note, ledger = _joined(request.method.name, picture, text, logit, bias)
    shown, words = item.content
    whole = request.target == "similarity"
    # the path of a picture, to save memory, or the picture
    drawn = item.source if item.source is not None and Path(item.source).is_file() else shown
    made = [_shared(side_, share, note, logit) for side_ in (picture, text)]
    return SimilarityAttribution(
        item_id=item.id,
        method=picture.method,
        target=request.target,
        logit=logit,
        similarity=logit if whole else model.scale * cosine + model.bias,
        cosine=cosine if whole else logit,
        picture=made[0] if isinstance(shown, Mapping) else made[0].over(drawn),
        text=replace(made[1], text=words if isinstance(words, str) else None),
        ledger=ledger,
    )


def _joined(
    method: str, picture: Attribution, text: Attribution, logit: float, bias: float
) -> tuple[float, str, Ledger | None]:
    """The share of each side in its tower's relevance, what to say of it, and both ledgers' sum."""
    if picture.ledger is None or text.ledger is None:
        return 1.0, _HELD, None
    ledgers = [picture.ledger, text.ledger]
    if method not in _GRADIENTS:
        return 0.5, _HALF, joined_ledger(ledgers, np.full(2, 0.5))
    both = joined_ledger(ledgers, np.ones(2))
    product = logit - bias
    return (
        1.0,
        _PLAIN,
        replace(
            both,
            biases=both.biases - bias,
            rules=both.rules - product,
            total=both.total - logit,
            magnitude=both.magnitude + abs(bias) + abs(product),
            biases_by_kind=_plus(both.biases_by_kind, "sum", -bias),
            rules_by_kind=_plus(both.rules_by_kind, "product", -product),
        ),
    )


def _plus(by_kind: Mapping[str, float], kind: str, value: float) -> dict[str, float]:
    return {**by_kind, kind: by_kind.get(kind, 0.0) + value} if value else dict(by_kind)


def _shared(attribution: Attribution, share: float, note: str, logit: float) -> Attribution:
    """One side with its share of the relevance, and of the ledger."""
    ledger = attribution.ledger
    if ledger is not None and share != 1.0:
        ledger = joined_ledger([ledger], np.full(1, share))
    return replace(
        attribution,
        logit=logit,
        relevance=attribution.relevance * share,
        prefix_relevance=tuple(share * value for value in attribution.prefix_relevance),
        ledger=ledger,
        notes=(*attribution.notes, note),
    )


__all__ = ["explain_similarity", "load_two_towers"]

_OPTIONS = ("long_text", "max_length", "batch_tokens")
_SIDES = ("picture", "text")


@torch.inference_mode(False)
def explain_similarity(
    model: TwoTowers,
    pairs: Any,
    method: str | MethodSpec = "lrp",
    target: Likeness = "similarity",
    *,
    on_error: str = "raise",
    **params: Any,
) -> list[Any]:
    """Explain how alike pictures and texts are: relevance of every patch and of every token.

    The similarity is bilinear in the two unit vectors of a pair. The vectors' lengths are scales
    and held constant (as those of layer norms), so it is a product of two signals, and the rule
    for such products holds: half of the relevance to each side. The sum over both sides, special
    positions, biases and rules is the explained value. `gradient-x-input` and Ali's composites
    give each side the plain gradient of the product instead, and book what both have twice under
    `rules`. Methods without a ledger explain the whole on each side, the other held as it is.

    Args:
        model: what `load_two_towers` gave.
        pairs: a tuple of a picture (PIL image, array, path or `{"pixel_values": (3, H, W)}`) and a
            text (or `{"input_ids": (T,)}`), an `Item` with such a tuple, or a list of these.
        method: name in the method registry, or a MethodSpec with its parameters.
        target: `similarity`, the model's own logit of a pair: cosine times exp(logit_scale) (or
            divided by its temperature) plus its logit_bias, if it has one; or the bare `cosine`.
        on_error: `raise` ItemError at the first pair that fails, or `record` an ItemFailure in
            its place.
        params: `long_text` (`error`, the default, or `truncate`), `max_length` of texts,
            `batch_tokens`; `at`, the input layer by side, such as `{"picture": "pixels",
            "text": "words"}` (default: the input of each tower's first block). The rest are
            parameters of the method.

    Returns:
        One `SimilarityAttribution` for each pair, in their order. Its sides are drawn by
        `te.render.overlay` and `te.render.html`, both together by `te.render.pair`.

    Raises:
        ItemError: a pair cannot be explained and `on_error` is `raise`.
        TargetError: a target that is neither.
        EngineError: an operator without a rule.
        ConfigurationError: what the method does not take.
    """
    if on_error not in ("raise", "record"):
        raise ConfigurationError(f"on_error cannot be {on_error!r}; it is raise or record")
    request = _request(model, method, target, params)
    results: list[SimilarityAttribution | ItemFailure] = []
    for pair in explain_pairs(model, _items(pairs), request):
        if isinstance(pair, ItemFailure) and on_error == "raise":
            raise ItemError(pair.kind, pair.message)
        results.append(pair)
    return results


def _request(
    model: Any, method: str | MethodSpec, target: Any, params: dict[str, Any]
) -> PairRequest:
    checked_model(TwoTowers, model)
    if target not in get_args(Likeness):
        raise TargetError(
            f"the target of a pair is 'similarity' or 'cosine', not {target!r:.80}; to contrast "
            "two texts, explain both and take the difference"
        )
    spec = method if isinstance(method, MethodSpec) else MethodSpec(name=method)
    facts = facts_of(spec.name)
    if not {"text", "image"} <= {*facts.modalities} or facts.files:
        raise ConfigurationError(
            f"method {spec.name!r} does not explain both pictures and texts of any model; choose "
            "another, such as lrp"
        )
    options = {name: params.pop(name) for name in _OPTIONS if name in params}
    _check(options)
    given = {**spec.params, **params}
    at = _layers(given.pop("at", None))
    known = parameters_of(spec.name)
    if at and "at" not in known:
        raise ConfigurationError(f"method {spec.name!r} has no parameter 'at'")
    return PairRequest(
        method=MethodSpec(name=spec.name, params=given), target=target, at=at, **options
    )


def _layers(at: Any) -> dict[Any, str]:
    """The input layer of each side; ConfigurationError where they cannot be told apart."""
    if at is None:
        return {}
    if at == "encoder":
        return dict.fromkeys(_SIDES, "encoder")
    if not isinstance(at, Mapping) or not {*at} <= {*_SIDES}:
        raise ConfigurationError(
            f"at cannot be {at!r:.80} for a pair; it is 'encoder', or a mapping such as "
            "{'picture': 'pixels', 'text': 'words'}"
        )
    return {side: str(layer) for side, layer in at.items()}


def _check(options: Mapping[str, Any]) -> None:
    if (long := options.get("long_text", "error")) not in ("error", "truncate"):
        raise ConfigurationError(
            f"long_text of a pair is 'error' or 'truncate', not {long!r:.80}: two towers compare "
            "a picture with one text"
        )
    for name in ("max_length", "batch_tokens"):
        value = options.get(name)
        if value is not None and (type(value) is not int or value < 1):
            raise ConfigurationError(f"{name} cannot be {value!r:.80}; it is a number above 0")


def _items(pairs: Any) -> Iterator[Item | ItemFailure]:
    """Each pair as an item, its picture opened; one pair as a list of one."""
    single = isinstance(pairs, Item) or (
        isinstance(pairs, tuple)
        and len(pairs) == 2
        and isinstance(pairs[1], str | Mapping)
        and not isinstance(pairs[0], Item)
    )
    # an array of no axis cannot be gone through
    several = isinstance(pairs, Iterable) and getattr(pairs, "shape", (None,)) != ()
    if not single and (isinstance(pairs, str | Path | Mapping) or not several):
        raise ConfigurationError(_no_pair(pairs))
    for index, pair in enumerate([pairs] if single else pairs):
        item = pair if isinstance(pair, Item) else Item(id=str(index), index=index, content=pair)
        if not isinstance(item.content, tuple) or len(item.content) != 2:
            raise ConfigurationError(_no_pair(item.content))
        yield _opened(item)


def _no_pair(given: Any) -> str:
    return f"a pair is a tuple (picture, text), the picture first, not {given!r:.80}"


def _opened(item: Item) -> Item | ItemFailure:
    picture, text = item.content
    if not isinstance(picture, str | Path):
        return item
    try:
        shown = picture_at(picture)
    except ItemError as error:
        return failure(item, error)
    return Item(
        id=item.id, index=item.index, content=(shown, text), source=str(picture), label=item.label
    )
