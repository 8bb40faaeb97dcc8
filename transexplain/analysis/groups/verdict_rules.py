"""Decides whether relevance differs, is equivalent or inconclusive, and adjusts p-values."""

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from transexplain.analysis.groups.intervals import Estimate
from transexplain.errors import ConfigurationError
from transexplain.types.findings import Correction, Verdict

CORRECTIONS: tuple[Correction, ...] = get_args(Correction)
_P = NDArray[np.float64]


def adjusted(p: Sequence[float | None], how: Correction = "bh") -> list[float | None]:
    """Adjusted p-values of one family, in its order; None, which is no test, stays None.

    `bh` (Benjamini and Hochberg 1995) and `by` (Benjamini and Yekutieli 2001, for any dependence)
    hold the expected share of false discoveries, `holm` (1979) the chance of a single one.
    Raises ConfigurationError for any other name.
    """
    if how not in CORRECTIONS:
        raise ConfigurationError(f"correction {how!r} is none of {', '.join(CORRECTIONS)}")
    tested = [index for index, value_of_test in enumerate(p) if value_of_test is not None]
    if not tested:
        return list(p)
    values = _BY_NAME[how](np.array([p[index] for index in tested], dtype=np.float64))
    p_values: list[float | None] = [None] * len(p)
    for index, value in zip(tested, values, strict=True):
        p_values[index] = float(value)
    return p_values


def _holm(p: _P) -> _P:
    order = np.argsort(p, kind="stable")
    stepped = p[order] * np.arange(len(p), 0, -1)
    p_values = np.empty_like(p)
    p_values[order] = np.minimum(np.maximum.accumulate(stepped), 1.0)
    return p_values


def _step_up(p: _P, how: Literal["bh", "by"]) -> _P:
    from scipy.stats import false_discovery_control  # 70 MB that a server of pages does without

    return false_discovery_control(p, method=how)


_BY_NAME: dict[str, Callable[[_P], _P]] = {
    "bh": lambda p: _step_up(p, "bh"),
    "by": lambda p: _step_up(p, "by"),
    "holm": _holm,
    "none": lambda p: p,
}


ALPHA = 0.05


class Judged(NamedTuple):
    """A verdict, with its reason in words."""

    verdict: Verdict
    reason: str


def judge(
    estimate: Estimate | None,
    p: float | None,
    practical: float,
    both: Estimate | None = None,
) -> Judged:
    """The verdict on one comparison.

    *difference*: the adjusted `p` is at most 5 %, the difference exceeds `practical`, and so does 0
    lie outside the interval of `both`, over entities and documents, where there is one.
    *equivalent*: the 90 % interval lies within +-`practical` and does not reach it, which is two
    one-sided tests at 5 % (Schuirmann 1987). *inconclusive*: neither. *suppressed*: too few
    entities (`estimate` None).
    """
    if estimate is None or p is None:
        return Judged(verdict="suppressed", reason="too few entities to compare")
    size = abs(estimate.difference)
    vetoed = both is not None and _holds_none(both, estimate.difference)
    if p <= ALPHA and size > practical and not vetoed:
        reason = f"adjusted p {p:.2g}, and {size:.2g} logit exceeds {practical:g}"
        return Judged(verdict="difference", reason=reason)
    if estimate.inside(practical):
        reason = f"the 90 % interval lies within ±{practical:g} logit"
        return Judged(verdict="equivalent", reason=reason)
    if p <= ALPHA and size > practical and both is not None:
        lower, upper = both.interval()
        reason = (
            f"adjusted p {p:.2g} over entities, but the interval over entities and documents "
            f"[{lower:+.2g}, {upper:+.2g}] holds 0"
        )
    elif p <= ALPHA:
        reason = f"beyond chance (adjusted p {p:.2g}), but at most {practical:g} logit"
    else:
        detectable = estimate.detectable
        reason = (
            f"adjusted p {p:.2g}; from {detectable:.2g} logit on it would probably have been found"
        )
    return Judged(verdict="inconclusive", reason=reason)


def _holds_none(both: Estimate, difference: float) -> bool:
    """Return whether the interval of `both` contains 0, or lies on the other side of it."""
    low, high = both.interval()
    return low <= 0.0 if difference > 0.0 else high >= 0.0
