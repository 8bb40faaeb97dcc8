"""Perturbation curves: the model's logits while positions of an item are inserted or deleted.

Positions are ordered by relevance. At each of some shares the model reads the item with that part
present, and the curve of its answers is reduced to one number. Every protocol of this kind is a
`PerturbationCurve`; they differ in the order, in what is measured and in how it is reduced.
"""

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from transexplain.errors import ConfigurationError
from transexplain.evaluating.metrics.metric_table import Array, Masks, Scored, unmeasured

#: most relevant first, least relevant (most negative) first, smallest absolute value first
Order = Literal["most", "least", "smallest"]
#: what happens to the positions that are first in the order
Act = Literal["shown", "hidden"]
#: probability of the class; whether it is predicted; its probability's fall; squared change of
#: the logits, summed over the classes
Measure = Literal["probability", "kept", "fall", "squared-change"]
#: the class whose answers are measured: that which was explained, or that of the item's label
Of = Literal["explained", "label"]
#: `area`: under the curve by the trapezoidal rule, divided by its width; `mean`: of its points
Summary = Literal["area", "mean"]


@dataclass(frozen=True, kw_only=True, slots=True)
class PerturbationCurve:
    """One protocol; the first `share` of the positions in `order` is shown alone, or hidden."""

    order: Order
    act: Act
    shares: tuple[float, ...]
    measure: Measure
    summary: Summary = "area"
    baseline: str | int = "auto"  #: what stands in the place of what is hidden; methods.absence
    #: what is hidden as one: tokens, or patches of a picture; words; pixels of a picture
    over: Literal["tokens", "words", "pixels"] = "tokens"
    of: Of = "explained"

    def __post_init__(self) -> None:
        """Refuse a class that is none."""
        if self.of not in get_args(Of):
            known = " or ".join(map(repr, get_args(Of)))
            raise ConfigurationError(f"of is {known}, not {self.of!r}")

    def masks(self, relevance: Array) -> Masks:
        """(N, F) which of F positions are present at each of the N shares.

        Equal relevances keep their order. A share of F is rounded to the nearest number.
        """
        keys = {"most": -relevance, "least": relevance, "smallest": np.abs(relevance)}
        places = np.empty(len(relevance), dtype=np.intp)
        places[np.argsort(keys[self.order], kind="stable")] = np.arange(len(relevance))
        counts = [round(share * len(relevance)) for share in self.shares]
        first = places[None, :] < np.array(counts)[:, None]
        return first if self.act == "shown" else ~first

    def score(self, whole: Array, answers: Array, class_index: int) -> Scored:
        """The curve and its summary.

        Args:
            whole: (C,) logits of the item.
            answers: (N, C) logits at every share.
            class_index: the class that is measured.
        """
        points = _MEASURES[self.measure](whole, answers, class_index)
        value = points.mean() if self.summary == "mean" else self._area(points)
        return Scored(value=float(value), curve=tuple(points.tolist()))

    def _area(self, points: Array) -> float:
        width = self.shares[-1] - self.shares[0]
        return float(np.trapezoid(points, self.shares) / width)


def too_small(features: int) -> Scored | None:
    """Why an item of so few positions has no curve; None: it has one."""
    if features > 1:
        return None
    return unmeasured("one position: there is no order" if features else "no position of its own")


def evenly(steps: int, start: float = 0.0, stop: float = 1.0) -> tuple[float, ...]:
    """`steps` + 1 shares from `start` to `stop`; raises ConfigurationError below one step."""
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
        raise ConfigurationError(f"steps is a whole number of at least 1, not {steps!r}")
    return tuple(np.linspace(start, stop, steps + 1).round(12).tolist())


def probabilities(logits: Array) -> Array:
    """(N, C) softmax of logits; of one logit its sigmoid; what is a distribution stays as it is."""
    if logits.shape[-1] == 1:
        return np.asarray(1 / (1 + np.exp(-logits)))
    if (logits >= 0).all() and np.allclose(logits.sum(-1), 1, atol=1e-4):
        return logits
    from scipy.special import softmax  # slow to import, and a wrong request comes first

    return np.asarray(softmax(logits, axis=-1))


def _probability(_whole: Array, answers: Array, index: int) -> Array:
    return np.asarray(probabilities(answers)[:, index])


def _kept(_whole: Array, answers: Array, index: int) -> Array:
    return np.asarray((answers.argmax(-1) == index).astype(np.float64))


def _fall(whole: Array, answers: Array, index: int) -> Array:
    before = probabilities(whole[None])[0, index]
    return np.asarray(before - probabilities(answers)[:, index])


def _squared_change(whole: Array, answers: Array, _index: int) -> Array:
    return np.asarray(((answers - whole) ** 2).sum(-1))


_MEASURES = {
    "probability": _probability,
    "kept": _kept,
    "fall": _fall,
    "squared-change": _squared_change,
}
