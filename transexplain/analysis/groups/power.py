"""The power of a run, and its inverse: the size at which a question is settled.

Both come from one function, the chance that a run of some size puts a measure inside or outside its
limits where the truth is some value. Errors are Student's; the part of the variance that texts make
falls with their number, the part that names make with the number of names.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from transexplain.analysis.groups.intervals import Estimate, Interval, Unbounded

SETTLED = 0.9  #: share of runs
INSIDE = 0.90  #: level of the interval that shows that a measure is inside its limit
ALPHA = 0.05
#: standard deviations, in logits, that a plan assumes before anything is measured: of how names of
#: two groups differ in one text, and of names' own effects
TEXT_SPREAD, NAME_SPREAD = 0.3, 0.1
_LARGEST = 1e6  #: times the present size
_NEAREST = 0.9  #: limits; nearer ones cannot be settled
_STEPS = 60  #: of a bisection


@dataclass(frozen=True, kw_only=True, slots=True)
class Precision:
    """The precision of a measure, on the scale on which its errors are Student's."""

    value: float
    low: Unbounded  #: smallest value within the limit; -inf where there is none
    high: float
    texts: float  #: clusters of texts, or items
    by_text: float  #: variance that falls with the number of texts
    names: Unbounded = math.inf  #: of the side that has fewer; infinite: there are no others
    by_name: float = 0.0  #: variance that falls with the number of names
    unseen: float = 0.0  #: texts that may change although none did
    tested: int = 1  #: measures of the question, for the first step of Holm (1979)

    def at(self, factor: float, most: float = 0.0) -> "Precision":
        """The same of a run of `factor` times as many texts.

        They bring further names, up to `most`, that the lexicon has.
        """
        names = max(self.names, min(most, factor * self.names))
        return replace(
            self,
            texts=factor * self.texts,
            by_text=self.by_text / factor,
            names=names,
            by_name=self.by_name * self.names / names if self.by_name else 0.0,
        )

    @property
    def like(self) -> Estimate:
        """The estimate for names like those that were read."""
        error = math.sqrt(self.by_text + self.by_name)
        return Estimate(difference=self.value, error=error, freedom=min(self._freedom, 1e9))

    @property
    def _freedom(self) -> float:
        return max(min(self.texts, self.names) - 1, 1.0)

    @property
    def these(self) -> Estimate:
        """The estimate for the names that decide whether an effect is outside."""
        freedom = min(max(self.texts - 1, 1.0), 1e9)
        return replace(self.like, error=math.sqrt(self.by_text), freedom=freedom)

    def shown_inside(self, truth: float) -> float:
        """The share of runs that put the measure inside its limits."""
        like = self.like
        quantile = like.upper_quantile(INSIDE)
        half = max(quantile * like.error, self.unseen / self.texts)
        below = _below(self.high - half - truth, like)
        return max(0.0, below - _below(self.low + half - truth, like))

    def shown_outside(self, truth: float) -> float:
        """The share of runs that put the measure outside its limits."""
        bound, like = self._bound, self.like
        lower = _below(-bound - truth, like) if math.isfinite(self.low) else 0.0
        return 1.0 - _below(bound - truth, like) + lower

    @property
    def _bound(self) -> float:
        """The smallest value that is outside: beyond the limit of these names, 0 for names like
        them.
        """
        level = 1.0 - ALPHA / self.tested
        bounds = [
            estimate.upper_quantile(level) * estimate.error for estimate in (self.these, self.like)
        ]
        return max(self.high + bounds[0], bounds[1] if math.isfinite(self.low) else 0.0)

    @property
    def beyond(self) -> bool:
        """Return whether the truth is probably beyond the limit; usual effects are two limits."""
        return not self.low <= self.value * self._weight(2.0 * self.high) <= self.high

    @property
    def expected(self) -> float:
        """The truth that a larger run is planned for: the value where that is beyond the limit.

        Else it is drawn towards 0, as effects of half a limit are usual: a value that is hardly
        known would ask for many times what is needed, where by chance it lies near the limit. Half
        of the error that is left is added.
        """
        if self.beyond:
            return self.value
        usual = self.high / 2
        weight = self._weight(usual)
        size = max(self.value, 0.0) if math.isinf(self.low) else abs(self.value)
        return min(weight * size + usual * math.sqrt(1.0 - weight) / 2, _NEAREST * self.high)

    def _weight(self, usual: float) -> float:
        """Return the weight of an observed value where truths are Gaussian with a deviation."""
        square = usual**2
        return square / (square + self.like.error**2)

    @property
    def finds(self) -> float:
        """The smallest effect that nine of ten runs put outside."""
        return self._bound + self.like.upper_quantile(2 * SETTLED - 1) * self.like.error

    @property
    def shows(self) -> float | None:
        """The largest effect that nine of ten runs put inside; None: not even an effect of 0."""
        if self.shown_inside(0.0) < SETTLED:
            return None
        return _last(lambda truth: self.shown_inside(truth) >= SETTLED, 0.0, self.high)

    def factor(self, most: float = 0.0) -> float | None:
        """The times as many texts with which nine of ten runs settle the `expected` truth.

        None: no number of texts does, with `most` names.
        """

        def open_at(exponent: float) -> bool:
            larger = self.at(math.exp(exponent), most)
            shown = larger.shown_outside if self.beyond else larger.shown_inside
            return shown(truth) < SETTLED

        truth = self.expected
        if not open_at(0.0):
            return 1.0
        if open_at(math.log(_LARGEST)):
            return None
        return math.exp(_last(open_at, 0.0, math.log(_LARGEST)))


def _below(excess: float, estimate: Estimate) -> float:
    """The chance that an estimate lies less than `excess` above the truth."""
    if math.isinf(excess) or estimate.error == 0.0:
        return float(excess > 0)
    from scipy.special import stdtr  # slow to import, and a wrong request comes first

    return float(stdtr(estimate.freedom, excess / estimate.error))


def _last(holds: Callable[[float], bool], low: float, high: float) -> float:
    """Return where a condition that holds at `low` ends to hold."""
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return high


@dataclass(frozen=True, kw_only=True, slots=True)
class RatePrecision(Precision):
    """The precision of a difference of rates; outside, too, is for names like those read.

    Degrees of freedom are Satterthwaite's.
    """

    @property
    def these(self) -> Estimate:
        """The estimate for names like those that were read, which decides both ways."""
        return self.like

    @property
    def _freedom(self) -> float:
        variance = self.by_text + self.by_name
        part = self.by_name / variance if variance else 0.0
        return _satterthwaite(part, self.texts, self.names)


def _satterthwaite(by_name: float, texts: float, names: float) -> float:
    """Degrees of freedom where names, a sample, make a part of the variance."""
    inverse = (1.0 - by_name) ** 2 / max(texts - 1, 1.0) + by_name**2 / max(names - 1, 1.0)
    return 1.0 / inverse


def of_interval(
    value: float,
    limits: Interval,
    interval: Interval,
    items: float,
    names: tuple[float, float] = (math.inf, 0.0),
) -> Precision:
    """The precision of a difference of rates, from its interval at the level `INSIDE`.

    `names` are those of the side with fewer, and the part of the variance that names add.
    """
    number, part = names
    freedom = min(_satterthwaite(part, items, number), 1e9)
    wide = Estimate(difference=value, error=0.0, freedom=freedom).upper_quantile(INSIDE)
    square = ((interval[1] - interval[0]) / 2 / wide) ** 2
    return RatePrecision(
        value=value,
        low=limits[0],
        high=limits[1],
        texts=items,
        by_text=square * (1.0 - part),
        names=number,
        by_name=square * part,
    )


def of_plan(limit: float, texts: float, names: float, tested: int) -> Precision:
    """The precision of an effect in logits that a plan may expect, of so many texts and names."""
    return Precision(
        value=0.0,
        low=-limit,
        high=limit,
        texts=max(texts, 2.0),
        by_text=TEXT_SPREAD**2 / max(texts, 1.0),
        names=names,
        by_name=0.0 if math.isinf(names) else 2 * NAME_SPREAD**2 / max(names, 1.0),
        tested=tested,
    )


def of_rates(
    limit: float, own: float, other: float, names: float, tested: int, rate: float = 0.5
) -> Precision:
    """The precision of a difference of rates that a plan may expect, of so many items and names.

    An effect in logits moves a rate by at most that times the variance of one prediction.
    """
    alone = rate * (1 - rate)
    return RatePrecision(
        value=0.0,
        low=-limit,
        high=limit,
        texts=own + other,
        by_text=alone * (1 / max(own, 1.0) + 1 / max(other, 1.0)),
        names=names,
        by_name=0.0 if math.isinf(names) else 2 * (alone * NAME_SPREAD) ** 2 / max(names, 1.0),
        tested=tested,
    )
