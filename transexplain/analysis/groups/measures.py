"""Measures of a verdict: each is a number with a limit, and lies inside it, outside it, or is open.

A measure lies *outside* where its test rejects "within the limit" among all measures of its
question (Holm 1979), so that the chance of a single wrong accusation is at most 5 %. It lies
*inside* where its 90 % interval does, which is two one-sided tests at 5 % (Schuirmann 1987); no
correction is needed where every measure has to be inside (an intersection-union test, Berger 1982).
Otherwise it is *open*. The interval that decided is the only one that is kept: where the 90 %
interval of an open measure lies beyond its limit, that of the step that did not reject.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from transexplain.analysis.groups.intervals import (
    Estimate,
    Interval,
    Share,
    Unbounded,
    difference,
    of_names,
    p_outside,
)
from transexplain.analysis.groups.intervals import ratio as ratio_interval
from transexplain.analysis.groups.power import ALPHA, INSIDE, Precision, of_interval

#: *logit* and *probability* of a prediction, the share of predictions *changed*, the *spread* of
#: the effect between texts; the *rate* of a prediction, its *true positive rate* (recall) and
#: *false positive rate*, the *precision* of labels of tokens, and the *impact ratio*
MeasureName = Literal[
    "logit",
    "probability",
    "changed",
    "spread",
    "rate",
    "true positive rate",
    "false positive rate",
    "precision",
    "impact ratio",
]
State = Literal["inside", "outside", "open"]
DOUBT = 0.10  #: unadjusted p of a stratum below which it contradicts all items together
POINT = 0.01  #: of rates: an impact ratio of a smaller difference is no finding
_MOST_CHANGES = 3.0  #: of n texts of which none changed, 95 % upper bound (the rule of three)

_ByLevel = Callable[[float], Interval]


@dataclass(frozen=True, kw_only=True, slots=True)
class Measure:
    """A measure with its limit, and the interval that decided on which side it lies."""

    name: MeasureName
    value: float
    interval: tuple[Unbounded, Unbounded] | None  #: None: too few texts or items for one
    level: float  #: of the interval: 0.9, or that of the step of Holm's that decided
    low: Unbounded  #: smallest value within the limit; -inf where there is none
    high: float
    state: State
    p: float | None  #: of a true value within the limit, adjusted for all measures
    doubtful: bool  #: it would be outside at 10 % if it were the only measure
    precision: Precision | None = None  #: None: too few texts or items

    @property
    def size(self) -> float:
        """The value in units of its limit."""
        if self.name == "impact ratio":
            return abs(math.log(self.value) / math.log(self.high)) if self.value > 0 else math.inf
        return abs(self.value) / self.high if self.high else math.inf


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """A measure before those that it is judged together with are known."""

    name: MeasureName
    value: float
    low: float
    high: float
    inside: Interval | None  #: at the level `INSIDE`; None: too few texts or items
    outside: _ByLevel  #: level -> the interval that has to lie outside
    p: float | None  #: of a true value within the limit; None: too few texts or items
    lies_inside: bool  #: whether the limits hold the interval `inside`
    needed: bool = True  #: whether it has to be inside; else it counts where it is outside
    precision: Precision | None = None  #: None: too few texts or items

    def decided(self, p: float | None, alpha: float, tested: int) -> Measure:
        """The measure, its p adjusted; `alpha` is that of the step that decided among `tested`."""
        rejected = p is not None and p <= ALPHA
        by_step = rejected or self._seems_outside()
        level = 1.0 - alpha if by_step else INSIDE
        interval = self.outside(level) if by_step else self.inside
        return Measure(
            name=self.name,
            value=self.value,
            interval=interval,
            level=level,
            low=self.low,
            high=self.high,
            state="outside" if rejected else "inside" if self.lies_inside else "open",
            p=p,
            doubtful=self.p is not None and self.p <= DOUBT,
            precision=self.precision and replace(self.precision, tested=max(tested, 1)),
        )

    def _seems_outside(self) -> bool:
        """Whether the 90 % interval, which is for this measure alone, lies beyond the limit."""
        return self.inside is not None and not (
            self.inside[0] <= self.high and self.inside[1] >= self.low
        )


def decided(comparisons: Sequence[Comparison]) -> list[Measure]:
    """The measures of one question, in their order; their p-values are one family (Holm 1979)."""
    tested = sorted(
        (place for place, comparison in enumerate(comparisons) if comparison.p is not None),
        key=lambda place: comparisons[place].p or 0.0,
    )
    adjusted: dict[int, tuple[float | None, float]] = {}
    largest, alpha = 0.0, ALPHA
    for step, place in enumerate(tested):
        left = len(tested) - step
        if largest <= ALPHA:  # the first step that does not reject ends the procedure
            alpha = ALPHA / left
        largest = max(largest, min(1.0, left * (comparisons[place].p or 0.0)))
        adjusted[place] = largest, alpha
    untested = (None, ALPHA)
    return [
        comparison.decided(*adjusted.get(place, untested), len(tested))
        for place, comparison in enumerate(comparisons)
    ]


def effect(
    name: MeasureName, limit: float, like: Estimate, these: Estimate, *, enough: bool
) -> Comparison:
    """A mean effect with a limit either way.

    `like` is the estimate for names like those that were read, which decides whether the effect is
    inside; `these` that for the names that were read. It is outside where these names' effect is
    beyond the limit and names like them have one at all.
    """
    return Comparison(
        name=name,
        value=like.difference,
        low=-limit,
        high=limit,
        inside=like.interval(INSIDE) if enough else None,
        outside=these.interval,
        p=max(these.p_beyond(limit), like.p_beyond(0.0)) if enough else None,
        lies_inside=enough and like.inside(limit),
        precision=_of_effect(limit, like, these) if enough else None,
    )


def _of_effect(limit: float, like: Estimate, these: Estimate) -> Precision:
    complete = like.error == these.error and like.freedom == these.freedom
    return Precision(
        value=like.difference,
        low=-limit,
        high=limit,
        texts=these.freedom + 1,
        by_text=these.error**2,
        names=math.inf if complete else like.freedom + 1,
        by_name=max(like.error**2 - these.error**2, 0.0),
    )


def _of_share(limit: float, estimate: Estimate, unseen_in: float = math.inf) -> Precision:
    texts = estimate.freedom + 1
    return Precision(
        value=estimate.difference,
        low=-math.inf,
        high=limit,
        texts=texts,
        by_text=estimate.error**2,
        unseen=_MOST_CHANGES * texts / max(unseen_in, 1),
    )


def excess(
    name: MeasureName, limit: float, estimate: Estimate, number: int, *, enough: bool
) -> Comparison:
    """A share with an upper limit alone, over `number` texts or clusters.

    Where few texts differ there is little to estimate an error from: it is then at least that of
    the rule of three.
    """
    floor = _MOST_CHANGES / max(number, 1) / max(estimate.upper_quantile(INSIDE), 1e-9)
    known = replace(estimate, error=max(estimate.error, floor))
    inside = known.interval(INSIDE) if enough else None
    return Comparison(
        name=name,
        value=estimate.difference,
        low=-math.inf,
        high=limit,
        inside=inside,
        outside=known.interval,
        p=known.p_beyond(limit) if enough and estimate.difference > limit else 1.0,
        lies_inside=inside is not None and inside[1] < limit,
        precision=_of_share(limit, estimate, number) if enough else None,
    )


def spread(variance: Estimate, limit: float) -> Comparison:
    """A standard deviation with an upper limit, from the estimate of the variance."""

    def root(level: float) -> Interval:
        low, high = variance.interval(level)
        return math.sqrt(max(low, 0.0)), math.sqrt(max(high, 0.0))

    inside = root(INSIDE)
    return Comparison(
        name="spread",
        value=math.sqrt(max(variance.difference, 0.0)),
        low=-math.inf,
        high=limit,
        inside=inside,
        outside=root,
        p=variance.p_beyond(limit**2) if variance.difference > limit**2 else 1.0,
        lies_inside=inside[1] < limit,
        precision=_of_share(limit**2, variance),
    )


def share_difference(
    name: MeasureName, limit: float, own: Share | None, other: Share | None, fewest: int
) -> Comparison:
    """The difference of two shares, in points; inside and outside mirror for the other class.

    Without items on a side it is open.
    """
    if own is None or other is None:
        return Comparison(
            name=name,
            value=0.0,
            low=-limit,
            high=limit,
            inside=None,
            outside=lambda _level: (-1.0, 1.0),
            p=None,
            lies_inside=False,
        )
    enough = min(own.total, other.total) >= fewest

    def interval(level: float) -> Interval:
        return difference(own, other, level)

    inside = interval(INSIDE) if enough else None
    return Comparison(
        name=name,
        value=own.value - other.value,
        low=-limit,
        high=limit,
        inside=inside,
        outside=interval,
        p=p_outside(interval, -limit, limit) if enough else None,
        lies_inside=inside is not None and -limit < inside[0] and inside[1] < limit,
        precision=inside
        and of_interval(
            own.value - other.value,
            (-limit, limit),
            inside,
            own.total + other.total,
            of_names(own, other),
        ),
    )


def impact_ratio(least: float, own: Share, other: Share, fewest: int) -> Comparison:
    """The ratio of two rates of a favourable class; infinite where only the reference's is 0.

    It is outside only together with a difference of at least a point, and inside where the
    difference is less than a point for certain.
    """
    enough = min(own.total, other.total) >= fewest
    alone = math.inf if own.count else 1.0

    def interval(level: float) -> Interval:
        return ratio_interval(own, other, level)

    def apart(level: float) -> Interval:
        return difference(own, other, level)

    inside = interval(INSIDE) if enough else None
    gap = apart(INSIDE)
    small = gap[0] > -POINT and gap[1] < POINT
    return Comparison(
        name="impact ratio",
        value=own.value / other.value if other.count else alone,
        low=least,
        high=1 / least,
        inside=inside,
        outside=interval,
        p=max(p_outside(interval, least, 1 / least), p_outside(apart, -POINT, POINT))
        if enough
        else None,
        lies_inside=inside is not None and (small or (least < inside[0] and inside[1] < 1 / least)),
        precision=inside and _of_ratio(least, own, other, inside),
    )


def _of_ratio(least: float, own: Share, other: Share, inside: Interval) -> Precision | None:
    """On the scale of logarithms; None where the interval has no end there."""
    if not own.count or inside[0] <= 0.0 or math.isinf(inside[1]):
        return None
    logs = math.log(inside[0]), math.log(inside[1])
    limits = math.log(least), -math.log(least)
    items = own.total + other.total
    value = math.log(own.value / other.value)
    return of_interval(value, limits, logs, items, of_names(own, other))


def gravest(measures: Iterable[Measure]) -> Measure | None:
    """The measure that decides or is named first: outside, else open, else inside; the largest."""
    order = ("outside", "open", "inside")
    return min(
        measures, key=lambda measure: (order.index(measure.state), -measure.size), default=None
    )
