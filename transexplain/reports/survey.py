"""Reads all items of a run once: counts, the colour scale, and the examples to show."""

import heapq
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from transexplain.analysis.groups.class_totals import SeenTotals
from transexplain.analysis.groups.exact_totals import Histogram
from transexplain.analysis.groups.shard_aggregate import ShardAggregate
from transexplain.store import noteworthy, results
from transexplain.store.database import Database
from transexplain.store.noteworthy import margin_of
from transexplain.types.bins import outer_edge
from transexplain.types.items import Attribution, ItemFailure, ItemOutcome
from transexplain.types.plans import AuditRun
from transexplain.types.words import size_of

SHARE = 0.9  #: of all explanations that the gallery's shared colour scale does not saturate
Reason = Literal["wrong", "strong", "first"]


@dataclass(slots=True)
class Sizes:
    """A histogram of positive numbers over any range in little memory, exact to 1 %."""

    _seen: Histogram = field(default_factory=Histogram)
    _largest: float = 0.0

    def add(self, size: float) -> None:
        """Count one number, at least 0."""
        self._seen.add(size)
        self._largest = max(self._largest, size)

    def quantile(self, share: float) -> float:
        """A number that `share` of those added do not exceed; 0 where none was added."""
        place = self._seen.bin_of(share)
        return min(self._largest, outer_edge(place)) if place else 0.0


@dataclass(slots=True)
class Best:
    """The keys with the largest numbers; among equals, those that came first."""

    places: int
    _heap: list[tuple[float, int, str]] = field(default_factory=list)
    _seen: int = 0

    def add(self, number: float, key: str) -> None:
        """Offer one key."""
        self._seen += 1
        entry = (number, -self._seen, key)
        if len(self._heap) < self.places:
            heapq.heappush(self._heap, entry)
        elif self.places:
            heapq.heappushpop(self._heap, entry)

    def keys(self) -> list[str]:
        """Best first, each once."""
        return list(dict.fromkeys(key for _, _, key in sorted(self._heap, reverse=True)))


@dataclass(frozen=True, kw_only=True, slots=True)
class Survey:
    """What all rows together say; ids of items, the most noteworthy first."""

    seen: SeenTotals
    scale: float  #: `SHARE` of the explanations are not larger, to 1 %
    strongest: list[str]
    wrong: list[str]
    first: list[str]


def survey(db: Database, run: AuditRun, total: ShardAggregate, places: int) -> Survey:
    """The survey of a run whose merged totals are `total`, for a gallery of `places`.

    Either way gives the same survey, bit for bit.
    """
    first = noteworthy.first(db, run.id, places)
    if total.seen is None or noteworthy.sized(db, run.id) != total.seen.count.total():
        attributions = AttributionSurvey(strongest=Best(places))
        attributions.walk(results.iter_attributions(db, run.id))
        return Survey(
            seen=attributions.seen,
            scale=attributions.sizes.quantile(SHARE),
            strongest=attributions.strongest.keys(),
            wrong=_wrong(results.iter_items(db, run.id), run.plan.model.classes, places),
            first=first,
        )
    return Survey(
        seen=total.seen,
        scale=_scale(db, run.id, total.seen.count.total()),
        strongest=noteworthy.strongest(db, run.id, places),
        wrong=noteworthy.wrong(db, run.id, places),
        first=first,
    )


@dataclass(slots=True)
class AttributionSurvey:
    """What a walk over all attributions found."""

    strongest: Best
    sizes: Sizes = field(default_factory=Sizes)
    seen: SeenTotals = field(default_factory=SeenTotals)

    def walk(self, attributions: Iterable[Attribution]) -> "AttributionSurvey":
        """Read all of `attributions`, and return this."""
        for one in attributions:
            size = size_of(one)
            self.sizes.add(size)
            self.strongest.add(size, one.item_id)
            self.seen.add([one])
        return self


def _wrong(
    items: Iterable[ItemOutcome | ItemFailure], classes: Iterable[str], count: int
) -> list[str]:
    places: Mapping[str, int] = {name: index for index, name in enumerate(classes)}
    best = Best(count)
    for one in items:
        margin = None if isinstance(one, ItemFailure) else margin_of(one, places)
        if margin is not None:
            best.add(margin, one.item_id)
    return best.keys()


def _scale(db: Database, run_id: str, count: int) -> float:
    """`Sizes.quantile` of all sizes, of which one is read."""
    below = max(1, math.ceil(SHARE * count - 1e-9))  # as `Histogram.bin_of`
    found = noteworthy.sizes_at(db, run_id, count - below + 1)
    if found is None:
        return 0.0
    sizes = Sizes()
    for size in found:  # that of the quantile, and the largest, which bounds it
        sizes.add(size)
    return sizes.quantile(0.5)


def choose(found: Survey, size: int) -> dict[str, Reason]:
    """Item id -> why it is shown: a third each wrong, strong and first; gaps are filled.

    The same run always gives the same choice.
    """
    lists: tuple[tuple[Reason, list[str]], ...] = (
        ("wrong", found.wrong),
        ("strong", found.strongest),
        ("first", found.first),
    )
    chosen: dict[str, Reason] = {}
    for places in (-(-size // 3), size):  # a third each, then whatever is left
        for reason, ids in lists:
            fresh = [one for one in ids if one not in chosen]
            taken = sum(1 for other in chosen.values() if other == reason)
            for one in fresh[: max(0, min(places - taken, size - len(chosen)))]:
                chosen[one] = reason
    return chosen
