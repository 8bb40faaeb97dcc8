"""Ranks the items of a run by a value, a piece at a time: no index holds all of them.

Where the summaries of parts bound the value, parts are read from the highest bound on, and only
until no other can hold an item that comes before those that were found; else all in turn. The
first `KEPT` items are kept.
"""

import threading
import time
from bisect import insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from transexplain.store import parts
from transexplain.store.database import Database
from transexplain.store.noteworthy import gives_several, places_of
from transexplain.store.part_columns import Floats, Ints
from transexplain.store.part_reading import Key, Part
from transexplain.store.part_summary import PartSummary, margin_of, relative_gaps
from transexplain.types.items import Attribution, ItemOutcome, PatchGrid
from transexplain.types.words import spans_of


class Piecemeal:
    """Work that its steps part into pieces; threads take turns.

    `begin` gives the steps, and forgets what earlier ones have found.
    """

    def __init__(self, begin: Callable[[Database], Iterator[None]]) -> None:
        self.done = False
        self._begin = begin
        self._steps: Iterator[None] | None = None
        self._lock = threading.Lock()

    def go_on(self, db: Database, seconds: float) -> None:
        """Work for about so long, a step at least; once it is done not at all.

        Raises what a step raises; the work begins anew after that.
        """
        until = time.monotonic() + seconds
        if self.done or not self._lock.acquire(timeout=max(0.0, seconds)):
            return
        try:
            if self._steps is None:
                self._steps = self._begin(db)
            while not self.done:
                self.done = next(self._steps, self) is self
                if time.monotonic() > until:
                    break
        except BaseException:
            self._steps = None
            raise
        finally:
            self._lock.release()


LAST_ROW = 2**31 - 1  #: no row lies behind


@dataclass(frozen=True, kw_only=True, slots=True)
class ItemSearch:
    """What an item has to be; what is empty is not looked at."""

    text: str = ""  #: part of its text, in any case
    word: str = ""  #: a whole word of it, in any case, that an explanation has a relevance for
    predicted: str = ""
    label: str = ""  #: class, or as the dataset spells it
    group: str = ""  #: that it mentions
    entity: str = ""  #: that it mentions, of `group` where one is given


def places_in(part: Part, wanted: ItemSearch) -> Ints:
    """Where the items of a part stand that are what is wanted, ascending."""
    keep = np.ones(len(part), dtype=bool)
    if wanted.group or wanted.entity:
        keep &= part.mentioning(wanted.group or None, wanted.entity or None)
    if wanted.predicted:
        keep &= part.named("predicted", wanted.predicted)
    if wanted.label:
        keep &= part.named("label", wanted.label) | part.named("raw_label", wanted.label)
    if wanted.text:
        _hold(part, keep, wanted.text.casefold(), unknown=False)
    if wanted.word:
        _hold(part, keep, wanted.word.casefold(), unknown=True)
    places = np.flatnonzero(keep)
    return _with_word(part, places, wanted.word) if wanted.word else places


def _hold(part: Part, keep: Any, needle: str, *, unknown: bool) -> None:
    """Leave out items whose text does not hold `needle`; `unknown`: keep those without a text."""
    held = np.flatnonzero(keep).tolist()
    texts = part.texts if held else []
    for place in held:
        text = texts[place]
        keep[place] = unknown if text is None else needle in text.casefold()


def _with_word(part: Part, places: Ints, word: str) -> Ints:
    found = word_relevance(part, places, word)
    having: Ints = places[np.array([bool(one) for one in found], dtype=bool)]
    return having


def word_relevance(part: Part, places: Ints, word: str) -> list[list[tuple[float, float]]]:
    """Of each of these items, for each explanation with the word: `relevance_of_word`."""
    found: list[list[tuple[float, float]]] = [[] for _ in places]
    if len(places):
        for place, one in part.only(places).attributions():
            found[place] += relevance_of_word([one], word)
    return found


def relevance_of_word(explained: Iterable[Attribution], word: str) -> Iterator[tuple[float, float]]:
    """(relevance, sum of |relevance| over all words) of each explanation that has the word.

    All its mentions are added up. Pictures have no words.
    """
    needle = word.casefold()
    for one in explained:
        if isinstance(one.features, PatchGrid):
            continue
        text, spans = spans_of(one)
        here = [w.relevance for w in spans if text[w.start : w.end].casefold() == needle]
        if here:
            yield sum(here), sum(abs(w.relevance) for w in spans)


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


KEPT = 1_000


class RankedItem(NamedTuple):
    """An item of a ranking; ascending ones are in its order."""

    key: float  #: the value, its sign turned where the largest comes first
    row: int  #: of the dataset; decides among equal values
    shown: Any  #: what `keep` made of it

    @property
    def cursor(self) -> tuple[float, int]:
        """What a page that begins after this item is asked by."""
        return self.key, self.row


class Ranking:
    """The first items of a run by one of `ORDERS`, of those that are `wanted`.

    `keep` makes what is held of an item.
    """

    def __init__(
        self, run_id: str, wanted: ItemSearch, order: str, keep: Callable[[ItemOutcome], Any]
    ) -> None:
        self.best: list[RankedItem] = []
        self.seen = 0  #: items of the parts that were read
        self._run_id, self._wanted, self._keep = run_id, wanted, keep
        self._order = ORDERS[order]
        self._highest = np.inf  #: no item that was not read has a larger value
        self._pieces = Piecemeal(self._work)

    @property
    def certain(self) -> int:
        """How many of `best` no unread item can come before."""
        if self.done:
            return len(self.best)
        limit = -self._highest
        return sum(one.key < limit for one in tuple(self.best))

    def page(self, after: tuple[float, int] | None, limit: int) -> list[RankedItem]:
        """Up to `limit` of `best` that come after this cursor."""
        later = [one for one in tuple(self.best) if after is None or one.cursor > after]
        return later[:limit]

    @property
    def done(self) -> bool:
        """No other item comes before the last of `best`."""
        return self._pieces.done

    def go_on(self, db: Database, seconds: float) -> None:
        """Read on for about so long; raises as `parts.read` does, and begins anew after that."""
        self._pieces.go_on(db, seconds)

    def _work(self, db: Database) -> Iterator[None]:
        run_id = self._run_id
        self.best, self.seen, self._highest = [], 0, np.inf
        with db.read() as connection:
            classes, several = places_of(connection, run_id), gives_several(connection, run_id)
        sought = Sought(word=self._wanted.word, classes=classes, several=several)

        def rank(part: Part) -> tuple[list[RankedItem], int]:
            return self._of_part(part, sought), len(part)

        for bound, keys in self._turns(db):
            self._highest = bound
            if bound < -self._last_key():
                return
            for found, items in parts.read(db, run_id, rank, keys, together=1):
                self._add(found, items)
                yield
            yield

    def _turns(self, db: Database) -> Iterator[tuple[float, list[Key] | None]]:
        """What of the parts to read next, and a value that none of these and the later exceeds."""
        of = self._order.bound
        if of is None:
            yield np.inf, None
            return
        bounds = [(of(one.summary), one.key) for one in parts.summaries(db, self._run_id)]
        known = [(bound, key) for bound, key in bounds if bound is not None]
        for bound, key in sorted(known, key=lambda one: (-one[0], one[1])):
            yield bound, [key]

    def _last_key(self) -> float:
        """What an item's key must be below to be kept; it cannot be told yet: infinite."""
        return self.best[-1].key if len(self.best) == KEPT else np.inf

    def _of_part(self, part: Part, sought: Sought) -> list[RankedItem]:
        places = places_in(part, self._wanted)
        keys = -self._order.sign * self._order.of_part(part, places, sought)
        chosen = np.flatnonzero(keys <= self._last_key())  # NaN is not
        chosen = chosen[np.argsort(keys[chosen], kind="stable")[:KEPT]]
        chosen.sort()
        if not len(chosen):
            return []
        few = part.only(places[chosen])
        rows, held = few.rows.tolist(), keys[chosen].tolist()
        shown = map(self._keep, few.outcomes)
        return [RankedItem(*one) for one in zip(held, rows, shown, strict=True)]

    def _add(self, found: Sequence[RankedItem], items: int) -> None:
        self.seen += items
        for one in found:
            insort(self.best, one, key=lambda each: each.cursor)
        del self.best[KEPT:]
