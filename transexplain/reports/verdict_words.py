"""A verdict in words for people who know no statistics: in probability and predictions changed."""

import math
from collections.abc import Iterator

from transexplain.analysis.groups.counterfactuals import Counterfactual
from transexplain.analysis.groups.group_cells import ALL_OTHERS
from transexplain.analysis.groups.group_verdicts import GroupVerdict
from transexplain.analysis.groups.measures import Measure, MeasureName, gravest
from transexplain.analysis.groups.verdict_sentences import in_stratum
from transexplain.reports.phrasing import limit, measured, percent, signed, sureness
from transexplain.reports.sections.group_section import Groups


def mention_in_words(verdict: GroupVerdict) -> str:
    """What changing who is mentioned does: how much, how sure, and which size matters."""
    row = verdict.counterfactual
    measure = gravest(row.measures) if row else None
    if row is None or measure is None or not row.enough:
        return f"{verdict.group}: {'; '.join(verdict.mention_reasons)}."
    deed = f"{_deed(row)}{in_stratum(row.stratum)}"
    changes = f"{deed[0].upper()}{deed[1:]} {_moved(row)}"
    if row.changed_across is not None:
        changes += f" and changes {_changed(row, measure)}"
    return f"{changes}.{_apart(row, measure)}"


def outcome_in_words(verdict: GroupVerdict) -> str:
    """How predictions or errors compare, how sure that is, and what explains it."""
    row, text = verdict.rates, "; ".join(verdict.outcome_reasons[:1])
    measure = gravest(row.measures) if row else None
    if row is None or measure is None or measure.interval is None:
        return f"{verdict.group}: {text}."
    text = text.removeprefix("rates may differ: ").rsplit(" (", 1)[0]
    predicted = f"{row.prediction} is predicted for"
    if text.startswith(predicted):
        text = f"The model predicts {row.prediction} for{text.removeprefix(predicted)}"
    first = verdict.notes[:1] if verdict.outcome == "differ" else ()
    notes = "".join(f" {note[:1].upper()}{note[1:]}." for note in first)
    return f"{text}: {difference_in_words(measure)}.{notes}"


def difference_in_words(measure: Measure) -> str:
    """A difference of rates, or their ratio, with how sure it is and which size matters."""
    if measure.name == "impact ratio":
        return (
            f"an impact ratio of {measured(measure)} ({sureness(measure)}; {limit(measure)} is "
            "within limits)"
        )
    size = f"{100 * abs(measure.value):.1f}"
    more = "apart" if not float(size) else "more" if measure.value > 0 else "less"
    return f"{size} points {more}{_sure(measure, 100.0, 1)}"


def most_in_words(groups: Groups) -> str:
    """The most that swaps may do, by the ends of the intervals of all groups."""
    ends = dict(_ends(groups))
    shown = {
        "probability": "moves the probability of a prediction by less than {:.1f} points",
        "changed": "changes less than {:.1f} % of predictions beyond those within a group",
    }
    texts = [text.format(100 * ends[name]) for name, text in shown.items() if name in ends]
    texts = texts or [f"moves the prediction by less than {ends.get('logit', math.nan):.2f}"]
    return f"with 90 % confidence, replacing it {' and '.join(texts)}."


def _ends(groups: Groups) -> Iterator[tuple[MeasureName, float]]:
    """Every measure's end that is farthest from 0, over all texts."""
    names: tuple[MeasureName, ...] = ("logit", "probability", "changed")
    for name in names:
        rows = [row.measure(name) for row in groups.counterfactuals if not row.stratum]
        ends = [abs(end) for row in rows if row and row.interval for end in row.interval]
        if ends:
            yield name, max(ends)


def _deed(row: Counterfactual) -> str:
    if row.kind != "swap":
        return f"hiding a {row.kind} of {row.group}, and not one of {row.reference},"
    reference = "another group" if row.reference == ALL_OTHERS else row.reference
    return f"replacing a mention of {reference} by one of {row.group}"


def _moved(row: Counterfactual) -> str:
    """The mean change, with its interval and its limit; hiding takes away what there is."""
    sign = 1.0 if row.kind == "swap" else -1.0
    measure, scale, digits, unit = row.measure("probability"), 100.0, 1, " points"
    what = f"the probability of {row.prediction}"
    if measure is None:
        measure, scale, digits, unit = row.measure("logit"), 1.0, 2, ""
        what = row.prediction
    value = sign * scale * (measure.value if measure else row.effect)
    size = f"{abs(value):.{digits}f}"
    verb = "moves" if not float(size) else "raises" if value > 0 else "lowers"
    return f"{verb} {what} by {size}{unit}{_sure(measure, sign * scale, digits)}"


def _changed(row: Counterfactual, measure: Measure) -> str:
    """The share of predictions changed, beside that within a group."""
    text = f"{percent(row.changed_across or 0.0)} of predictions"
    if row.changed_within is not None:
        other = "when both are of one group" if row.kind == "swap" else "by hiding the other's"
        text += f", against {percent(row.changed_within)} {other}"
    return f"{text}{_sure(measure, 100.0, 1)}" if measure.name == "changed" else text


def _apart(row: Counterfactual, measure: Measure) -> str:
    """What decided, where the sentence has not said it."""
    moved = row.measure("probability")
    if measure.name == "spread":
        differs = "is not" if measure.state == "outside" else "may not be"
        return f" The effect {differs} the same in all texts."
    if measure.name == "logit" and moved is not None and moved.state != measure.state:
        return (
            f" In log-odds, which also show changes close to certainty, it is "
            f"{measured(measure)}; more than {measure.high:g} matters."
        )
    return ""


def _sure(measure: Measure | None, scale: float, digits: int) -> str:
    """The interval, as seen from the side of the value, with its level and the limit."""
    if measure is None or measure.interval is None:
        return ""
    side = math.copysign(scale, scale * measure.value) if measure.name != "changed" else scale
    low, high = sorted(side * end for end in measure.interval)
    ends = " to ".join(signed(end, digits).removeprefix("+") for end in (low, high))
    if measure.name == "changed":
        ends = f"at most {high:.{digits}f} more" if low <= 0 else f"{ends} more"
    return (
        f" ({ends} with {math.floor(100 * measure.level)} % confidence; more than "
        f"{abs(scale) * measure.high:g} matters)"
    )
