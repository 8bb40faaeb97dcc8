"""Intervals of means over entities and of their differences; at 95 % where no level is given."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit
from scipy.stats import binomtest

MIN_ENTITIES = 5  #: an interval over fewer entities is mostly chance
BOOTSTRAP_FROM = 30  #: entities on each side; below, Student's t with Welch's freedom
RESAMPLES = 2_000
POWER = 0.8  #: of the minimum detectable difference

Interval = tuple[float, float]
Weights = NDArray[np.uint8]


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """A difference of two means over entities, and how well it is known."""

    difference: float
    error: float  #: standard error
    freedom: float  #: of the t distribution that its intervals take

    def interval(self, level: float = 0.95) -> Interval:
        """Two-sided interval; without any variance the difference alone."""
        if self.error == 0.0:
            return self.difference, self.difference
        half = _quantile(self.freedom, 0.5 + level / 2) * self.error
        return self.difference - half, self.difference + half

    @property
    def detectable(self) -> float:
        """The true difference that a test at 5 % would have found in 80 % of such corpora."""
        if self.error == 0.0:
            return 0.0
        return (_quantile(self.freedom, 0.975) + _quantile(self.freedom, POWER)) * self.error

    def p_beyond(self, limit: float) -> float:
        """Of a difference of at most `limit` either way: the interval's own test, two-sided."""
        excess = abs(self.difference) - limit
        if excess <= 0.0:
            return 1.0
        if self.error == 0.0:
            return 0.0
        return 2 * float(stdtr(max(self.freedom, 1.0), -excess / self.error))

    def inside(self, limit: float) -> bool:
        """Whether the 90 % interval lies within `limit` either way."""
        low, high = self.interval(0.90)
        return -limit <= low and high <= limit

    def needed(self, limit: float, number: int) -> int | None:
        """From which number on the half-width would be half of `limit`; None: it is already.

        Errors are taken to fall with the root of `number`, the present one.
        """
        low, high = self.interval()
        half = (high - low) / 2
        if half <= limit / 2 or limit == 0:
            return None
        return math.ceil(number * (half / (limit / 2)) ** 2)


def t_interval(values: Sequence[float]) -> Interval:
    """Student interval of the mean of at least two values."""
    return one_sample(values).interval()


def wilson(count: int, total: int) -> Interval:
    """Score interval of the share count / total (Wilson 1927); `total` is at least 1."""
    found = binomtest(count, total).proportion_ci(method="wilson")
    return float(found.low), float(found.high)


def one_sample(values: Sequence[float]) -> Estimate:
    """The mean of at least two values, as a difference to 0, with Student's error."""
    n = len(values)
    error = math.sqrt(_variance(values) / n)
    return Estimate(difference=_mean(values), error=error, freedom=n - 1)


def welch(left: Sequence[float], right: Sequence[float]) -> Estimate:
    """mean(left) - mean(right), variances unequal (Welch-Satterthwaite); two values a side."""
    a, b = _variance(left) / len(left), _variance(right) / len(right)
    difference, scale = _mean(left) - _mean(right), max(a, b)
    if scale == 0.0:
        return Estimate(difference=difference, error=0.0, freedom=1.0)
    u, v = a / scale, b / scale  # squares of tiny variances would vanish
    freedom = (u + v) ** 2 / (u**2 / (len(left) - 1) + v**2 / (len(right) - 1))
    return Estimate(difference=difference, error=math.sqrt(a + b), freedom=freedom)


def bootstrapped(
    left: Sequence[float], right: Sequence[float], weights: tuple[Weights, Weights]
) -> Estimate:
    """mean(left) - mean(right) with the standard error of a Poisson bootstrap over entities.

    `weights` are (entities, resamples) of either side, see `permutation.poisson_weights`. Intervals
    take Welch's freedom: percentiles alone are too narrow at thirty entities, see
    `benchmarks.null_study`.
    """
    known = welch(left, right)
    means = [_weighted(side, drawn) for side, drawn in zip((left, right), weights, strict=True)]
    error = float(np.std(means[0] - means[1], ddof=1))
    return Estimate(difference=known.difference, error=error, freedom=known.freedom)


def _weighted(values: Sequence[float], weights: Weights) -> NDArray[np.float64]:
    """Means (resamples,) of values weighted by the columns; one without weight is the mean's."""
    counts = weights.sum(axis=0, dtype=np.float64)
    sums = np.asarray(values, float) @ weights
    return np.where(counts > 0, sums / np.maximum(counts, 1.0), _mean(values))


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _variance(values: Sequence[float]) -> float:
    mean = _mean(values)
    return math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)


def _quantile(freedom: float, probability: float) -> float:
    return float(stdtrit(freedom, probability))
