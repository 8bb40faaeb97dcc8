"""Surveys a run: counts, the colour scale, and the examples to show."""

import math
from dataclasses import dataclass, field
from typing import Literal

from transexplain.analysis.groups.class_totals import SeenTotals
from transexplain.analysis.groups.exact_totals import Histogram
from transexplain.analysis.groups.shard_aggregate import ShardAggregate
from transexplain.store import noteworthy
from transexplain.store.database import Database
from transexplain.types.plans import AuditRun
from transexplain.types.relevance_sums import outer_edge

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


@dataclass(frozen=True, kw_only=True, slots=True)
class Survey:
    """Totals of a run, and ids of items, the most noteworthy first."""

    seen: SeenTotals
    scale: float  #: `SHARE` of the explanations are not larger, to 1 %
    strongest: list[str]
    wrong: list[str]
    first: list[str]


def survey(db: Database, run: AuditRun, total: ShardAggregate, places: int) -> Survey:
    """The survey of a run whose merged totals are `total`, for a gallery of `places`."""
    return Survey(
        seen=total.seen,
        scale=_scale(db, run.id, total.seen.count.total()),
        strongest=noteworthy.strongest(db, run.id, places),
        wrong=noteworthy.wrong(db, run.id, places),
        first=noteworthy.first(db, run.id, places),
    )


def _scale(db: Database, run_id: str, count: int) -> float:
    """`Sizes.quantile` of all sizes, of which one is read."""
    below = max(1, math.ceil(SHARE * count - 1e-9))  # as `Histogram.bin_of`
    largest = noteworthy.sizes_at(db, run_id, count - below + 1)
    if largest is None:
        return 0.0
    sizes = Sizes()
    for size in largest:  # that of the quantile, and the largest, which bounds it
        sizes.add(size)
    return sizes.quantile(0.5)


def choose(survey: Survey, size: int) -> dict[str, Reason]:
    """Item id -> why it is shown: a third each wrong, strong and first; gaps are filled.

    The same run always gives the same choice.
    """
    lists: tuple[tuple[Reason, list[str]], ...] = (
        ("wrong", survey.wrong),
        ("strong", survey.strongest),
        ("first", survey.first),
    )
    chosen: dict[str, Reason] = {}
    for places in (-(-size // 3), size):  # a third each, then whatever is left
        for reason, ids in lists:
            fresh = [key for key in ids if key not in chosen]
            taken = sum(1 for other in chosen.values() if other == reason)
            for item_id in fresh[: max(0, min(places - taken, size - len(chosen)))]:
                chosen[item_id] = reason
    return chosen
