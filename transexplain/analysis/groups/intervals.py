"""Intervals of means over entities, of shares over clusters, and of their differences; at 95 %
unless stated otherwise.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

MIN_ENTITIES = 5  #: an interval over fewer entities is mostly chance
BOOTSTRAP_FROM = 30  #: entities on each side; below, Student's t with Welch's freedom
RESAMPLES = 2_000
POWER = 0.8  #: of the minimum detectable difference

Interval = tuple[float, float]


class _OrNull:
    """Marks numbers that JSON may write as null, for schemas."""

    def __get_pydantic_json_schema__(self, core: Any, of: Callable[[Any], Any]) -> dict[str, Any]:
        return {"anyOf": [of(core), {"type": "null"}]}


#: a number that may be infinite, which JSON writes as null
Unbounded = Annotated[float, _OrNull()]
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
        half = self.upper_quantile(level) * self.error
        return self.difference - half, self.difference + half

    @property
    def detectable(self) -> float:
        """The true difference that a test at 5 % would find in 80 % of such corpora."""
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
        from scipy.special import stdtr  # slow to import, and a wrong request comes first

        return 2 * float(stdtr(max(self.freedom, 1.0), -excess / self.error))

    def inside(self, limit: float) -> bool:
        """Return whether the 90 % interval lies within `limit` either way; its end is outside.

        With a limit of 0 nothing is inside, entities without any spread neither.
        """
        low, high = self.interval(0.90)
        return -limit < low and high < limit

    def upper_quantile(self, level: float) -> float:
        """Return what the error counts by in the upper end of an interval."""
        return _quantile(self.freedom, 0.5 + level / 2) if self.freedom > 0 else math.inf

    def needed(self, limit: float, number: int) -> int | None:
        """The number at which the half-width would be half of `limit`; None: it already is.

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
    from scipy.stats import binomtest  # slow to import, and a wrong request comes first

    ends = binomtest(count, total).proportion_ci(method="wilson")
    return float(ends.low), float(ends.high)


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

    `weights` are (entities, resamples) of either side, see `resampling.poisson_weights`. Intervals
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


def squares(parts: NDArray[np.float64], places: NDArray[np.intp]) -> float:
    """The sum over indices of the squared sum of their parts."""
    _, dense = np.unique(places, return_inverse=True)
    return float((np.bincount(dense, parts) ** 2).sum())


def factor(count: int) -> float:
    """By which a variance between so many is larger than that about their mean."""
    return count / (count - 1) if count > 1 else 1.0


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _variance(values: Sequence[float]) -> float:
    mean = _mean(values)
    return math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)


def _quantile(freedom: float, probability: float) -> float:
    from scipy.special import stdtrit  # slow to import, and a wrong request comes first

    return float(stdtrit(freedom, probability))


_MOST_ALIKE = 0.99  #: correlation; with 1 two shares could not differ at all
_STEPS = 40  #: of the bisection for a p-value


@dataclass(frozen=True, kw_only=True, slots=True)
class ItemRate:
    """A share of items, with its 95 % interval."""

    count: int
    total: int
    interval: Interval

    @property
    def share(self) -> float:
        """count / total."""
        return self.count / self.total


@dataclass(frozen=True, kw_only=True, slots=True)
class Share:
    """A share as it is compared: of how many items, worth how many independent ones."""

    count: int
    total: int
    effective: float  #: independent items with as much information; at most `total`
    freedom: float  #: clusters - 1; infinite where every item is its own cluster
    #: cluster -> what it adds to the error of the share
    errors: Mapping[str, float] = field(default_factory=dict)
    names: float = (
        math.inf
    )  #: that are a sample of others; infinite: the variance has no part of it
    by_name: float = 0.0  #: the part of the variance that they add, 0 to 1

    @classmethod
    def of(cls, clusters: Iterable[tuple[str, int, int]]) -> "Share | None":
        """From (cluster, items, counted items); None without items.

        Items of the cluster "" are each a cluster of their own. The variance of the ratio of the
        two sums is Cochran's (1977, eq. 2.39) with the factor G / (G - 1).
        """
        sizes: dict[str, tuple[int, int]] = {}
        for name, items, counted in clusters:
            before = sizes.get(name, (0, 0))
            sizes[name] = before[0] + items, before[1] + counted
        total = sum(items for items, _ in sizes.values())
        if not total:
            return None
        count = sum(counted for _, counted in sizes.values())
        alone, alone_counted = sizes.pop("", (0, 0))
        number = len(sizes) + alone
        effective, freedom, share = float(total), math.inf, count / total
        if sizes:
            freedom = number - 1.0
            effective = min(_effective(sizes.values(), alone, alone_counted, share), float(total))
        errors = {name: (some - share * items) / total for name, (items, some) in sizes.items()}
        return cls(count=count, total=total, effective=effective, freedom=freedom, errors=errors)

    def sampled(self, names: int, more: float) -> "Share":
        """The same with its names as a sample of others, by which the count varies `more`.

        Degrees of freedom are Satterthwaite's, of the clusters and of the names.
        """
        square = self.square
        if names < 2 or more <= 0.0 or square == 0.0 or self.freedom <= 0:
            return self
        part = more / (more + square * self.total**2)
        return replace(
            self,
            effective=self.effective * (1.0 - part),
            freedom=1.0 / ((1.0 - part) ** 2 / self.freedom + part**2 / (names - 1)),
            names=names,
            by_name=part,
        )

    @property
    def value(self) -> float:
        """count / total."""
        return self.count / self.total

    @property
    def square(self) -> float:
        """The variance of the value."""
        return self.value * (1.0 - self.value) / self.effective

    def interval(self, level: float = 0.95) -> Interval:
        """Wilson's (1927) at the effective number, with Student's quantile for few clusters."""
        if self.freedom <= 0:
            return 0.0, 1.0
        z = -_quantile(min(self.freedom, 1e9), (1 - level) / 2)
        n, p = self.effective, self.value
        middle = (p + z * z / (2 * n)) / (1 + z * z / n)
        half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
        return max(middle - half, 0.0), min(middle + half, 1.0)

    def rate(self) -> ItemRate:
        """As a report shows it."""
        return ItemRate(count=self.count, total=self.total, interval=self.interval())


def _effective(sizes: Iterable[tuple[int, int]], alone: int, single: int, share: float) -> float:
    """The number of independent items with as much information as these clusters and single
    items.
    """
    pairs = list(sizes)
    total = alone + sum(items for items, _ in pairs)
    if share in (0.0, 1.0):  # nothing varies, so assume that answers within a cluster are equal
        return total * total / (alone + sum(items * items for items, _ in pairs))
    number = alone + len(pairs)
    squares = single * (1 - share) ** 2 + (alone - single) * share**2
    squares += sum((counted - share * items) ** 2 for items, counted in pairs)
    if number < 2 or squares == 0.0:
        return float(total)
    return share * (1 - share) * total * total / (squares * number / (number - 1))


def correlation(left: Share, right: Share) -> float:
    """Of two shares over clusters that are partly the same; 0 without any in common."""
    common = left.errors.keys() & right.errors.keys()
    sizes = [
        math.sqrt(sum(error * error for error in share.errors.values())) for share in (left, right)
    ]
    if len(common) < 2 or 0.0 in sizes:
        return 0.0
    product = math.fsum(left.errors[name] * right.errors[name] for name in sorted(common))
    alike = product / (sizes[0] * sizes[1])
    alike *= math.sqrt((1.0 - left.by_name) * (1.0 - right.by_name))  # names are of one side
    return max(-_MOST_ALIKE, min(_MOST_ALIKE, alike))


def of_names(left: Share, right: Share) -> tuple[float, float]:
    """The names of the side with fewer, and the part of a difference's variance that they add."""
    squares = left.square, right.square
    added = squares[0] * left.by_name + squares[1] * right.by_name
    both = 2 * correlation(left, right) * math.sqrt(squares[0] * squares[1])
    return min(left.names, right.names), added / (sum(squares) - both) if added else 0.0


def difference(left: Share, right: Share, level: float = 0.95) -> Interval:
    """The interval of the left share minus the right one."""
    (l1, u1), (l2, u2) = left.interval(level), right.interval(level)
    p, q, r = left.value, right.value, correlation(left, right)
    below = (p - l1) ** 2 + (u2 - q) ** 2 - 2 * r * (p - l1) * (u2 - q)
    above = (u1 - p) ** 2 + (q - l2) ** 2 - 2 * r * (u1 - p) * (q - l2)
    return p - q - math.sqrt(max(below, 0.0)), p - q + math.sqrt(max(above, 0.0))


def ratio(left: Share, right: Share, level: float = 0.95) -> Interval:
    """The interval of the left share over the right one; its end is infinite where that may be."""
    (l1, u1), (l2, u2) = left.interval(level), right.interval(level)
    p, q, r = left.value, right.value, correlation(left, right)
    middle = p * q - r * (p - l1) * (u2 - q)
    inner = middle**2 - l1 * u2 * (2 * p - l1) * (2 * q - u2)
    below = u2 * (2 * q - u2)
    # u2 >= 2 q: the reference may be so large that the formula has no lower limit but this one
    low = (middle - math.sqrt(max(inner, 0.0))) / below if below > 0 else l1 / u2 if u2 else 0.0
    middle = p * q - r * (u1 - p) * (q - l2)
    inner = middle**2 - u1 * l2 * (2 * p - u1) * (2 * q - l2)
    above = l2 * (2 * q - l2)
    high = (middle + math.sqrt(max(inner, 0.0))) / above if above > 0 else math.inf
    return max(low, 0.0), high


def p_outside(interval_at: Callable[[float], Interval], low: float, high: float) -> float:
    """The smallest 1 - level at which an interval still lies wholly outside `low` to `high`.

    It is the p-value of the hypothesis that the truth lies inside; 1 where no interval is outside.
    """

    def outside(alpha: float) -> bool:
        lower, upper = interval_at(1.0 - alpha)
        return lower > high or upper < low

    if not outside(1.0 - 1e-9):
        return 1.0
    inside, out = 0.0, 1.0 - 1e-9
    for _ in range(_STEPS):
        middle = (inside + out) / 2 if out > 1e-4 else math.sqrt(max(inside, 1e-300) * out)
        inside, out = (inside, middle) if outside(middle) else (middle, out)
    return out
