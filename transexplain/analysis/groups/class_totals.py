"""Exact totals over all attributions of a class: mean heatmaps, relevance by position in the text,
logits and ledger gaps.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transexplain.analysis.groups.exact_totals import UNITS, ExactTable, exact_sums, numbered
from transexplain.types.items import Attribution

HeatmapKey = tuple[str, str, int, int]  #: target of the plan, class name, rows, columns


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class MeanHeatmap:
    """The average picture of what a class looks at."""

    target: str
    class_name: str
    count: int  #: pictures
    relevance: NDArray[np.float64]  #: (rows, cols), mean over pictures


@dataclass(slots=True)
class HeatmapTotals:
    """The sums of every target, class and grid size."""

    #: key -> [pictures, sum of every cell in turn, row by row]
    _sums: ExactTable[HeatmapKey] = field(default_factory=ExactTable)

    def add(self, key: HeatmapKey, pictures: int, cells: Sequence[int]) -> None:
        """Count so many pictures by the exact sums of their cells, row by row."""
        self._sums.add(key, [pictures, *cells])

    def merge(self, other: "HeatmapTotals") -> None:
        """Add the sums of `other` to these."""
        self._sums.merge(other._sums)

    @property
    def class_keys(self) -> set[tuple[str, str]]:
        """(target, class) pairs with a picture."""
        return {key[:2] for key in self._sums}

    def means(self) -> list[MeanHeatmap]:
        """The mean heatmap of every target, class and grid size, sorted by these."""
        return [
            MeanHeatmap(
                target=target,
                class_name=class_name,
                count=count,
                relevance=np.array(
                    [cell / (UNITS * count) for cell in cells], dtype=np.float64
                ).reshape(rows, cols),
            )
            for (target, class_name, rows, cols), (count, *cells) in sorted(self._sums.items())
        ]

    def to_json(self) -> list[dict[str, Any]]:
        """The sums as JSON values; equal sums give equal JSON."""
        return [
            {
                "target": target,
                "class_name": class_name,
                "shape": [rows, cols],
                "count": count,
                "cells": cells,
            }
            for (target, class_name, rows, cols), (count, *cells) in sorted(self._sums.items())
        ]

    @classmethod
    def from_json(cls, content: Iterable[Mapping[str, Any]]) -> "HeatmapTotals":
        """Read what `to_json` wrote."""
        return cls(
            ExactTable(
                {
                    (entry["target"], entry["class_name"], *entry["shape"]): [
                        entry["count"],
                        *entry["cells"],
                    ]
                    for entry in content
                }
            )
        )


PARTS = 20  #: equal stretches of every text

PositionKey = tuple[str, str]  #: target of the plan, class name
_WIDTH = 4  # numbers of a part: texts, positions, exact sum, exact sum of sizes


@dataclass(frozen=True, kw_only=True, slots=True)
class PartTotal:
    """One of the `PARTS` stretches over all texts of a target and class."""

    texts: int  #: with a position here
    positions: int
    relevance: float  #: sum over positions, in the method's unit
    magnitude: float  #: sum of |relevance|


@dataclass(slots=True)
class PositionTotals:
    """The sums of every target and class, part by part."""

    #: key -> the numbers of all parts, one part after the other
    _sums: ExactTable[PositionKey] = field(default_factory=ExactTable)

    def add(self, key: PositionKey, parts: list[int]) -> None:
        """Count texts by the exact numbers of all their parts, one part after the other.

        Position i of the n of a text, special ones left out, belongs to the part that its middle
        lies in, floor(PARTS (i + 1/2) / n); a text of fewer positions than parts leaves some
        empty.
        """
        self._sums.add(key, parts)

    def merge(self, other: "PositionTotals") -> None:
        """Add the sums of `other` to these."""
        self._sums.merge(other._sums)

    def parts(self, target: str, class_name: str) -> tuple[PartTotal, ...]:
        """From the beginning of a text to its end; empty where no text was counted."""
        return tuple(
            PartTotal(
                texts=texts,
                positions=positions,
                relevance=relevance / UNITS,
                magnitude=magnitude / UNITS,
            )
            for texts, positions, relevance, magnitude in _parts(
                self._sums.get((target, class_name), [])
            )
        )

    def to_json(self) -> list[dict[str, Any]]:
        """The sums as JSON values; equal sums give equal JSON."""
        return [
            {"target": target, "class_name": class_name, "parts": _parts(row)}
            for (target, class_name), row in sorted(self._sums.items())
        ]

    @classmethod
    def from_json(cls, content: Iterable[Mapping[str, Any]]) -> "PositionTotals":
        """Read what `to_json` wrote."""
        return cls(
            ExactTable(
                {
                    (entry["target"], entry["class_name"]): list(
                        chain.from_iterable(entry["parts"])
                    )
                    for entry in content
                }
            )
        )


def _parts(row: Sequence[int]) -> list[Sequence[int]]:
    return [row[first : first + _WIDTH] for first in range(0, len(row), _WIDTH)]


ClassKey = tuple[str, str]  #: target of the plan, class name


@dataclass(slots=True)
class SeenTotals:
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

    def merge(self, other: "SeenTotals") -> "SeenTotals":
        """Add the totals of `other` to these, and return these."""
        self._sums.merge(other._sums)
        self.input_layers |= other.input_layers
        self.units |= other.units
        return self

    def to_json(self) -> dict[str, Any]:
        """The totals as JSON values; equal totals give equal JSON."""
        return {
            "classes": [[*key, *row] for key, row in sorted(self._sums.items())],
            "leaves": sorted(self.input_layers),
            "units": sorted(self.units),
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "SeenTotals":
        """Read what `to_json` wrote."""
        return cls(
            input_layers=set(content["leaves"]),
            units=set(content["units"]),
            _sums=ExactTable(
                {
                    (target, name): [count, summed]
                    for target, name, count, summed in content["classes"]
                }
            ),
        )


_COUNTED_TOGETHER = 1024  #: items
ALL = ""  #: stands for every item; no group is called so


@dataclass(slots=True, eq=False)
class GapTotals:
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

    def merge(self, other: "GapTotals") -> "GapTotals":
        """Add the totals of `other` to these, and return these."""
        self._sums.merge(other._sums)
        return self

    def means(self) -> dict[str, tuple[int, float]]:
        """Group or `ALL` -> items with a ledger, and the mean relative gap of these ledgers."""
        return {
            group: (items, summed / (UNITS * UNITS * ledgers))
            for group, (items, ledgers, summed) in self._sums.items()
        }

    def to_json(self) -> list[list[Any]]:
        """[group, items, ledgers, sum] by group; equal totals give equal JSON."""
        return [[group, *entry] for group, entry in sorted(self._sums.items())]

    @classmethod
    def from_json(cls, content: Iterable[Sequence[Any]]) -> "GapTotals":
        """Read what `to_json` wrote."""
        return cls(ExactTable({group: entry for group, *entry in content}))
