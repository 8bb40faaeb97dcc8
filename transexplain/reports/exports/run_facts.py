"""The findings of a run, and what it did not test, in sentences for people outside the team."""

from collections.abc import Iterator, Mapping
from typing import Literal

from transexplain.analysis.groups.counterfactuals import Counterfactual
from transexplain.analysis.groups.group_verdicts import VerdictState
from transexplain.analysis.groups.intervals import wilson
from transexplain.analysis.groups.measures import Measure
from transexplain.analysis.groups.outcomes import Outcome, OutcomeSide
from transexplain.reports.page import paragraphs
from transexplain.reports.phrasing import (
    approximation_sentences,
    class_phrase,
    number,
    percent,
    probability,
    signed,
    things,
)
from transexplain.reports.report_records import Summary
from transexplain.reports.sections.audited_run import Audited
from transexplain.reports.sections.group_answers import (
    MENTION,
    OUTCOME,
    by_state,
    verdict_sentence,
)
from transexplain.reports.sections.group_section import Groups, control_sentences
from transexplain.reports.sections.mixed_section import mixture_sentence
from transexplain.types.findings import GroupStatistic


def compared(groups: Groups | None) -> list[GroupStatistic]:
    """The rows of the group table but for the reference's, the largest difference first."""
    rows = [row for row in groups.rows if row.group != row.reference] if groups else []
    return sorted(rows, key=lambda row: -abs(row.difference or 0.0))


def interval(ends: tuple[float, float] | None) -> str:
    """`-0.12 to 0.34`, or nothing."""
    return "" if ends is None else f"{number(ends[0])} to {number(ends[1])}"


def difference(row: GroupStatistic, audited: Audited) -> str:
    """One comparison that came out as a difference, with its numbers."""
    what = class_phrase(row.target, row.class_name, audited.classes)
    return (
        f"Mentions of {row.group} add {signed(row.difference or 0.0)} ({audited.unit}) to {what} "
        f"compared with {row.reference}; 95\u00a0% interval {interval(row.difference_interval)}, "
        f"adjusted {probability(row.adjusted_p)}, {row.entities:,} entities in {row.documents:,} "
        "items."
    )


def verdict_counts(groups: Groups | None) -> dict[VerdictState, int]:
    """State of a verdict -> number of groups."""
    return {state: len(rows) for state, rows in by_state(groups.verdicts).items()} if groups else {}


def state_counts(groups: Groups) -> Mapping[str, Mapping[str, int]]:
    """Question -> state -> number of groups."""
    rows = groups.verdicts
    return {
        "mention": {state: sum(row.mention == state for row in rows) for state in MENTION},
        "outcome": {state: sum(row.outcome == state for row in rows) for state in OUTCOME},
    }


def verdicts(groups: Groups | None, state: VerdictState) -> Iterator[str]:
    """The verdicts in this state in sentences, with their reasons."""
    return map(verdict_sentence, by_state(groups.verdicts)[state] if groups else ())


#: the question that a measure belongs to, the comparison that it is of, and the measure
Measured = tuple[Literal["mention", "outcome"], Counterfactual | Outcome, Measure]


#: column of the tables of measures -> field of a measure that is called otherwise
MEASURE_COLUMNS = {
    "measure": "name",
    "value_low": "interval_low",
    "value_high": "interval_high",
    "interval_level": "level",
    "limit_low": "low",
    "limit_high": "high",
}


def measures(groups: Groups | None) -> Iterator[Measured]:
    """Every measure of the verdicts, in the order of the report."""
    if groups is not None:
        for swap in groups.counterfactuals:
            yield from (("mention", swap, measure) for measure in swap.measures)
        for rates in groups.outcomes:
            yield from (("outcome", rates, measure) for measure in rates.measures)


def coverage(summary: Summary) -> str:
    """Return how many items the findings rest on."""
    counts, audited = summary.counts, summary.audited
    cut = f"; {counts.truncated:,} of them were cut" if counts.truncated else ""
    return (
        f"{counts.done:,} of {things(audited.modality, counts.total)} were explained{cut}; "
        f"{counts.failed:,} failed."
    )


def accuracy(summary: Summary) -> str | None:
    """Over all labelled items; None without labels."""
    counts = summary.counts
    if counts.accuracy is None:
        return None
    low, high = wilson(counts.correct, counts.labelled)
    return (
        f"Accuracy {counts.accuracy:.3f} ({counts.correct:,} of {counts.labelled:,} labelled "
        f"items; 95\u00a0% interval {low:.3f} to {high:.3f}, Wilson's)"
    )


def errors(groups: Groups | None) -> Iterator[str]:
    """Error rates over the items of each group and of its reference."""
    sides: dict[str, OutcomeSide] = {}
    for outcome in groups.outcomes if groups else ():
        if not outcome.stratum:
            sides.setdefault(outcome.reference, outcome.other)
            sides.setdefault(outcome.group, outcome.own)
    whole = {row.group for row in groups.outcomes if row.whole} if groups else set()
    for name, side in sides.items():
        if (rate := side.error) is not None:
            low, high = map(percent, rate.interval)
            yield (
                f"Items {'of' if name in whole else 'with'} {name}: error rate "
                f"{percent(rate.share)} ({rate.count:,} of {rate.total:,}; 95\u00a0% interval "
                f"{low} to {high})."
            )


def checks(summary: Summary) -> Iterator[str]:
    """Controls and quality of the explanations that the run measured."""
    lines = paragraphs(
        "checks.txt.j2",
        s=summary,
        approximation_sentences=approximation_sentences,
        mixture_sentence=mixture_sentence,
        controls=control_sentences(summary.groups) if summary.groups else (),
    )
    return filter(None, lines)


def redaction(summary: Summary) -> str | None:
    """Return what a redacted export has left out; None for one that is not."""
    if summary.fewest is None:
        return None
    return (
        "Redacted: ids, texts and messages of items are left out, and so are groups, rates and "
        f"counts behind which fewer than {summary.fewest} items stand."
    )


def untested(summary: Summary) -> Iterator[str]:
    """The limits of this run, and what an export left out of it."""
    sentence = redaction(summary)
    if sentence is not None:
        yield sentence
    for limit in summary.untested:
        yield f"{limit.what}: {limit.why}"
