"""Rules that limit a measure of the verdicts: the same measures and intervals as in the report."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from transexplain.analysis.groups.counterfactuals import Counterfactual
from transexplain.analysis.groups.measures import Measure, MeasureName
from transexplain.analysis.groups.outcomes import Outcome
from transexplain.analysis.groups.verdict_sentences import WORDS, in_stratum, signed
from transexplain.reports.report_records import Summary

State = Literal["pass", "fail", "open"]


@dataclass(frozen=True, slots=True)
class MeasureRule:
    """The measures that a rule limits, and how their numbers are written."""

    names: tuple[MeasureName, ...]
    of: Literal["swaps", "rates"]
    unit: str
    scale: float = 1.0
    digits: int = 2


_POINTS = "points"
#: rule of a policy -> the measures that it limits
MEASURE_RULES: Mapping[str, MeasureRule] = {
    "max_rate_difference": MeasureRule(
        ("rate", "true positive rate", "false positive rate", "precision"),
        "rates",
        _POINTS,
        100.0,
        1,
    ),
    "min_impact_ratio": MeasureRule(("impact ratio",), "rates", ""),
    "max_swap_changed": MeasureRule(("changed",), "swaps", _POINTS, 100.0, 1),
    "max_swap_probability": MeasureRule(("probability",), "swaps", _POINTS, 100.0, 1),
    "max_swap_logit": MeasureRule(("logit",), "swaps", "logit"),
}


def state_of(measure: Measure, limit: float, *, stratum: bool = False) -> State:
    """*Fail* where the interval lies beyond the limit, *pass* where it lies within it.

    As in the report, a measure that is not outside its practical limit does not fail a rule that is
    no stricter, nor does a stratum leave a rule open unless it is doubtful.
    """
    low, high = -limit, limit
    if measure.name == "impact ratio":
        low, high = limit, 1 / limit if limit else math.inf
    elif math.isinf(measure.low):
        low = -math.inf
    stricter = high < measure.high
    if measure.interval is None:
        return "pass" if stratum else "open"
    lower, upper = measure.interval
    if (lower > high or upper < low) and (measure.state == "outside" or (stricter and not stratum)):
        return "fail"
    if (measure.state == "inside" and not stricter) or (low <= lower and upper <= high):
        return "pass"
    doubtful = measure.doubtful and not low <= measure.value <= high
    return "open" if doubtful or not stratum else "pass"


@dataclass(frozen=True, slots=True)
class Limited:
    """A measure of one comparison, held against the limit of a rule."""

    row: Counterfactual | Outcome
    measure: Measure
    limit: float

    @property
    def state(self) -> State:
        """Of the rule, by this measure."""
        return state_of(self.measure, self.limit, stratum=bool(self.row.stratum))

    @property
    def size(self) -> float:
        """How far from no difference, for the largest of several."""
        value = self.measure.value
        if self.measure.name == "impact ratio":
            return abs(math.log(value)) if value > 0 else math.inf
        return value if math.isinf(self.measure.low) else abs(value)

    def text(self, rule: MeasureRule) -> str:
        """The comparison with its number and interval."""
        measure, row = self.measure, self.row

        def written(value: float) -> str:
            shown = rule.scale * value
            if measure.name == "impact ratio":
                return "no limit" if math.isinf(shown) else f"{shown:.2f}"
            return signed(shown, rule.digits)

        what = "predictions changed" if measure.name == "changed" else measure.name
        deed = f"by {WORDS[row.kind].deed}, " if isinstance(row, Counterfactual) else ""
        unit = f" {rule.unit}" if rule.unit else ""
        where = in_stratum(row.stratum)
        interval = "too few for an interval"
        if measure.interval is not None:
            low, high = map(written, measure.interval)
            interval = f"{100 * measure.level:.4g} % {low} to {high}"
        of = "" if measure.name == "changed" else f" of {row.prediction}"
        return (
            f"{what}{of}, {deed}{row.group} against {row.reference}{where}: "
            f"{written(measure.value)}{unit} ({interval})"
        )


def limited(summary: Summary, rule: MeasureRule, limit: float) -> list[Limited]:
    """All measures that the rule limits, those that fail first, of these the largest."""
    groups = summary.groups
    rows: Sequence[Counterfactual | Outcome] = ()
    if groups is not None:
        rows = groups.counterfactuals if rule.of == "swaps" else groups.outcomes
    order = ("fail", "open", "pass")
    known = [Limited(row, measure, limit) for row, measure in _measures(rows, rule.names)]
    return sorted(known, key=lambda entry: (order.index(entry.state), -entry.size))


def _measures(
    rows: Sequence[Counterfactual | Outcome], names: Sequence[MeasureName]
) -> Iterator[tuple[Counterfactual | Outcome, Measure]]:
    for row in rows:
        for measure in row.measures:
            if measure.name in names:
                yield row, measure
