"""Sums of pictures' relevance, cell by cell, in a form that merges exactly."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transexplain.bias.exact import UNITS, total

HeatmapKey = tuple[str, str, int, int]  #: target as asked, class name, rows, columns


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class MeanHeatmap:
    """The average picture of what a class looks at."""

    target: str
    class_name: str
    count: int  #: pictures
    relevance: NDArray[np.float64]  #: (rows, cols), mean over pictures


@dataclass(slots=True)
class _Heatmap:
    count: int
    cells: list[int]  #: rows * cols sums, row by row


@dataclass(slots=True)
class HeatmapTotals:
    """The sums of every target, class and grid size."""

    _sums: dict[HeatmapKey, _Heatmap] = field(default_factory=dict)

    def add(self, key: HeatmapKey, count: int, cells: list[int]) -> None:
        """Count pictures by their exact cells, row by row."""
        mine = self._sums.get(key)
        if mine is None:
            self._sums[key] = _Heatmap(count, list(cells))
        else:
            mine.count += count
            mine.cells = total(mine.cells, cells)

    def merge(self, other: "HeatmapTotals") -> None:
        """Add the sums of `other` to these."""
        for key, heatmap in other._sums.items():
            self.add(key, heatmap.count, heatmap.cells)

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
                count=heatmap.count,
                relevance=np.array(
                    [cell / (UNITS * heatmap.count) for cell in heatmap.cells], dtype=np.float64
                ).reshape(rows, cols),
            )
            for (target, class_name, rows, cols), heatmap in sorted(
                self._sums.items(), key=lambda entry: entry[0]
            )
        ]

    def to_json(self) -> list[dict[str, Any]]:
        """The sums as JSON values; equal sums give equal JSON."""
        return [
            {
                "target": key[0],
                "class_name": key[1],
                "shape": list(key[2:]),
                "count": self._sums[key].count,
                "cells": self._sums[key].cells,
            }
            for key in sorted(self._sums)
        ]

    @classmethod
    def from_json(cls, content: Iterable[Mapping[str, Any]]) -> "HeatmapTotals":
        """Read what `to_json` wrote."""
        return cls(
            {
                (part["target"], part["class_name"], *part["shape"]): _Heatmap(
                    part["count"], list(part["cells"])
                )
                for part in content
            }
        )
