"""Limits of a run: what it did not test, why, and how to test it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from transexplain.analysis.groups.group_verdicts import GroupVerdict
from transexplain.reports import phrasing
from transexplain.reports.page import text_rows
from transexplain.reports.redaction import empty, published
from transexplain.reports.report_section import Section
from transexplain.reports.sections.group_answers import hidden_parts
from transexplain.reports.sections.group_section import Groups
from transexplain.types.plans import AT_POSITIONS, GENERATED


@dataclass(frozen=True, kw_only=True, slots=True)
class Untested:
    """Something that nobody may conclude from a run."""

    what: str
    why: str
    remedy: str  #: how to test it; "": this software cannot


def untested(summary: Any) -> tuple[Untested, ...]:
    """The list, from the limits of every audit to what this one did not measure."""
    groups: Groups | None = summary.groups
    rows = text_rows(
        "untested.txt.j2",
        s=summary,
        audited=summary.audited,
        counts=summary.counts,
        groups=groups,
        unseen=_unseen(summary),
        short=phrasing.short,
        nearness=phrasing.nearness,
        sampled=phrasing.sampled,
        at_positions=AT_POSITIONS,
        generated=GENERATED,
        **(_open_questions(groups) if groups else {}),
    )
    return tuple(Untested(what=what, why=why, remedy=remedy) for what, why, remedy in rows)


def _unseen(summary: Any) -> list[str]:
    """The classes that nothing was explained for."""
    classes: Sequence[str] = summary.audited.classes
    shown: set[str] = set()
    for view in summary.classes:
        both = phrasing.class_phrase(view.target, view.class_name, classes).split(" over ")
        shown.update(both if set(both) <= set(classes) else (view.class_name,))
    return [name for name in classes if name not in shown] if shown <= set(classes) else []


def _open_questions(groups: Groups) -> Mapping[str, Any]:
    mention = [row for row in groups.verdicts if row.mention == "open"]
    outcome = [row for row in groups.verdicts if row.outcome == "open" and row.rates]
    seldom = {row.group for row in groups.rows}
    seldom -= {row.group for row in groups.rows if row.verdict != "suppressed"}
    return {
        "swapped": [row.group for row in mention if row.counterfactual is not None],
        "mention_advice": _advice(mention, "mention_advice"),
        "hidden": hidden_parts(groups.counterfactuals),
        "outcome": [row.group for row in outcome],
        "outcome_advice": _advice(outcome, "outcome_advice"),
        "seldom": sorted(seldom - {row.reference for row in groups.rows}),
    }


_ADVISED = 3  #: groups


def _advice(verdicts: Sequence[GroupVerdict], field: str) -> str:
    """Return what would settle a question for the first groups."""
    known = [row for row in verdicts if getattr(row, field)][:_ADVISED]
    names = len(verdicts) > 1
    return " ".join(f"{row.group}: " * names + getattr(row, field) for row in known)


SECTION = Section(
    template="scope.html.j2",
    links=(("untested", "Not tested"),),
    redaction={Untested: published("what why remedy")},
    of_summary={"untested": empty(())},  # the list is made from the redacted summary
)
