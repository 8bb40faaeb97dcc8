"""Perturbation curves: the model's logits while positions of an item are inserted or deleted.

Positions are ordered by relevance. At each of some shares the model reads the item with that part
present, and the curve of its answers is reduced to one number. Every protocol of this kind is a
`PerturbationCurve`; they differ in the order, in what is measured and in how it is reduced.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, get_args

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
        points = self._points(whole, answers, class_index)
        width = self.shares[-1] - self.shares[0]
        area = self.summary == "area"
        value = np.trapezoid(points, self.shares) / width if area else points.mean()
        return Scored(value=float(value), curve=tuple(points.tolist()))

    def _points(self, whole: Array, answers: Array, index: int) -> Array:
        if self.measure == "kept":
            return np.asarray(answers.argmax(-1) == index, dtype=np.float64)
        if self.measure == "squared-change":
            return np.asarray(((answers - whole) ** 2).sum(-1))
        of_class = probabilities(answers)[:, index]
        before = probabilities(whole[None])[0, index]
        return np.asarray(before - of_class if self.measure == "fall" else of_class)


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


_shown = partial(PerturbationCurve, order="most", act="shown")
_hidden = partial(PerturbationCurve, order="most", act="hidden")


def activation(*, steps: int = 10, of: Of = "explained", **where: Any) -> PerturbationCurve:
    """AUAC: from nothing, the most relevant positions come first (Ali et al. 2022, section 6.2).

    Area under the probability of the explained class, or with `of="label"` of the label's class,
    the correct one, whatever was explained; higher is better.
    """
    return _shown(shares=evenly(steps), measure="probability", of=of, **where)


def auac(*, steps: int = 10, of: Of = "label", **where: Any) -> PerturbationCurve:
    """AUAC of the correct class, as the paper measures it (Ali et al. 2022, section 6.2).

    `activation`, but of the class of the item's label unless `of` says otherwise.
    """
    return activation(steps=steps, of=of, **where)


def pruning(*, steps: int = 10, **where: Any) -> PerturbationCurve:
    """AU-MSE: the positions of smallest |relevance| go first (Ali et al. 2022, section 6.2).

    Area under the squared change of the logits, summed over the classes; lower is better.
    """
    shares = evenly(steps)
    return PerturbationCurve(
        order="smallest", act="hidden", shares=shares, measure="squared-change", **where
    )


def hiding(*, shares: tuple[float, ...] = (0.1, 0.2, 0.3, 0.4, 0.5), **where: Any) -> Any:
    """The hiding game: the most relevant positions go (Hou and Castanon 2023, section 3.1).

    Mean probability of the explained class over the shares; lower is better.
    """
    return _hidden(shares=_checked(shares), measure="probability", summary="mean", **where)


def revealing(*, shares: tuple[float, ...] = (0.1, 0.2, 0.3, 0.4, 0.5), **where: Any) -> Any:
    """The revealing game: only the most relevant positions stay; higher is better.

    Hou and Castanon 2023, section 3.1; mean probability of the explained class over the shares.
    """
    return _shown(shares=_checked(shares), measure="probability", summary="mean", **where)


def hiding_accuracy(*, steps: int = 10, **where: Any) -> PerturbationCurve:
    """The hiding game by accuracy: 0 to 100 % of the tokens go, the most relevant first.

    Hou and Castanon 2023, section 3.1 and appendix A.1: area under how often the label's class is
    predicted; lower is better. There a hidden token is replaced by [MASK] and left out of
    attention, where it makes no difference what it is: that is `baseline="remove"`, the default.
    """
    where = {"baseline": "remove", **where}
    return _hidden(shares=evenly(steps), measure="kept", of="label", **where)


def revealing_accuracy(*, steps: int = 10, **where: Any) -> PerturbationCurve:
    """The revealing game by accuracy: 0 to 100 % of the tokens come, the most relevant first.

    As `hiding_accuracy`, from a text of which nothing is attended; higher is better.
    """
    where = {"baseline": "remove", **where}
    return _shown(shares=evenly(steps), measure="kept", of="label", **where)


def comprehensiveness(
    *, shares: tuple[float, ...] = (0.0, 0.01, 0.05, 0.1, 0.2, 0.5), **where: Any
) -> PerturbationCurve:
    """AOPC of p(x) - p(x without the rationale); higher is better (DeYoung et al. 2020, Eq. 1).

    Section 5 there: bins of the 1, 5, 10, 20 and 50 % of the tokens with most relevance, and 0,
    where the difference is 0.
    """
    return _hidden(shares=_checked(shares), measure="fall", summary="mean", **where)


def sufficiency(
    *, shares: tuple[float, ...] = (0.0, 0.01, 0.05, 0.1, 0.2, 0.5), **where: Any
) -> PerturbationCurve:
    """AOPC of p(x) - p(rationale alone); lower is better (DeYoung et al. 2020, Eq. 2).

    At share 0 the rationale is empty, as in the benchmark's own code.
    """
    return _shown(shares=_checked(shares), measure="fall", summary="mean", **where)


def positive_perturbation(*, steps: int = 8, **where: Any) -> PerturbationCurve:
    """The most relevant positions go first, 10 to 90 % (Chefer et al. 2021a, section 4).

    Area under how often the explained class is still predicted; lower is better.
    """
    shares = evenly(steps, 0.1, 0.9)
    return _hidden(shares=shares, measure="kept", **where)


def negative_perturbation(*, steps: int = 8, **where: Any) -> PerturbationCurve:
    """The least relevant positions go first, 10 to 90 % (Chefer et al. 2021a, section 4).

    Area under how often the explained class is still predicted; higher is better.
    """
    shares = evenly(steps, 0.1, 0.9)
    return PerturbationCurve(order="least", act="hidden", shares=shares, measure="kept", **where)


def positive_perturbation_accuracy(*, steps: int = 8, **where: Any) -> PerturbationCurve:
    """Top-1 accuracy while the most relevant pixels turn black (Chefer et al. 2021a, table 1).

    Area under how often the label's class is predicted with 10 to 90 % of the pixels black, those
    of highest relevance first; lower is better. The target says which class is explained: the
    predicted one or that of the label. Patches pass their relevance to pixels by bilinear
    interpolation (section 3 there); `over="tokens"` blackens whole patches.
    """
    where = {"baseline": "black", "over": "pixels", **where}
    shares = evenly(steps, 0.1, 0.9)
    return _hidden(shares=shares, measure="kept", of="label", **where)


def negative_perturbation_accuracy(*, steps: int = 8, **where: Any) -> PerturbationCurve:
    """Top-1 accuracy while the least relevant pixels turn black (Chefer et al. 2021a, table 1).

    As `positive_perturbation_accuracy`, those of lowest relevance first; higher is better.
    """
    where = {"baseline": "black", "over": "pixels", **where}
    shares = evenly(steps, 0.1, 0.9)
    return PerturbationCurve(
        order="least", act="hidden", shares=shares, measure="kept", of="label", **where
    )


def insertion(*, steps: int = 20, **where: Any) -> PerturbationCurve:
    """Area under the probability as positions are inserted; higher is better.

    Petsiuk et al. 2018, section 3.3, who insert into a blurred picture: `baseline="blur"` here.
    """
    shares = evenly(steps)
    where = {"baseline": "blur", **where}
    return _shown(shares=shares, measure="probability", **where)


def deletion(*, steps: int = 20, **where: Any) -> PerturbationCurve:
    """Area under the probability as positions are deleted; lower is better.

    Petsiuk et al. 2018, section 3.3.
    """
    return _hidden(shares=evenly(steps), measure="probability", **where)


def fidelity(*, share: float = 0.2, **where: Any) -> PerturbationCurve:
    """Whether the prediction stays when only the most relevant fifth is shown; higher is better.

    The paper of TransExplain, section 4.2, calls the agreement of the model's decision on the
    explanation with its decision on the input fidelity and gives no formula; this is ours.
    """
    return _shown(shares=_checked((share,)), measure="kept", summary="mean", **where)


def _checked(shares: Any) -> tuple[float, ...]:
    """Shares of the positions, ascending; raises ConfigurationError."""
    try:
        numbers = tuple(float(share) for share in shares)
    except (TypeError, ValueError):
        numbers = ()
    if not numbers or list(numbers) != sorted(numbers) or not 0 <= numbers[0] <= numbers[-1] <= 1:
        raise ConfigurationError(f"shares={shares!r} must be numbers from 0 to 1, ascending")
    return numbers
