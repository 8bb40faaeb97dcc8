"""What two runs say of the same groups: verdicts and rates of predictions, before and after."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from transexplain.analysis.groups.group_verdicts import GroupVerdict, Mentioned, Outcomes
from transexplain.analysis.groups.measures import Measure
from transexplain.reports.phrasing import counted, named, percent
from transexplain.reports.report_section import Statement
from transexplain.reports.verdict_words import difference_in_words


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
        """Whether either answer is another one."""
        before = self.mention_before, self.outcome_before
        return self.turned or before != (self.mention_after, self.outcome_after)


@dataclass(frozen=True, kw_only=True, slots=True)
class RateChange:
    """How often a prediction was and is made of the same items of one group."""

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


_ANSWERED = {"mention": "the mention changes the prediction", "outcome": "outcomes differ"}


def verdict_changes(
    before: Sequence[GroupVerdict], after: Sequence[GroupVerdict]
) -> tuple[VerdictChange, ...]:
    """A row for every group that either run has a verdict on, those of the later run first."""
    old, new = ({row.group: row for row in rows} for rows in (before, after))
    return tuple(
        _change(group, old.get(group), new.get(group)) for group in dict.fromkeys([*new, *old])
    )


def _change(group: str, was: GroupVerdict | None, now: GroupVerdict | None) -> VerdictChange:
    return VerdictChange(
        group=group,
        mention_before=was.mention if was else None,
        mention_after=now.mention if now else None,
        outcome_before=was.outcome if was else None,
        outcome_after=now.outcome if now else None,
        turned=was is not None and now is not None and _turned(was, now),
    )


def _turned(was: GroupVerdict, now: GroupVerdict) -> bool:
    """Whether a difference of one prediction has the other sign now."""
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
    return [
        Difference(group=row.group, question=question)
        for row in changes
        for question, differs in _differs(row, now=now).items()
        if differs
    ]


def newly(changes: Sequence[VerdictChange]) -> list[Difference]:
    """Questions that the later run answers by a difference, and the earlier did not."""
    return _but_for(shown(changes), shown(changes, now=False), changes)


def gone(changes: Sequence[VerdictChange]) -> list[Difference]:
    """Questions that the earlier run answered by a difference, and the later does not."""
    return _but_for(shown(changes, now=False), shown(changes), changes)


def _but_for(
    these: list[Difference], others: list[Difference], changes: Sequence[VerdictChange]
) -> list[Difference]:
    turned = {row.group for row in changes if row.turned}
    return [row for row in these if row not in others or row.group in turned]


def _differs(row: VerdictChange, *, now: bool) -> dict[Literal["mention", "outcome"], bool]:
    mention, outcome = row.mention_before, row.outcome_before
    if now:
        mention, outcome = row.mention_after, row.outcome_after
    return {"mention": mention == "changes", "outcome": outcome == "differ"}


def difference_statements(changes: Sequence[VerdictChange]) -> Iterator[Statement]:
    """Which differences are new and which are gone, in the words of the report."""
    for question, groups in _by_question(newly(changes)).items():
        text = f"Newly shown: {question} for {named(groups)}."
        yield Statement(kind="flagged", text=text)
    for question, groups in _by_question(gone(changes)).items():
        text = f"No longer shown: {question} for {named(groups)}."
        yield Statement(kind="fact", text=text)


def _by_question(rows: Sequence[Difference]) -> Mapping[str, list[str]]:
    found: dict[str, list[str]] = {}
    for row in rows:
        found.setdefault(row.sentence, []).append(row.group)
    return found


def rate_sentence(row: RateChange) -> str:
    """The rate before and after, and how sure the change is; no full stop."""
    whose = "of" if row.whole else "that mention"
    few = "" if row.measure.interval else " (too few for an interval)"
    return (
        f"The model predicted {row.prediction} for {percent(row.before)} of "
        f"{counted(row.items, 'item')} {whose} {row.group}, and predicts it for "
        f"{percent(row.after)}: {difference_in_words(row.measure)}{few}"
    )


_SHOWN = 6


def rate_statements(rows: Sequence[RateChange]) -> Iterator[Statement]:
    """The rates that changed, the largest change first; or that none did, or may have."""
    ordered = sorted(rows, key=lambda row: -abs(row.measure.value))
    moved = [row for row in ordered if row.measure.state == "outside"]
    for row in moved[:_SHOWN]:
        yield Statement(kind="flagged", text=f"{rate_sentence(row)}.")
    if len(moved) > _SHOWN:
        text = f"{len(moved) - _SHOWN} more rates of groups changed so; see the table."
        yield Statement(kind="flagged", text=text)
    opened = [row for row in ordered if row.measure.state == "open"]
    if rows and not opened and not moved:
        limit = f"{100 * rows[0].measure.high:g}"
        text = f"No rate of a prediction changed by more than {limit} points for any group."
        yield Statement(kind="clear", text=text)
    elif opened and not moved:
        names = named(list(dict.fromkeys(row.group for row in opened)))
        text = f"It is open whether rates of predictions changed for {names}. "
        yield Statement(kind="unknown", text=f"{text}{rate_sentence(opened[0])}.")
