"""Ranks the items of a run by a value, a piece at a time: no index holds all of them.

Where the summaries of parts bound the value, parts are read from the highest bound on, and only
until no other can hold an item that comes before those that were found; else all in turn. The
first `KEPT` items are kept.
"""

from bisect import insort
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from transexplain.store import parts
from transexplain.store.database import Database
from transexplain.store.item_matching import ItemSearch, places_in
from transexplain.store.item_orders import ORDERS, Sought
from transexplain.store.noteworthy import gives_several, places_of
from transexplain.store.part_reading import Key, Part
from transexplain.store.piecemeal import Piecemeal
from transexplain.types.items import ItemOutcome

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
