"""The headline of a report, written by its sections, and the verdict in one sentence."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from transexplain.analysis.groups.group_verdicts import GroupVerdict
from transexplain.evaluating.metrics.class_sensitivity import HARDLY
from transexplain.reports.phrasing import named
from transexplain.reports.report_records import Summary
from transexplain.reports.report_section import Statement, StatementKind
from transexplain.reports.sections import SECTIONS
from transexplain.reports.sections.group_answers import by_state, hidden_parts
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
    gaps = list(caveats(summary))
    by = by_state(groups.verdicts)
    deed = _deed(groups)
    text = f"{_mention(groups.verdicts, deed)} {_outcome(groups.verdicts)}"
    if by["flagged"]:
        return "flagged", text
    if gaps:
        return "unknown", f"{text} It is not clear, though: {'; '.join(gaps)}."
    return ("unknown" if by["open"] else "clear"), text


def _mention(verdicts: Sequence[GroupVerdict], deed: str) -> str:
    """The answer to the first question: who, compared with whom, how much, how sure."""
    changing = [row for row in verdicts if row.mention == "changes"]
    if changing:
        return f"The mention changes the prediction for {_numbers(changing, _why_mention)}"
    opened = [row for row in verdicts if row.mention == "open"]
    if opened:
        settled = len(verdicts) - len(opened)
        rest = f" It does not for {settled} of {len(verdicts)}." if settled else ""
        why = _numbers(opened, _why_mention)
        return f"Whether the mention changes the prediction is open for {why}{rest}"
    worst = next(iter(sorted(verdicts, key=_moved)), None)
    figures = f": {worst.mention_reasons[0]}" if worst and worst.mention_reasons else ""
    who = f"any of {len(verdicts)} groups" if len(verdicts) > 1 else verdicts[0].group
    most = (
        f". The largest effect is that of {worst.group}{figures}"
        if len(verdicts) > 1 and worst
        else figures
    )
    return f"The mention of {who} does not change the prediction, by {deed}{most}."


def _outcome(verdicts: Sequence[GroupVerdict]) -> str:
    """The answer to the second question."""
    differing = [row for row in verdicts if row.outcome == "differ"]
    if differing:
        return f"Outcomes differ for {_numbers(differing, _why_outcome)}"
    opened = [row for row in verdicts if row.outcome == "open"]
    if opened:
        return (
            f"Whether outcomes differ is open for {_numbers(opened[:1], _why_outcome, len(opened))}"
        )
    return "Rates of predictions and errors do not differ."


def _why_mention(verdict: GroupVerdict) -> Sequence[str]:
    return verdict.mention_reasons[:1]


def _why_outcome(verdict: GroupVerdict) -> Sequence[str]:
    return (*verdict.outcome_reasons[:1], *verdict.notes[:1])


def _numbers(
    verdicts: Sequence[GroupVerdict],
    why: Callable[[GroupVerdict], Sequence[str]],
    total: int | None = None,
) -> str:
    """The groups, the first of them with their numbers."""
    shown = [
        f"{row.group} against {row.reference}: {'; '.join(why(row))}"
        for row in verdicts[:_WITH_NUMBERS]
    ]
    rest = [row.group for row in verdicts[_WITH_NUMBERS:]]
    more = (total or 0) - len(verdicts)
    also = f" So for {named(rest)}." if rest else f" So for {more} more." if more > 0 else ""
    return f"{'. '.join(shown)}.{also}"


def _moved(verdict: GroupVerdict) -> float:
    return -abs(verdict.counterfactual.probability) if verdict.counterfactual else 0.0


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
