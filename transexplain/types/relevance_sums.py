"""How near the relevance of explanations comes to the logits they explain, from exact sums."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import fsum, sqrt
from typing import Self

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
#: a variance below this share of the squared mean is rounding
_ROUNDING = 1e-12
_LARGEST = 1e100  #: squares of smaller numbers can be added up without overflow


@dataclass(frozen=True, slots=True)
class RelevanceSums:
    """Logits f and sums S of relevance over all positions, of many explanations.

    Every total is kept as floats that add up to it without rounding (an expansion: Shewchuk 1997,
    section 2.2), so that the results have the same bits in whatever parts explanations are added.
    """

    count: int  #: explanations
    judged: int  #: of them, those whose logit is not 0
    #: expansions of the sums of f, S, f^2, S^2, f S, and |f - S| / |f| over the judged
    totals: list[list[float]]

    @classmethod
    def of(cls, logits: Sequence[float] | Floats, sums: Sequence[float] | Floats) -> Self:
        """Of N explanations, (N,) and (N,); numbers whose square is no float are left out."""
        f, s = np.asarray(logits, dtype=np.float64), np.asarray(sums, dtype=np.float64)
        fit = (np.abs(f) < _LARGEST) & (np.abs(s) < _LARGEST)
        f, s = f[fit], s[fit]
        judged = np.abs(f) > 1 / _LARGEST
        errors = np.abs(f - s)[judged] / np.abs(f[judged])
        columns = (f, s, f * f, s * s, f * s, errors)
        return cls(len(f), int(judged.sum()), [_expansion(column.tolist()) for column in columns])

    @classmethod
    def merged(cls, many: "Iterable[RelevanceSums]") -> Self:
        """Of the explanations of all of these."""
        sums: list[RelevanceSums] = [cls.of([], []), *many]
        joined = zip(*(part.totals for part in sums), strict=True)
        return cls(
            sum(part.count for part in sums),
            sum(part.judged for part in sums),
            [_expansion([term for terms in column for term in terms]) for column in joined],
        )

    @property
    def error(self) -> float | None:
        """Mean |f - S| / |f|; None where no logit differs from 0."""
        return fsum(self.totals[5]) / self.judged if self.judged else None

    @property
    def correlation(self) -> float | None:
        """Pearson's, of f and S; None where either is the same for all explanations."""
        f, s, ff, ss, fs = (sum(map(Fraction, total), Fraction()) for total in self.totals[:5])
        of_f, of_s = self.count * ff - f * f, self.count * ss - s * s
        if of_f <= _ROUNDING * self.count * ff or of_s <= _ROUNDING * self.count * ss:
            return None
        return float(self.count * fs - f * s) / sqrt(of_f) / sqrt(of_s)


def _expansion(values: list[float]) -> list[float]:
    """Few floats that have the same exact sum."""
    terms: list[float] = []
    while rest := fsum([*values, *(-term for term in terms)]):
        terms.append(rest)
    return terms


_STEP = math.log(1.01)
_FLOOR = -745.0  # the logarithm of the smallest float is above it, so that no bin is the 0th


def bin_of(size: float) -> int:
    """The number of the bin of a finite `size`, at least 0; larger ones hold larger sizes.

    Bin 0 holds zeros.
    """
    return math.ceil((math.log(size) - _FLOOR) / _STEP) if size else 0


def outer_edge(place: float) -> float:
    """The largest size of a number in the bin `place` above 0."""
    return math.exp(place * _STEP + _FLOOR)


def middle(place: int) -> float:
    """A size of the bin `place`."""
    return outer_edge(place - 0.5) if place else 0.0
