"""The values that items can be ranked by, of the items of a part at once.

NaN stands for an item that has no such value.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from transexplain.store.item_matching import word_relevance
from transexplain.store.part_columns import Floats, Ints
from transexplain.store.part_reading import Part
from transexplain.store.part_summary import PartSummary, margin_of, relative_gaps


@dataclass(frozen=True, kw_only=True, slots=True)
class Sought:
    """What values are taken for."""

    word: str  #: whose relevance is looked for; "": none
    classes: Mapping[str, int]  #: class -> index of its logit
    several: bool = False  #: an item may have several labels: each has a probability of its own


@dataclass(frozen=True, kw_only=True, slots=True)
class ItemOrder:
    """A value, and which end of it comes first."""

    title: str  #: as a reader chooses it
    value: str  #: what the value is called
    of_part: Callable[[Part, Ints, Sought], Floats]  #: of the items at these places
    sign: int = 1  #: 1: the largest first; -1: the smallest
    #: no item of the part has a larger value (None: none has one); no such function: not known
    bound: Callable[[PartSummary], float | None] | None = None
    needs_word: bool = False


def _over_logits(part: Part, of: Callable[[Floats, Ints], Floats]) -> Floats:
    """(N,) of every item that has logits, from all of them and where each item's begin."""
    values, counts = part.joined_logits
    found = np.full(len(part), np.nan)
    some = counts > 0
    if some.any():
        found[some] = of(values, (np.cumsum(counts) - counts)[some])
    return found


def _softmax_top(values: Floats, begins: Ints) -> Floats:
    tops = np.maximum.reduceat(values, begins)
    sizes = np.diff(np.append(begins, len(values)))
    found: Floats = 1.0 / np.add.reduceat(np.exp(values - np.repeat(tops, sizes)), begins)
    return found


def _sigmoid_top(values: Floats, begins: Ints) -> Floats:
    found: Floats = np.exp(-np.logaddexp(0.0, -np.maximum.reduceat(values, begins)))
    return found


def _top(sought: Sought) -> Callable[[Floats, Ints], Floats]:
    """What gives the probability of the likeliest class, or of the likeliest of several labels."""
    return _sigmoid_top if sought.several else _softmax_top


def _confidences(part: Part, places: Ints, sought: Sought) -> Floats:
    return _over_logits(part, _top(sought))[places]


def _top_logits(part: Part, places: Ints, _sought: Sought) -> Floats:
    return _over_logits(part, np.maximum.reduceat)[places]


def _margins(part: Part, places: Ints, sought: Sought) -> Floats:
    outcomes = part.only(places).outcomes if len(places) else []
    return _numbers(margin_of(one, sought.classes) for one in outcomes)


def _numbers(values: Iterable[float | None]) -> Floats:
    return np.array([np.nan if one is None else one for one in values], dtype=np.float64)


def _largest_of(part: Part, places: Ints, values: Floats, of: Ints) -> Floats:
    """The largest of the values of each item's explanations."""
    found = np.full(len(part), -np.inf)
    np.maximum.at(found, of, values)
    found[np.isneginf(found)] = np.nan
    return found[places]


def _strengths(part: Part, places: Ints, _sought: Sought) -> Floats:
    return _largest_of(part, places, part.sizes(), part.explained.of)


def _gaps(part: Part, places: Ints, _sought: Sought) -> Floats:
    explained = part.explained
    kept = explained.ledgered
    gaps = relative_gaps(explained.ledger_entries())
    return _largest_of(part, places, gaps[kept], explained.of[kept])


_Shares = Sequence[tuple[float, float]]


def _of_word(choose: Callable[[_Shares], float]) -> Callable[[Part, Ints, Sought], Floats]:
    """From the relevance of a word in each explanation of an item."""

    def of_part(part: Part, places: Ints, sought: Sought) -> Floats:
        found = word_relevance(part, places, sought.word)
        return np.array([choose(one) if one else np.nan for one in found], dtype=np.float64)

    return of_part


#: name in an address -> the order; without a name items stand as in the data
ORDERS: Mapping[str, ItemOrder] = {
    "unsure": ItemOrder(
        title="least confident first",
        value="confidence",
        of_part=_confidences,
        sign=-1,
    ),
    "confident": ItemOrder(title="most confident first", value="confidence", of_part=_confidences),
    "logit": ItemOrder(title="highest logit first", value="logit", of_part=_top_logits),
    "low-logit": ItemOrder(title="lowest logit first", value="logit", of_part=_top_logits, sign=-1),
    "wrong": ItemOrder(
        title="wrong by the widest margin",
        value="margin",
        of_part=_margins,
        bound=lambda part: part.margin,
    ),
    "strong": ItemOrder(
        title="strongest relevance first",
        value="largest |relevance|",
        of_part=_strengths,
        bound=lambda part: part.largest if part.attributions else None,
    ),
    "gap": ItemOrder(
        title="largest ledger gap first",
        value="relative gap",
        of_part=_gaps,
        bound=lambda part: None if part.ledgers is None else part.ledgers.worst,
    ),
    "word-raises": ItemOrder(
        title="the word raises most",
        value="relevance of the word",
        of_part=_of_word(lambda found: max(own for own, _ in found)),
        needs_word=True,
    ),
    "word-lowers": ItemOrder(
        title="the word lowers most",
        value="relevance of the word",
        of_part=_of_word(lambda found: min(own for own, _ in found)),
        sign=-1,
        needs_word=True,
    ),
    "word-share": ItemOrder(
        title="largest share of the word",
        value="share of the word",
        of_part=_of_word(
            lambda found: max(abs(own) / every if every else 0.0 for own, every in found)
        ),
        needs_word=True,
    ),
}
