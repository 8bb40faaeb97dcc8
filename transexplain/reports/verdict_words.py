"""A verdict in words for people who know no statistics: in probability and predictions changed."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from transexplain.analysis.groups.counterfactuals import Counterfactual
from transexplain.analysis.groups.group_cells import ALL_OTHERS
from transexplain.analysis.groups.group_verdicts import GroupVerdict, Mentioned, Outcomes
from transexplain.analysis.groups.measures import Measure, gravest
from transexplain.analysis.groups.verdict_sentences import in_stratum
from transexplain.reports.phrasing import counted, limit, measured, percent, signed, sureness
from transexplain.reports.sections.group_section import Groups


def mention_in_words(verdict: GroupVerdict) -> str:
    """Return what changing who is mentioned does: how much, how sure, and which size matters."""
    row = verdict.counterfactual
    measure = gravest(row.measures) if row else None
    if row is None or measure is None or not row.enough:
        return f"{verdict.group}: {'; '.join(verdict.mention_reasons)}."
    deed = f"{_deed(row)}{in_stratum(row.stratum)}"
    changes = f"{deed[0].upper()}{deed[1:]} {_moved(row)}"
    if row.changed_across is not None:
        changes += f" and changes {_changed(row, measure)}"
    return f"{changes}.{_decided_apart(row, measure)}"


def outcome_in_words(verdict: GroupVerdict) -> str:
    """Return how predictions or errors compare, how sure that is, and what explains it."""
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
    ends: dict[str, float] = {}
    for row in groups.counterfactuals:
        for measure in row.measures if not row.stratum else ():
            for end in measure.interval or ():
                ends[measure.name] = max(abs(end), ends.get(measure.name, 0.0))
    shown = {
        "probability": "moves the probability of a prediction by less than {:.1f} points",
        "changed": "changes less than {:.1f} % of predictions beyond those within a group",
    }
    texts = [text.format(100 * ends[name]) for name, text in shown.items() if name in ends]
    texts = texts or [f"moves the prediction by less than {ends.get('logit', math.nan):.2f}"]
    return f"with 90 % confidence, replacing it {' and '.join(texts)}."


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
    """The share of predictions changed, with that within a group."""
    text = f"{percent(row.changed_across or 0.0)} of predictions"
    if row.changed_within is not None:
        other = "when both are of one group" if row.kind == "swap" else "by hiding the other's"
        text += f", against {percent(row.changed_within)} {other}"
    return f"{text}{_sure(measure, 100.0, 1)}" if measure.name == "changed" else text


def _decided_apart(row: Counterfactual, measure: Measure) -> str:
    """Return what decided, where the sentence has not said it."""
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


@dataclass(frozen=True, kw_only=True, slots=True)
class VerdictChange:
    """The answers of both runs to both questions about one group; None: a run has no verdict."""

    group: str
    mention_before: Mentioned | None
    mention_after: Mentioned | None
    outcome_before: Outcomes | None
    outcome_after: Outcomes | None
    turned: bool  #: a difference in both runs, of the other sign

    @property
    def changed(self) -> bool:
        """Return whether either answer is another one."""
        before = self.mention_before, self.outcome_before
        return self.turned or before != (self.mention_after, self.outcome_after)


@dataclass(frozen=True, kw_only=True, slots=True)
class RateChange:
    """The rate of a prediction for the same items of one group, before and now."""

    group: str
    prediction: str
    items: int
    before: float  #: share of the items that were predicted so
    after: float
    whole: bool  #: items belong to the group as a whole, and do not mention it
    measure: Measure  #: the difference, paired by item, with the limit of rates


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """A question about one group that a run answers by a difference."""

    group: str
    question: Literal["mention", "outcome"]

    @property
    def sentence(self) -> str:
        """As it is answered."""
        return _ANSWERED[self.question]


#: question -> its answer where there is a difference
_DIFFERS: tuple[tuple[Literal["mention", "outcome"], str], ...] = (
    ("mention", "changes"),
    ("outcome", "differ"),
)
_ANSWERED = {"mention": "the mention changes the prediction", "outcome": "outcomes differ"}


def verdict_changes(
    before: Sequence[GroupVerdict], after: Sequence[GroupVerdict]
) -> tuple[VerdictChange, ...]:
    """A row for every group that either run has a verdict on, those of the later run first."""
    old, new = ({row.group: row for row in rows} for rows in (before, after))
    changes = []
    for group in dict.fromkeys([*new, *old]):
        was, now = old.get(group), new.get(group)
        changes.append(
            VerdictChange(
                group=group,
                mention_before=was.mention if was else None,
                mention_after=now.mention if now else None,
                outcome_before=was.outcome if was else None,
                outcome_after=now.outcome if now else None,
                turned=was is not None and now is not None and _turned(was, now),
            )
        )
    return tuple(changes)


def _turned(was: GroupVerdict, now: GroupVerdict) -> bool:
    """Return whether a difference of one prediction has the other sign now."""
    swaps = was.counterfactual, now.counterfactual
    if was.mention == now.mention == "changes" and all(swaps):
        old, new = ((row.prediction, row.stratum, row.effect) for row in swaps if row)
        if old[:2] == new[:2] and old[2] * new[2] < 0.0:
            return True
    rates = was.rates, now.rates
    if was.outcome == now.outcome == "differ" and all(rates):
        old, new = ((row.prediction, row.stratum, row.difference) for row in rates if row)
        return old[:2] == new[:2] and old[2] * new[2] < 0.0
    return False


def shown(changes: Sequence[VerdictChange], *, now: bool = True) -> list[Difference]:
    """Questions that the later run, or the earlier one, answers by a difference."""
    return _apart(changes, "after" if now else "before")


def newly(changes: Sequence[VerdictChange]) -> list[Difference]:
    """Questions that the later run answers by a difference, and the earlier did not."""
    return _apart(changes, "after", "before")


def gone(changes: Sequence[VerdictChange]) -> list[Difference]:
    """Questions that the earlier run answered by a difference, and the later does not."""
    return _apart(changes, "before", "after")


def _apart(
    changes: Sequence[VerdictChange], here: str, there: str | None = None
) -> list[Difference]:
    """Differences of one run that the other has not, or has with the other sign."""
    return [
        Difference(group=row.group, question=question)
        for row in changes
        for question, state in _DIFFERS
        if getattr(row, f"{question}_{here}") == state
        and (there is None or row.turned or getattr(row, f"{question}_{there}") != state)
    ]


def rate_sentence(row: RateChange) -> str:
    """The rate before and after, and how sure the change is; no full stop."""
    whose = "of" if row.whole else "that mention"
    few = "" if row.measure.interval else " (too few for an interval)"
    return (
        f"The model predicted {row.prediction} for {percent(row.before)} of "
        f"{counted(row.items, 'item')} {whose} {row.group}, and predicts it for "
        f"{percent(row.after)}: {difference_in_words(row.measure)}{few}"
    )


#: what the templates of changes since another run need: changed_rates and changed_verdicts
CHANGES: Mapping[str, Any] = {
    "rate_sentence": rate_sentence,
    "largest_first": lambda rows: sorted(rows, key=lambda row: -abs(row.measure.value)),
    "newly_shown": newly,
    "no_longer_shown": gone,
    "most_shown": 6,
}
