"""The headline of a report, written by its sections, and the verdict in one sentence."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from transexplain.analysis.groups.group_verdicts import GroupFinding, GroupVerdict
from transexplain.evaluating.metrics.class_sensitivity import HARDLY
from transexplain.reports.phrasing import named
from transexplain.reports.report_records import Summary
from transexplain.reports.report_section import Statement, StatementKind
from transexplain.reports.sections import SECTIONS
from transexplain.reports.sections.group_answers import by_verdict, hidden_parts
from transexplain.reports.sections.group_section import Groups
from transexplain.reports.sections.mixed_section import mixture_sentence
from transexplain.reports.sections.unreadable_items import damage
from transexplain.reports.sections.untested import untested

#: sections whose sentences open the headline, in this order; the others follow as on the page
_FIRST = ("unreadable", "data", "groups", "evidence", "previous")


def with_sentences(summary: Summary) -> Summary:
    """`summary` with its headline, its verdict and what was not tested, made of its numbers."""
    names = (*_FIRST, *(name for name in SECTIONS if name not in _FIRST))
    lines = (one for name in names for one in SECTIONS.load(name).sentences(summary))
    return replace(
        summary, headline=tuple(lines), verdict=verdict(summary), untested=untested(summary)
    )


#: shares of the items above which a verdict without them cannot be *clear*
_FAILED, _CUT = 0.02, 0.05
_WITH_NUMBERS = 2  #: verdicts that the sentence gives the numbers of


def verdict(summary: Summary) -> Statement:
    """The verdict in one sentence, for those who read nothing else."""
    if not summary.counts.done:
        return Statement(kind="unknown", text="Nothing was explained, so there is no result.")
    doubts = " ".join(_doubts(summary))
    kind, found = _found(summary)
    if mixed := mixture_sentence(summary.mixed):
        found = f"{found} {mixed}"
    elif summary.approximates is not None:
        teacher = summary.approximates.teacher
        found = f"{found} Relevance was predicted by an explainer, which approximates {teacher}."
    so_far = "So far: " if summary.counts.pending else ""
    if not doubts:
        return Statement(kind=kind, text=f"{so_far}{found}")
    return Statement(kind="problem", text=f"{doubts} {so_far}{found}")


def _doubts(summary: Summary) -> Iterator[str]:
    if lost := damage(summary.sections.get("unreadable")):
        yield lost
    conservation, sensitivity = summary.conservation, summary.class_sensitivity
    if conservation is not None and conservation.above:
        yield "Do not rely on this audit: the ledgers of its explanations do not close."
    if sensitivity is not None and sensitivity.mean < HARDLY:
        yield f"Read with care: {summary.audited.method} hardly distinguishes classes here."
    judged = [row.beats for row in summary.faithfulness.rows] if summary.faithfulness else []
    if False in judged and True not in judged:
        yield f"Read with care: {summary.audited.method} does not beat a random ranking here."


def _found(summary: Summary) -> tuple[StatementKind, str]:
    groups = summary.groups
    if groups is None:
        return "fact", "Below is what each class looks at; no groups were given."
    if not groups.verdicts:
        return "unknown", "No group could be compared: too few items mention any."
    by = by_verdict(groups.verdicts)
    total = len(groups.verdicts)
    if by["different answers"] or by["different outcomes"]:
        return "flagged", " ".join(_different(by, total))
    gaps = list(caveats(summary))
    if by["inconclusive"]:
        rest = total - len(by["inconclusive"])
        equal = f" {rest} {'is' if rest == 1 else 'are'} equivalent." if rest else ""
        share, why = _share(by["inconclusive"], total), _why_inconclusive(by["inconclusive"])
        return "unknown", f"Inconclusive for {share}{why}.{equal}"
    answers = (
        "gets the same answers as its reference"
        if total == 1
        else ("get the same answers as their references")
    )
    who = "The group" if total == 1 else f"All {total} groups"
    text = f"{who} {answers}, within practical limits: by {_deed(groups)} and by rates."
    if gaps:
        return "unknown", f"{text} It is not clear, though: {'; '.join(gaps)}."
    if by["explained differently"]:
        names = named([one.group for one in by["explained differently"]])
        return "fact", f"{text} Explained differently, which does no harm by itself: {names}."
    return "clear", text


def _deed(groups: Groups) -> str:
    hidden = hidden_parts(groups.counterfactuals)
    return f"hiding {hidden}" if hidden else "swapping mentions"


def caveats(summary: Summary) -> Iterator[str]:
    """The reasons why a verdict is not *clear* although no comparison differs."""
    counts, groups = summary.counts, summary.groups
    if counts.done < (1 - _FAILED) * counts.total:
        yield f"{counts.total - counts.done:,} of {counts.total:,} items have no answer"
    if counts.done and counts.truncated > _CUT * counts.done:
        yield f"{counts.truncated:,} of {counts.done:,} items were cut before their end"
    for one in groups.verdicts if groups else ():
        for gap in one.missing:
            yield f"{one.group}: {gap}"


def _different(by: dict[GroupFinding, list[GroupVerdict]], total: int) -> Iterator[str]:
    words: tuple[GroupFinding, ...] = ("different answers", "different outcomes")
    for word in words:
        found = by[word]
        if len(found) == 1:
            yield f"{word.capitalize()} for {_share(found, total)}: {found[0].reasons[0]}."
        elif found:
            shown = "; ".join(f"{one.group}: {one.reasons[0]}" for one in found[:_WITH_NUMBERS])
            yield f"{word.capitalize()} for {_share(found, total)}. {shown}."
    if by["inconclusive"]:
        yield f"Inconclusive: {named([one.group for one in by['inconclusive']])}."


def _share(found: Sequence[GroupVerdict], total: int) -> str:
    names = named([one.group for one in found])
    return f"{len(found)} of {total} groups ({names})" if total > 1 else names


def _why_inconclusive(found: Sequence[GroupVerdict]) -> str:
    """The reasons of one group, if possible one that items of its own mention."""
    first = next((one for one in found if one.outcome is not None), found[0])
    reasons = "; ".join(first.reasons[:2])
    return f": {reasons}" if len(found) == 1 else f". {first.group}: {reasons}"
