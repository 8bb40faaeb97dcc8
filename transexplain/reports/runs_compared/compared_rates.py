"""Rates of predictions by group in two runs, paired by item."""

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from transexplain.analysis.groups.answers import Answer
from transexplain.analysis.groups.intervals import Share
from transexplain.analysis.groups.measures import decided, share_difference
from transexplain.analysis.groups.outcome_totals import OutcomeTotals
from transexplain.analysis.groups.outcomes import MIN_ITEMS
from transexplain.reports.verdict_changes import RateChange

_Pair = tuple[str, str]  #: predicted before and after
#: items that are alike, by what they were and by what they are predicted as
Cluster = tuple[Counter[str], Counter[str]]


@dataclass(slots=True)
class RateTotals:
    """Items of every group by what they were and are predicted as."""

    _counts: dict[str, Counter[_Pair]] = field(default_factory=dict)

    def add(self, groups: Collection[str], before: str, after: str) -> None:
        """Count one item of these groups."""
        for group in groups:
            self._counts.setdefault(group, Counter())[before, after] += 1

    def rows(
        self,
        answers: Sequence[Answer],
        classes: Sequence[str],
        limit: float,
        *,
        clusters: Mapping[str, Sequence[Cluster]],
        whole: Collection[str] = (),
    ) -> tuple[RateChange, ...]:
        """A row per group and prediction, judged together; groups by name."""
        compared = [
            (group, answer.name, *_compared(counts, clusters.get(group, ()), answer, classes))
            for group, counts in sorted(self._counts.items())
            for answer in answers
        ]
        measures = decided(
            [
                share_difference("rate", limit, after, before, MIN_ITEMS)
                for *_, before, after in compared
            ]
        )
        return tuple(
            RateChange(
                group=group,
                prediction=name,
                items=before.total,
                before=before.value,
                after=after.value,
                whole=group in whole,
                measure=measure,
            )
            for (group, name, before, after), measure in zip(compared, measures, strict=True)
        )


def clusters_of(before: OutcomeTotals, after: OutcomeTotals) -> dict[str, list[Cluster]]:
    """Group -> its clusters of alike items, with what either run predicts."""
    found: dict[tuple[str, str], Cluster] = {}
    for side, totals in enumerate((before, after)):
        for key, tally in totals:
            for group in key.groups if key.cluster else ():
                cluster = found.setdefault((group, key.cluster), (Counter(), Counter()))
                cluster[side][key.predicted] += tally.items
    by_group: dict[str, list[Cluster]] = {}
    for (group, _), cluster in found.items():
        by_group.setdefault(group, []).append(cluster)
    return by_group


def _compared(
    counts: Mapping[_Pair, int],
    clusters: Sequence[Cluster],
    answer: Answer,
    classes: Sequence[str],
) -> tuple[Share, Share]:
    """The shares of one prediction before and after.

    The interval of their difference is Newcombe's (1998) for pairs: those of the shares, put
    together with their correlation over items.
    """
    cells: Counter[tuple[bool, bool]] = Counter()
    for (was, now), count in counts.items():
        cells[answer.selects(was, classes), answer.selects(now, classes)] += count
    moves = [
        (
            max(before.total(), after.total()),
            sum(
                (after[name] - before[name]) * answer.selects(name, classes)
                for name in {*before, *after}
            ),
        )
        for before, after in clusters
    ]
    total = cells.total()
    effective, freedom = total / _inflation(cells, moves), math.inf
    if moves:
        freedom = max(total - sum(items - 1 for items, _ in moves) - 1.0, 0.0)
    return _share(cells, 0, effective, freedom), _share(cells, 1, effective, freedom)


def _inflation(cells: Mapping[tuple[bool, bool], int], moves: Sequence[tuple[int, int]]) -> float:
    """How much larger the variance of the difference is over clusters than over items; at least 1.

    `moves` are a cluster's items, and what it adds to the difference. Which items of a cluster
    changed is not known; the sum of their squares is at least its mean's, so that the factor is no
    less than the true one. Where nothing changed, items of a cluster are taken to be equal.
    """
    total = sum(cells.values())
    mean = sum(count * (now - was) for (was, now), count in cells.items()) / total
    squares = sum(count * (now - was - mean) ** 2 for (was, now), count in cells.items())
    if squares == 0.0:
        return 1.0 + sum(items * (items - 1) for items, _ in moves) / total
    more = sum((moved - mean * items) ** 2 * (1.0 - 1.0 / items) for items, moved in moves)
    return 1.0 + more / squares


def _share(
    cells: Mapping[tuple[bool, bool], int], side: int, effective: float, freedom: float
) -> Share:
    """The share of one run; items of a cell err alike, so that a cell stands for them."""
    total = sum(cells.values())
    count = sum(number for cell, number in cells.items() if cell[side])
    errors = {
        str(cell): math.sqrt(number) * (cell[side] - count / total) / total
        for cell, number in cells.items()
    }
    return Share(count=count, total=total, effective=effective, freedom=freedom, errors=errors)
