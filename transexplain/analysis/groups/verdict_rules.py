"""Decides whether a comparison is a difference, equivalent or inconclusive, and adjusts its p for
all comparisons of its family.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from transexplain.analysis.groups.counterfactuals import Counterfactual, Kind
from transexplain.analysis.groups.intervals import Estimate, Interval
from transexplain.analysis.groups.outcomes import Outcome
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
    tested = [index for index, one in enumerate(p) if one is not None]
    if not tested:
        return list(p)
    values = _BY_NAME[how](np.array([p[index] for index in tested], dtype=np.float64))
    found: list[float | None] = [None] * len(p)
    for index, value in zip(tested, values, strict=True):
        found[index] = float(value)
    return found


def _holm(p: _P) -> _P:
    order = np.argsort(p, kind="stable")
    stepped = p[order] * np.arange(len(p), 0, -1)
    found = np.empty_like(p)
    found[order] = np.minimum(np.maximum.accumulate(stepped), 1.0)
    return found


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


@dataclass(frozen=True, kw_only=True, slots=True)
class Judged:
    """A verdict, with its reason in words."""

    verdict: Verdict
    reason: str


def judge(
    estimate: Estimate | None,
    p: float | None,
    practical: float,
    unit: str = "logit",
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
        reason = f"adjusted p {p:.2g}, and {size:.2g} {unit} exceeds {practical:g}"
        return Judged(verdict="difference", reason=reason)
    if estimate.inside(practical):
        reason = f"the 90 % interval lies within ±{practical:g} {unit}"
        return Judged(verdict="equivalent", reason=reason)
    if p <= ALPHA and size > practical and both is not None:
        lower, upper = both.interval()
        reason = (
            f"adjusted p {p:.2g} over entities, but the interval over entities and documents "
            f"[{lower:+.2g}, {upper:+.2g}] holds 0"
        )
    elif p <= ALPHA:
        reason = f"beyond chance (adjusted p {p:.2g}), but at most {practical:g} {unit}"
    else:
        found = estimate.detectable
        reason = f"adjusted p {p:.2g}; from {found:.2g} {unit} on it would probably have been found"
    return Judged(verdict="inconclusive", reason=reason)


def _holds_none(both: Estimate, difference: float) -> bool:
    """Whether the interval of `both` contains 0, or lies on the other side of it."""
    low, high = both.interval()
    return low <= 0.0 if difference > 0.0 else high >= 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Words:
    """The sentences about one kind of counterfactual."""

    deed: str  #: what was done to the group
    moves: str  #: the deed, and what it does
    may_move: str  #: the same in doubt
    itself: str  #: what is in question
    too_few: str
    none: str
    nothing: str  #: why, where other groups have some
    items: str
    named: str  #: what entities are
    against: str  #: what an effect is measured from; "": it is plain


def _of_hidden(part: str) -> Words:
    return Words(
        deed=f"hiding its {part}s",
        moves=f"hiding its {part}s shows that they move",
        may_move=f"hiding its {part}s suggests that they move",
        itself=f"the {part} itself",
        too_few=f"too few of its {part}s were hidden",
        none=f"none of its {part}s was hidden",
        nothing="none was drawn, or none of its reference",
        items="items",
        named="entities",
        against=" against its reference's",
    )


WORDS: Mapping[Kind, Words] = {
    "swap": Words(
        deed="swapping its mentions",
        moves="swapping its mentions moves",
        may_move="swapping its mentions may move",
        itself="the mention itself",
        too_few="too few mentions were swapped",
        none="no mention was swapped",
        nothing="no text has a mention that a name of its reference could replace",
        items="texts",
        named="names",
        against="",
    ),
    "region": _of_hidden("region"),
    "substructure": _of_hidden("substructure"),
}


def _flips_of(row: Counterfactual) -> str:
    """How often the prediction changes; empty where it is a number."""
    if row.flips is None:
        return ""
    if row.kind == "swap":
        return f"; {100 * row.flips:.0f} % of pairs of names are answered differently"
    return (
        f"; the prediction changes without {100 * row.flips:.0f} % of them and "
        f"{100 * (row.own_flips or 0.0):.0f} % of its reference's"
    )


def effect_of(row: Counterfactual, *, names: bool = False) -> str:
    """The size of an effect; with `names`, of the names that were read beside names like them."""
    words = WORDS[row.kind]
    like, these = _span(row.interval), _span(row.names_interval)
    sure = f"95 % {like}"
    if names and these != like:
        sure = f"95 % {these} for these names, {like} for names like them"
    return (
        f"by {signed(row.effect)} logit ({sure}), "
        f"{signed(100 * row.probability, 1)} points of probability{words.against}{_flips_of(row)}"
    )


def _span(interval: Interval | None) -> str:
    low, high = interval or (math.nan, math.nan)
    return f"{signed(low)} to {signed(high)}"


def in_stratum(stratum: str) -> str:
    """Where a finding holds, unless it is everywhere."""
    return f" in {stratum}" if stratum else ""


def rates(outcome: Outcome) -> str:
    """How often an answer is given where a group is mentioned, and where its reference is."""
    own, other = outcome.own.selected, outcome.other.selected
    text = _rates_of_answers(outcome) or (
        f"{outcome.answer} is the answer to {100 * own.share:.1f} % of {own.total:,} "
        f"{_counted(outcome)} and to {100 * other.share:.1f} % of "
        f"{other.total:,} {_noun(outcome, other.total)} of {outcome.reference}"
    )
    if outcome.impact_ratio is None or outcome.ratio_interval is None:
        return text
    low, high = outcome.ratio_interval
    upper = "no limit" if math.isinf(high) else f"{high:.2f}"
    return f"{text} (impact ratio {outcome.impact_ratio:.2f}, 95 % {low:.2f} to {upper})"


def _counted(outcome: Outcome) -> str:
    """What a rate is counted over, in the number of the total before it."""
    total = outcome.own.selected.total
    verb = "mentions" if total == 1 else "mention"
    return f"{_noun(outcome, total)}{in_stratum(outcome.stratum)} that {verb} it"


def _noun(outcome: Outcome, total: int) -> str:
    return outcome.counted.removesuffix("s") if total == 1 else outcome.counted


def _rates_of_answers(outcome: Outcome) -> str:
    """The same of answers to questions; "": the rates are of something else."""
    if outcome.counted != "answers":
        return ""
    own, other = outcome.own.selected, outcome.other.selected
    f1 = [one.probability.value for one in (outcome.own, outcome.other) if one.probability]
    return (
        f"answers are those of the data in {100 * own.share:.1f} % of {own.total:,} "
        f"items{in_stratum(outcome.stratum)} that mention it and in {100 * other.share:.1f} % of "
        f"{other.total:,} items of {outcome.reference}; "
        f"mean F1 {' and '.join(f'{x:.2f}' for x in f1)}"
    )


def signed(value: float, digits: int = 2) -> str:
    """With its sign, or 0 without one."""
    text = f"{value:+.{digits}f}"
    return text.strip("+-") if float(text) == 0.0 else text.replace("-", "\N{MINUS SIGN}")
