"""Sums of pictures' relevance, cell by cell, which merge exactly."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transexplain.bias.exact_totals import UNITS, ExactTable

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

    def add(self, key: HeatmapKey, cells: Sequence[int]) -> None:
        """Count one picture by its exact cells, row by row."""
        self._sums.add(key, [1, *cells])

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
                    (one["target"], one["class_name"], *one["shape"]): [one["count"], *one["cells"]]
                    for one in content
                }
            )
        )
