"""Shares of items with intervals that count clusters, and what two shares differ by.

Items of one cluster (an author, a thread, near-duplicates) are not independent: a share over them
is known as well as one over fewer independent items, the effective number. Wilson's interval is
taken at that number. The interval of a difference is Newcombe's (1998, method 10), that of a ratio
that of Donner and Zou (2012): both are made of the limits of the two shares, and of the
correlation of the two where they have clusters in common (Zou 2008), as pairs and templates do.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from scipy.special import stdtrit

from transexplain.bias.intervals import Interval

_MOST_ALIKE = 0.99  #: correlation; with 1 two shares could not differ at all
_STEPS = 40  #: of the bisection for a p-value


@dataclass(frozen=True, kw_only=True, slots=True)
class Rate:
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
    effective: float  #: independent items that would tell as much; at most `total`
    freedom: float  #: clusters - 1; infinite where every item is its own cluster
    #: cluster -> what it adds to the error of the share
    errors: Mapping[str, float] = field(default_factory=dict)

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
        alone, own = sizes.pop("", (0, 0))
        number = len(sizes) + alone
        effective, freedom, share = float(total), math.inf, count / total
        if sizes:
            freedom = number - 1.0
            effective = min(_effective(sizes.values(), alone, own, share), float(total))
        errors = {name: (some - share * items) / total for name, (items, some) in sizes.items()}
        return cls(count=count, total=total, effective=effective, freedom=freedom, errors=errors)

    @property
    def value(self) -> float:
        """count / total."""
        return self.count / self.total

    def interval(self, level: float = 0.95) -> Interval:
        """Wilson's (1927) at the effective number, with Student's quantile for few clusters."""
        if self.freedom <= 0:
            return 0.0, 1.0
        z = -_quantile(self.freedom, (1 - level) / 2)
        n, p = self.effective, self.value
        middle = (p + z * z / (2 * n)) / (1 + z * z / n)
        half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
        return max(middle - half, 0.0), min(middle + half, 1.0)

    def rate(self) -> Rate:
        """As a report shows it."""
        return Rate(count=self.count, total=self.total, interval=self.interval())


def _effective(sizes: Iterable[tuple[int, int]], alone: int, own: int, share: float) -> float:
    """Independent items that would tell as much as these clusters and items of their own."""
    found = list(sizes)
    total = alone + sum(items for items, _ in found)
    if share in (0.0, 1.0):  # nothing varies, so assume that clusters are of one mind
        return total * total / (alone + sum(items * items for items, _ in found))
    number = alone + len(found)
    squares = own * (1 - share) ** 2 + (alone - own) * share**2
    squares += sum((counted - share * items) ** 2 for items, counted in found)
    if number < 2 or squares == 0.0:
        return float(total)
    return share * (1 - share) * total * total / (squares * number / (number - 1))


def correlation(left: Share, right: Share) -> float:
    """Of two shares over clusters that are partly the same; 0 without any in common."""
    common = left.errors.keys() & right.errors.keys()
    sizes = [
        math.sqrt(sum(error * error for error in one.errors.values())) for one in (left, right)
    ]
    if len(common) < 2 or 0.0 in sizes:
        return 0.0
    product = math.fsum(left.errors[name] * right.errors[name] for name in sorted(common))
    return max(-_MOST_ALIKE, min(_MOST_ALIKE, product / (sizes[0] * sizes[1])))


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
    """The smallest 1 - level at which an interval still lies outside `low` to `high` as a whole.

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


def _quantile(freedom: float, probability: float) -> float:
    return float(stdtrit(min(freedom, 1e9), probability))
