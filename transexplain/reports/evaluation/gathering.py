"""The scores of a run, sorted by target, metric and method; numbers only, so that many fit."""

import math
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transexplain.evaluations import MetricScore

Matrix = NDArray[np.float64]


@dataclass(slots=True)
class Column:
    """What one method got from one metric for one target."""

    items: "array[int]" = field(default_factory=lambda: array("l"))  #: numbers of measured items
    values: "array[float]" = field(default_factory=lambda: array("d"))
    missing: Counter[str] = field(default_factory=Counter)  #: reason -> items
    details: list[tuple[int, Mapping[str, Any]]] = field(default_factory=list)  #: by item number
    curve: Matrix | None = None  #: (points,) sum over items
    curves: int = 0  #: items in the sum
    odd: bool = False  #: curves differ in length, so that there is no mean curve

    def add(self, number: int, score: MetricScore, corpus: bool) -> None:
        """Count one score of the item `number`."""
        if corpus and score.detail and not score.reason:
            self.details.append((number, score.detail))
        elif score.value is None or not np.isfinite(score.value):
            self.missing[score.reason or "no finite value"] += 1
        else:
            self.items.append(number)
            self.values.append(score.value)
            self._add_curve(score.curve)

    def _add_curve(self, points: tuple[float, ...]) -> None:
        if not points:
            return
        if self.curve is None:
            self.curve = np.zeros(len(points))
        if len(self.curve) != len(points):
            self.odd = True
            return
        self.curve += points
        self.curves += 1

    def mean(self) -> float | None:
        """Over the measured items; None where there is none."""
        return math.fsum(self.values) / len(self.values) if self.values else None

    def mean_curve(self) -> tuple[float, ...]:
        """(points,) mean over the measured items; empty where there is none."""
        if self.curve is None or self.odd:
            return ()
        return tuple((self.curve / self.curves).tolist())


@dataclass(slots=True)
class Gathered:
    """All scores of a run."""

    items: dict[str, int] = field(default_factory=dict)  #: id -> number
    columns: dict[tuple[str, str], dict[str, Column]] = field(default_factory=dict)
    measured: set[int] = field(default_factory=set)  #: items with at least one value

    @property
    def targets(self) -> tuple[str, ...]:
        """As the scores name them."""
        return tuple(dict.fromkeys(target for target, _ in self.columns))

    def of(self, target: str, metric: str) -> dict[str, Column]:
        """Method label -> what it got; empty where nothing was measured."""
        return self.columns.get((target, metric), {})

    def matrix(self, columns: Iterable[Column]) -> Matrix:
        """(M, N) values of M methods on all N items, NaN where there is none."""
        chosen = list(columns)
        found = np.full((len(chosen), len(self.items)), np.nan)
        for row, column in enumerate(chosen):
            found[row, np.asarray(column.items, dtype=np.intp)] = column.values
        return found


def gather(scores: Iterable[MetricScore], corpus: Iterable[str]) -> Gathered:
    """Sort scores; `corpus` names the metrics whose value is of all items together."""
    found, together = Gathered(), frozenset(corpus)
    for score in scores:
        number = found.items.setdefault(score.item_id, len(found.items))
        by_method = found.columns.setdefault((score.target, score.metric), {})
        column = by_method.setdefault(score.method, Column())
        column.add(number, score, score.metric in together)
        if not score.reason:
            found.measured.add(number)
    return found
