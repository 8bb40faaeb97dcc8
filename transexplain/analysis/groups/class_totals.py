"""Exact totals over all attributions of a class: mean heatmaps, relevance by position in the text,
logits and ledger gaps.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transexplain.analysis.groups.exact_totals import (
    UNITS,
    ExactTable,
    Totals,
    exact_sums,
    numbered,
)
from transexplain.types.items import Attribution

HeatmapKey = tuple[str, str, int, int]  #: target of the plan, class name, rows, columns


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class MeanHeatmap:
    """The average picture of what a class looks at."""

    target: str
    class_name: str
    count: int  #: pictures
    relevance: NDArray[np.float64]  #: (rows, cols), mean over pictures


def mean_heatmaps(sums: ExactTable[HeatmapKey]) -> list[MeanHeatmap]:
    """The mean heatmap of every key, sorted by these, of [pictures, sum of every cell in turn]."""
    return [
        MeanHeatmap(
            target=target,
            class_name=class_name,
            count=count,
            relevance=np.array(
                [cell / (UNITS * count) for cell in cells], dtype=np.float64
            ).reshape(rows, cols),
        )
        for (target, class_name, rows, cols), (count, *cells) in sorted(sums.items())
    ]


PARTS = 20  #: equal stretches of every text
PART_WIDTH = 4  #: numbers of a part: texts, positions, exact sum, exact sum of sizes


@dataclass(frozen=True, kw_only=True, slots=True)
class PartTotal:
    """One of the `PARTS` stretches over all texts of a target and class."""

    texts: int  #: with a position here
    positions: int
    relevance: float  #: sum over positions, in the method's unit
    magnitude: float  #: sum of |relevance|


def part_totals(row: Sequence[int]) -> tuple[PartTotal, ...]:
    """From the beginning of a text to its end, of the numbers of all parts one after the other."""
    return tuple(
        PartTotal(
            texts=row[first],
            positions=row[first + 1],
            relevance=row[first + 2] / UNITS,
            magnitude=row[first + 3] / UNITS,
        )
        for first in range(0, len(row), PART_WIDTH)
    )


ClassKey = tuple[str, str]  #: target of the plan, class name


@dataclass(slots=True)
class SeenTotals(Totals):
    """Attributions by target and class; of one shard, or of shards merged into it."""

    input_layers: set[str] = field(default_factory=set)  #: where relevance was measured
    units: set[str] = field(default_factory=set)
    _sums: ExactTable[ClassKey] = field(default_factory=ExactTable)  #: [attributions, logits]

    def add(self, attributions: Sequence[Attribution]) -> None:
        """Count attributions; raises ValueError where a logit is not finite."""
        keys, kinds = numbered([(row.target, row.class_name) for row in attributions])
        logits = np.array([attribution.logit for attribution in attributions], dtype=np.float64)
        wrong = np.flatnonzero(~np.isfinite(logits))
        if len(wrong):
            name = attributions[wrong[0]].item_id
            raise ValueError(f"item {name!r} has a logit that is not finite")
        counts = np.bincount(kinds, minlength=len(keys)).tolist()
        for key, *row in zip(keys, counts, exact_sums(logits, kinds, len(keys)), strict=True):
            self._sums.add(key, row)
        self.input_layers.update(attribution.at for attribution in attributions)
        self.units.update(attribution.unit for attribution in attributions)

    @property
    def count(self) -> Counter[ClassKey]:
        """Attributions of every target and class."""
        return Counter({key: count for key, (count, _) in self._sums.items()})

    def mean_logit(self, key: ClassKey) -> float:
        """Over the attributions of a target and class; 0 where there are none."""
        count, summed = self._sums.get(key, (0, 0))
        return summed / (UNITS * count) if count else 0.0


_COUNTED_TOGETHER = 1024  #: items
ALL = ""  #: stands for every item; no group is called so


@dataclass(slots=True, eq=False)
class GapTotals(Totals):
    """Relative gaps of ledgers by group; of one shard, or of shards merged into it."""

    #: group or `ALL` -> [items, ledgers, sum of their relative gaps]
    _counted: ExactTable[str] = field(default_factory=ExactTable)
    #: of items that are not counted yet: relative gaps, groups
    _waiting: list[tuple[list[float], tuple[str, ...]]] = field(default_factory=list)

    def add(self, attributions: Iterable[Attribution], groups: Collection[str]) -> None:
        """Count the ledgers of one item that mentions `groups`; without a ledger, nothing.

        Raises ValueError where a gap is not finite.
        """
        gaps = [row.ledger.relative_gap for row in attributions if row.ledger is not None]
        if not all(map(isfinite, gaps)):
            raise ValueError("the gap of a ledger is not finite")
        if gaps:
            self._waiting.append((gaps, tuple(groups)))
        if len(self._waiting) >= _COUNTED_TOGETHER:
            self._count()

    @property
    def _sums(self) -> ExactTable[str]:
        if self._waiting:
            self._count()
        return self._counted

    def _count(self) -> None:
        """Count the items that wait: many at once are counted faster."""
        waiting, self._waiting = self._waiting, []
        flat = np.array([gap for gaps, _ in waiting for gap in gaps])
        units = list(map(round, (flat * UNITS * UNITS).tolist()))
        self._counted.add(ALL, [len(waiting), len(units), sum(units)])
        stop = 0
        for gaps, groups in waiting:
            start, stop = stop, stop + len(gaps)
            for group in groups:
                self._counted.add(group, [1, len(gaps), sum(units[start:stop])])

    def __eq__(self, other: object) -> bool:
        return self._sums == other._sums if isinstance(other, GapTotals) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # it changes

    def means(self) -> dict[str, tuple[int, float]]:
        """Group or `ALL` -> items with a ledger, and the mean relative gap of these ledgers."""
        return {
            group: (items, summed / (UNITS * UNITS * ledgers))
            for group, (items, ledgers, summed) in self._sums.items()
        }

    def to_json(self) -> list[list[Any]]:  # type: ignore[override]
        """[group, [items, ledgers, sum]] by group."""
        return self._sums.to_json()

    def add_json(self, content: Any) -> None:
        """Add what `to_json` wrote."""
        if not all(ledgers > 0 for _, (_, ledgers, _) in content):
            raise ValueError("a mean of no ledger")
        self._counted.add_json(content)
