"""Surveys a run: counts, the colour scale, and the examples to show."""

import math
from dataclasses import dataclass
from typing import Literal

from transexplain.analysis.groups.shard_aggregate import SeenTotals, ShardAggregate
from transexplain.store import noteworthy
from transexplain.store.database import Database
from transexplain.types.plans import AuditRun
from transexplain.types.relevance_sums import bin_of, outer_edge

SHARE = 0.9  #: of all explanations that the gallery's shared colour scale does not saturate
Reason = Literal["wrong", "strong", "first"]


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
    """The size that `SHARE` of the explanations do not exceed, to 1 %."""
    below = max(1, math.ceil(SHARE * count - 1e-9))
    ends = noteworthy.sizes_at(db, run_id, count - below + 1)
    if ends is None or not (place := bin_of(ends[0])):
        return 0.0
    return min(ends[1], outer_edge(place))  # the largest bounds it


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
