"""Ranks the items of a run by a value, a piece at a time: no index holds all of them.

Where the summaries of shards bound the value, shards are read from the highest bound on, and only
until no other can hold an item that comes before those that were found; else all in turn. The
first `KEPT` items are kept.
"""

import heapq
import threading
import time
from bisect import insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, NamedTuple

import numpy as np

from transexplain.store import blocks
from transexplain.store.blocks import Block
from transexplain.store.columns import Floats, Ints
from transexplain.store.database import Database
from transexplain.store.readers import stored_failures
from transexplain.store.run_totals import ShardSummary, margin_of, relative_gaps, summaries
from transexplain.store.runs import failures, gives_several, places_of
from transexplain.store.schema import failure
from transexplain.types.items import Attribution, ItemFailure, ItemOutcome, PatchGrid
from transexplain.types.relevance_sums import middle
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


def places_in(block: Block, wanted: ItemSearch) -> Ints:
    """Where the items of a block stand that are what is wanted, ascending."""
    keep = np.ones(len(block), dtype=bool)
    if wanted.group or wanted.entity:
        keep &= block.mentioning(wanted.group or None, wanted.entity or None)
    if wanted.predicted:
        keep &= block.named("predicted", wanted.predicted)
    if wanted.label:
        keep &= block.named("label", wanted.label) | block.named("raw_label", wanted.label)
    if wanted.text:
        _hold(block, keep, wanted.text.casefold(), unknown=False)
    if wanted.word:
        _hold(block, keep, wanted.word.casefold(), unknown=True)
    places = np.flatnonzero(keep)
    return _with_word(block, places, wanted.word) if wanted.word else places


def _hold(block: Block, keep: Any, needle: str, *, unknown: bool) -> None:
    """Leave out items whose text does not hold `needle`; `unknown`: keep those without a text."""
    held = np.flatnonzero(keep).tolist()
    texts = block.texts if held else []
    for place in held:
        text = texts[place]
        keep[place] = unknown if text is None else needle in text.casefold()


def _with_word(block: Block, places: Ints, word: str) -> Ints:
    relevance = word_relevance(block, places, word)
    having: Ints = places[np.array([bool(value) for value in relevance], dtype=bool)]
    return having


def word_relevance(block: Block, places: Ints, word: str) -> list[list[tuple[float, float]]]:
    """Of each of these items, for each explanation with the word: `relevance_of_word`."""
    relevance: list[list[tuple[float, float]]] = [[] for _ in places]
    if len(places):
        for place, attribution in block.only(places).attributions():
            relevance[place] += relevance_of_word([attribution], word)
    return relevance


def relevance_of_word(explained: Iterable[Attribution], word: str) -> Iterator[tuple[float, float]]:
    """(relevance, sum of |relevance| over all words) of each explanation that has the word.

    All its mentions are added up. Pictures have no words.
    """
    needle = word.casefold()
    for attribution in explained:
        if isinstance(attribution.features, PatchGrid):
            continue
        text, spans = spans_of(attribution)
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
    of_block: Callable[[Block, Ints, Sought], Floats]  #: of the items at these places
    sign: int = 1  #: 1: the largest first; -1: the smallest
    #: no item of the shard has a larger value (None: none has one); no such function: not known
    bound: Callable[[ShardSummary], float | None] | None = None
    needs_word: bool = False


def _over_logits(block: Block, of: Callable[[Floats, Ints], Floats]) -> Floats:
    """(N,) of every item that has logits, from all of them and where each item's begin."""
    values, counts = block.logits
    shares = np.full(len(block), np.nan)
    some = counts > 0
    if some.any():
        shares[some] = of(values, (np.cumsum(counts) - counts)[some])
    return shares


def _softmax_top(values: Floats, begins: Ints) -> Floats:
    tops = np.maximum.reduceat(values, begins)
    sizes = np.diff(np.append(begins, len(values)))
    shares: Floats = 1.0 / np.add.reduceat(np.exp(values - np.repeat(tops, sizes)), begins)
    return shares


def _sigmoid_top(values: Floats, begins: Ints) -> Floats:
    shares: Floats = np.exp(-np.logaddexp(0.0, -np.maximum.reduceat(values, begins)))
    return shares


def _top(sought: Sought) -> Callable[[Floats, Ints], Floats]:
    """What gives the probability of the likeliest class, or of the likeliest of several labels."""
    return _sigmoid_top if sought.several else _softmax_top


def _confidences(block: Block, places: Ints, sought: Sought) -> Floats:
    return _over_logits(block, _top(sought))[places]


def _top_logits(block: Block, places: Ints, _sought: Sought) -> Floats:
    return _over_logits(block, np.maximum.reduceat)[places]


def _margins(block: Block, places: Ints, sought: Sought) -> Floats:
    outcomes = block.only(places).outcomes if len(places) else []
    return _numbers(margin_of(outcome, sought.classes) for outcome in outcomes)


def _numbers(values: Iterable[float | None]) -> Floats:
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


def _largest_of(block: Block, places: Ints, values: Floats, of: Ints) -> Floats:
    """The largest of the values of each item's explanations."""
    largest = np.full(len(block), -np.inf)
    np.maximum.at(largest, of, values)
    largest[np.isneginf(largest)] = np.nan
    return largest[places]


def _strengths(block: Block, places: Ints, _sought: Sought) -> Floats:
    return _largest_of(block, places, block.sizes(), block.explained.of)


def _gaps(block: Block, places: Ints, _sought: Sought) -> Floats:
    explained = block.explained
    kept = explained.ledgered
    gaps = relative_gaps(explained.ledger_entries())
    return _largest_of(block, places, gaps[kept], explained.of[kept])


_Shares = Sequence[tuple[float, float]]


def _largest(summary: ShardSummary) -> float | None:
    return summary.largest if summary.attributions else None


def _of_word(choose: Callable[[_Shares], float]) -> Callable[[Block, Ints, Sought], Floats]:
    """From the relevance of a word in each explanation of an item."""

    def of_block(block: Block, places: Ints, sought: Sought) -> Floats:
        relevance = word_relevance(block, places, sought.word)
        return np.array(
            [choose(values) if values else np.nan for values in relevance], dtype=np.float64
        )

    return of_block


#: name in an address -> the order; without a name items stand as in the data
ORDERS: Mapping[str, ItemOrder] = {
    "unsure": ItemOrder(
        title="least confident first",
        value="confidence",
        of_block=_confidences,
        sign=-1,
    ),
    "confident": ItemOrder(title="most confident first", value="confidence", of_block=_confidences),
    "logit": ItemOrder(title="highest logit first", value="logit", of_block=_top_logits),
    "low-logit": ItemOrder(
        title="lowest logit first", value="logit", of_block=_top_logits, sign=-1
    ),
    "wrong": ItemOrder(
        title="wrong by the widest margin",
        value="margin",
        of_block=_margins,
        bound=lambda summary: summary.margin,
    ),
    "strong": ItemOrder(
        title="strongest relevance first",
        value="largest |relevance|",
        of_block=_strengths,
        bound=_largest,
    ),
    "gap": ItemOrder(
        title="largest ledger gap first",
        value="relative gap",
        of_block=_gaps,
        bound=lambda summary: None if summary.ledgers is None else summary.ledgers.worst,
    ),
    "word-raises": ItemOrder(
        title="the word raises most",
        value="relevance of the word",
        of_block=_of_word(lambda pairs: max(own for own, _ in pairs)),
        needs_word=True,
    ),
    "word-lowers": ItemOrder(
        title="the word lowers most",
        value="relevance of the word",
        of_block=_of_word(lambda pairs: min(own for own, _ in pairs)),
        sign=-1,
        needs_word=True,
    ),
    "word-share": ItemOrder(
        title="largest share of the word",
        value="share of the word",
        of_block=_of_word(
            lambda pairs: max(abs(own) / every if every else 0.0 for own, every in pairs)
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
        self.seen = 0  #: items that were read
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
        return sum(item.key < limit for item in tuple(self.best))

    def page(self, after: tuple[float, int] | None, limit: int) -> list[RankedItem]:
        """Up to `limit` of `best` that come after this cursor."""
        later = [item for item in tuple(self.best) if after is None or item.cursor > after]
        return later[:limit]

    @property
    def done(self) -> bool:
        """No other item comes before the last of `best`."""
        return self._pieces.done

    def go_on(self, db: Database, seconds: float) -> None:
        """Read on for about so long; raises as `blocks.read` does, and begins anew after that."""
        self._pieces.go_on(db, seconds)

    def _work(self, db: Database) -> Iterator[None]:
        run_id = self._run_id
        self.best, self.seen, self._highest = [], 0, np.inf
        with db.read() as connection:
            classes, several = places_of(connection, run_id), gives_several(connection, run_id)
        sought = Sought(word=self._wanted.word, classes=classes, several=several)

        def rank(block: Block) -> tuple[list[RankedItem], int]:
            return self._of_block(block, sought), len(block)

        for bound, rows in self._turns(db):
            self._highest = bound
            if bound < -self._last_key():
                return
            for ranked, items in blocks.read(db, run_id, rank, rows):
                self._add(ranked, items)
                yield
            yield

    def _turns(self, db: Database) -> Iterator[tuple[float, range | None]]:
        """Which rows to read next, and a value that none of these and the later exceeds."""
        if self._order.bound is None:
            return iter([(np.inf, None)])
        return _from_highest(db, self._run_id, self._order.bound)

    def _last_key(self) -> float:
        """What an item's key must be below to be kept; it cannot be told yet: infinite."""
        return self.best[-1].key if len(self.best) == KEPT else np.inf

    def _of_block(self, block: Block, sought: Sought) -> list[RankedItem]:
        places = places_in(block, self._wanted)
        keys = -self._order.sign * self._order.of_block(block, places, sought)
        chosen = np.flatnonzero(keys <= self._last_key())  # NaN is not
        chosen = chosen[np.argsort(keys[chosen], kind="stable")[:KEPT]]
        chosen.sort()
        if not len(chosen):
            return []
        few = block.only(places[chosen])
        rows, held = few.rows.tolist(), keys[chosen].tolist()
        shown = map(self._keep, few.outcomes)
        return [RankedItem(*columns) for columns in zip(held, rows, shown, strict=True)]

    def _add(self, ranked: Sequence[RankedItem], items: int) -> None:
        self.seen += items
        for item in ranked:
            insort(self.best, item, key=lambda each: each.cursor)
        del self.best[KEPT:]


def _from_highest(
    db: Database, run_id: str, bound: Callable[[ShardSummary], float | None]
) -> Iterator[tuple[float, range]]:
    """The bound and the rows of each shard that has one, the highest first."""
    bounds = [(bound(each.summary), each.shard) for each in summaries(db, run_id)]
    known = [(value, index) for value, index in bounds if value is not None]
    for value, index in sorted(known, key=lambda pair: (-pair[0], pair[1])):
        yield value, blocks.rows_of_shard(db, run_id, index)


#: minus the size, then the place in the dataset and its number there: the first is the best
_Ranked = tuple[float, int, int, str]


def strongest(db: Database, run_id: str, count: int) -> list[str]:
    """Items of the `count` explanations with the largest sizes, each once, the largest first.

    Among equals, those that come first in the dataset.
    """

    def ranked(block: Block) -> list[_Ranked]:
        of, rows = block.explained.of.tolist(), block.rows.tolist()
        sizes = enumerate(block.sizes().tolist())
        return [(-size, rows[of[n]], n, block.ids[of[n]]) for n, size in sizes]

    return _best(db, run_id, count, _largest, ranked)


def wrong(db: Database, run_id: str, count: int) -> list[str]:
    """The `count` items whose predicted class beats the label's by most, that first.

    Among equals, those that come first in the dataset.
    """
    with db.read() as connection:
        places = places_of(connection, run_id)

    def ranked(block: Block) -> list[_Ranked]:
        margins = ((outcome, margin_of(outcome, places)) for outcome in block.outcomes)
        return [
            (-margin, outcome.index, 0, outcome.item_id)
            for outcome, margin in margins
            if margin is not None
        ]

    return _best(db, run_id, count, lambda outcome: outcome.margin, ranked)


def _best(
    db: Database,
    run_id: str,
    count: int,
    highest: Callable[[ShardSummary], float | None],
    ranked: Callable[[Block], list[_Ranked]],
) -> list[str]:
    """The best `count` of what `ranked` gives of the shards."""
    best: list[_Ranked] = []
    for bound, rows in _from_highest(db, run_id, highest):
        if len(best) >= count and (not count or bound < -best[-1][0]):
            break
        for more in blocks.read(db, run_id, ranked, rows):
            best = heapq.nsmallest(count, [*best, *more])
    return list(dict.fromkeys(name for *_, name in best))


def first(db: Database, run_id: str, count: int) -> list[str]:
    """The first `count` items of the dataset that have a result."""

    def ids(block: Block) -> list[str]:
        return [outcome.item_id for outcome in block.outcomes]

    return list(islice(chain.from_iterable(blocks.read(db, run_id, ids)), count))


def sizes_at(db: Database, run_id: str, above: int) -> tuple[float, float] | None:
    """The size that `above` explanations reach or exceed, and the largest; None: there are none.

    The first is exact to 1 %: it lies in the right one of the bins of `bin_of`.
    """
    counts: dict[int, int] = {}
    largest: float | None = None
    for held in summaries(db, run_id):
        for place, many in held.summary.sizes:
            counts[place] = counts.get(place, 0) + many
        if held.summary.attributions:
            largest = max(largest or 0.0, held.summary.largest)
    if largest is None:
        return None
    left = max(1, above)
    for place in sorted(counts, reverse=True):
        left -= counts[place]
        if left <= 0:
            return min(middle(place), largest), largest
    raise IndexError(f"run {run_id} has fewer than {above} explanations")


def failure_examples(
    db: Database, run_id: str, count: int
) -> Mapping[str, tuple[int, Sequence[ItemFailure]]]:
    """Kind of failure -> how many items, and the first `count` of them."""
    return {
        kind: (number, stored_failures(db, run_id, failure.c.kind == kind, limit=count))
        for kind, number in failures(db, run_id).items()
    }
