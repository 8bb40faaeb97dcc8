"""Explains how alike pictures and texts are: each tower in batches, the other side held."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from transexplain.engine.composites import COMPOSITES
from transexplain.errors import ConfigurationError, EngineError
from transexplain.explaining.batch_sizes import batches_of
from transexplain.explaining.explain_request import (
    Explained,
    Request,
    model_failure,
    portions,
    read_together,
)
from transexplain.explaining.item_loop import explain_items
from transexplain.models.loaded_model import Encoded, LoadedModel
from transexplain.models.tower_sides import Side, opposite
from transexplain.models.two_towers import Likeness, TwoTowers
from transexplain.types.items import Attribution, Item, ItemFailure, Ledger
from transexplain.types.plans import USUAL_BATCH, LongTexts
from transexplain.types.scores import MethodSpec
from transexplain.types.similarities import SimilarityAttribution
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
    explained = {side: _one_side(model, side, some, request) for side, some in sides.items()}
    for place in left:
        ends = (explained["picture"][place], explained["text"][place])
        failed = next((end.failure for end in ends if end.failure is not None), None)
        cosine = float((seen[place].double() * read[place].double()).sum())
        done[place] = failed or _record(model, pairs[place], ends, cosine, request)
    return [done[place] for place in range(len(given))]


def _encoded(
    model: TwoTowers,
    side: Side,
    pairs: Mapping[int, Item],
    request: PairRequest,
    done: dict[int, SimilarityAttribution | ItemFailure],
) -> dict[int, Encoded]:
    """What is read of one side of each pair; `done` gets the failures."""
    which = 0 if side == "picture" else 1
    items = [
        Item(id=pair.id, index=pair.index, content=pair.content[which]) for pair in pairs.values()
    ]
    loaded = model.picture if side == "picture" else model.text
    made = loaded.encode(
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
    loaded = model.picture if side == "picture" else model.text
    vectors: dict[int, Tensor] = {}
    waiting = batches_of(loaded, [encoded[place] for place in left], USUAL_BATCH) if left else []
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


def _one_side(
    model: TwoTowers, side: Side, given: Mapping[int, Encoded], request: PairRequest
) -> dict[int, Explained]:
    view = model.side(side, request.target)
    ends = explain_items(view, list(given.values()), request.of_side(view, side))
    return dict(zip(given, ends, strict=True))


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
    made = [_shared(side_, share, note, logit) for side_ in (picture, text)]
    return SimilarityAttribution(
        item_id=item.id,
        method=picture.method,
        target=request.target,
        logit=logit,
        similarity=logit if whole else model.scale * cosine + model.bias,
        cosine=cosine if whole else logit,
        picture=made[0] if isinstance(shown, Mapping) else made[0].over(_drawn(item)),
        text=replace(made[1], text=words if isinstance(words, str) else None),
        ledger=ledger,
    )


def _drawn(item: Item) -> Any:
    """The path of a picture, to save memory, or the picture."""
    from_file = item.source is not None and Path(item.source).is_file()
    return item.source if from_file else item.content[0]


def _joined(
    method: str, picture: Attribution, text: Attribution, logit: float, bias: float
) -> tuple[float, str, Ledger | None]:
    """The share of each side in its tower's relevance, what to say of it, and both ledgers' sum."""
    if picture.ledger is None or text.ledger is None:
        return 1.0, _HELD, None
    if method not in _GRADIENTS:
        return 0.5, _HALF, _sum_of(picture.ledger, text.ledger, lambda a, b: 0.5 * (a + b))
    both = _sum_of(picture.ledger, text.ledger, lambda a, b: a + b)
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


def _sum_of(ledger: Ledger, other: Ledger, join: Callable[[float, float], float]) -> Ledger:
    found: dict[str, Any] = {}
    for name in (each.name for each in fields(Ledger)):
        a, b = getattr(ledger, name), getattr(other, name)
        if isinstance(a, Mapping):
            kinds = {**a, **b}
            found[name] = {kind: join(a.get(kind, 0.0), b.get(kind, 0.0)) for kind in kinds}
        else:
            found[name] = join(a, b)
    return Ledger(**found)


def _shared(attribution: Attribution, share: float, note: str, logit: float) -> Attribution:
    """One side with its share of the relevance, and of the ledger."""
    ledger = attribution.ledger
    if ledger is not None and share != 1.0:
        ledger = _sum_of(ledger, ledger, lambda a, _b: share * a)
    return replace(
        attribution,
        logit=logit,
        relevance=attribution.relevance * share,
        prefix_relevance=tuple(share * value for value in attribution.prefix_relevance),
        ledger=ledger,
        notes=(*attribution.notes, note),
    )
