"""The extremes of a report: what a gate asks for, and what `run_metric` holds of them."""

from collections.abc import Callable, Sequence

from transexplain.analysis.groups.counterfactuals import Counterfactual
from transexplain.analysis.groups.impact_ratios import ImpactRow
from transexplain.analysis.groups.measures import Measure
from transexplain.analysis.groups.outcomes import Outcome
from transexplain.reports.report_records import Summary
from transexplain.reports.sections.impact_by_category import impact_of
from transexplain.types.findings import GroupStatistic


def compared_rows(summary: Summary) -> list[GroupStatistic]:
    """The rows of the group table but for the reference's."""
    rows = summary.groups.rows if summary.groups else ()
    return [row for row in rows if row.group != row.reference]


def largest_difference(summary: Summary) -> GroupStatistic | None:
    """The comparison of relevance with the largest |difference|; None: there is none."""
    known = [row for row in compared_rows(summary) if row.difference is not None]
    return max(known, key=lambda row: abs(row.difference or 0.0), default=None)


def evenness(row: Outcome) -> float:
    """The smaller selection rate over the larger one; 1 where both are 0."""
    low, high = sorted((row.own.selected.share, row.other.selected.share))
    return low / high if high else 1.0


def outcomes_of(summary: Summary) -> Sequence[Outcome]:
    """The rates by group; nothing without groups."""
    return summary.groups.outcomes if summary.groups else ()


def most_uneven(summary: Summary) -> Outcome | None:
    """The favourable prediction with the least `evenness` among those of enough items."""
    judged = [row for row in outcomes_of(summary) if has_interval(row.measure("impact ratio"))]
    return min(judged, key=evenness, default=None)


def has_interval(measure: Measure | None) -> bool:
    """Whether a measure rests on enough texts or items for an interval."""
    return measure is not None and measure.interval is not None


def widest_rates(summary: Summary) -> tuple[Outcome, Measure] | None:
    """The widest difference of rates, of predictions or of errors, among those of enough items."""
    differences = (
        (row, measure)
        for row in outcomes_of(summary)
        for measure in row.measures
        if has_interval(measure) and measure.name != "impact ratio"
    )
    return max(differences, key=lambda pair: abs(pair[1].value), default=None)


def largest_swap(
    summary: Summary, size: Callable[[Counterfactual], float]
) -> Counterfactual | None:
    """The comparison by swaps (or regions) with the largest |size| among those of enough texts."""
    rows = summary.groups.counterfactuals if summary.groups else ()
    known = [row for row in rows if row.enough]
    return max(known, key=lambda row: abs(size(row)), default=None)


def changed(row: Counterfactual) -> float:
    """The share of predictions that swapping changes, less that within a group; 0: of a number."""
    measure = row.measure("changed")
    return measure.value if measure else 0.0


def only_scores(summary: Summary) -> bool:
    """Whether categories differ by scores alone: of a single class everybody is predicted to be."""
    return len(summary.audited.classes) == 1


def category_ratio(row: ImpactRow, *, scored: bool) -> tuple[float, int] | None:
    """A category's impact ratio and the items that were selected; None: the report has none."""
    value, count = (row.scoring_ratio, row.above) if scored else (row.ratio, row.selected)
    return None if value is None or count is None else (value, count)


COMPARED = 2  #: categories that a table needs to compare any


def lowest_category(summary: Summary) -> float | None:
    """The lowest impact ratio of any category of people; None: no table compares any."""
    found, scored = impact_of(summary), only_scores(summary)
    lowest: list[float] = []
    for answer in found.answers if found else ():
        for table in answer.tables:
            known = [one[0] for row in table.rows if (one := category_ratio(row, scored=scored))]
            lowest += known if len(known) >= COMPARED else []
    return min(lowest, default=None)


def unjudged(summary: Summary) -> list[str]:
    """Groups that are mentioned and that rates and swaps, or relevance, say nothing of."""
    if summary.groups is None:
        return []
    judged = {row.group for row in outcomes_of(summary) if any(map(has_interval, row.measures))}
    judged |= {row.group for row in summary.groups.counterfactuals if row.enough}
    names = [row.group for row in summary.groups.verdicts if row.group not in judged]
    few = {row.group for row in compared_rows(summary) if row.verdict != "suppressed"}
    names += [row.group for row in summary.groups.verdicts if row.group not in few]
    return list(dict.fromkeys(names))
