"""Who is mentioned, and whether it matters: the tables of the group section."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from transexplain.analysis.groups.entity_ranking import Ranking
from transexplain.analysis.groups.mention_ablation import AblationStatistic
from transexplain.analysis.groups.randomised_control import RandomisedRow
from transexplain.reports import controls, forest
from transexplain.reports.report_records import Groups
from transexplain.reports.report_section import Section
from transexplain.reports.sections.group_rules import RULES
from transexplain.types.findings import GroupStatistic


@dataclass(frozen=True, slots=True)
class GroupTable:
    """The comparisons for one target and class, strongest first."""

    target: str
    class_name: str
    rows: tuple[GroupStatistic, ...]
    flagged: int
    axis: forest.Axis


def _tables(groups: Groups) -> Iterator[GroupTable]:
    axes = {
        target: forest.axis_of([r for r in groups.rows if r.target == target], groups.practical)
        for target in dict.fromkeys(row.target for row in groups.rows)
    }
    for target, class_name in dict.fromkeys((r.target, r.class_name) for r in groups.rows):
        rows = [r for r in groups.rows if (r.target, r.class_name) == (target, class_name)]
        rows.sort(key=lambda r: (r.difference is None, -(r.difference or 0.0), r.group))
        flagged = sum(row.flagged for row in rows)
        yield GroupTable(target, class_name, tuple(rows), flagged, axes[target])


def _row_of(
    groups: Groups | None,
    check: AblationStatistic | RandomisedRow | GroupStatistic,
) -> GroupStatistic | None:
    key = (check.group, check.target, check.class_name)
    rows = groups.rows if groups else ()
    return next((one for one in rows if (one.group, one.target, one.class_name) == key), None)


def _ranking_axis(ranking: Ranking) -> forest.Axis:
    return forest.axis_around(end for one in ranking.entities for end in one.interval)


def _spread_axis(rows: Iterable[GroupStatistic]) -> forest.Axis:
    spreads = [row.quantiles for row in rows if row.quantiles]
    return forest.axis_around(end for one in spreads for end in (one.low, one.high))


def _drawing(report: Any) -> Mapping[str, Any]:
    groups: Groups | None = report.groups
    return {
        "tables": tuple(_tables(groups)) if groups else (),
        "spread_axis": _spread_axis,
        "ranking_axis": _ranking_axis,
        "row_of": lambda check: _row_of(groups, check),
        "controls": controls,
    }


SECTION = Section(
    template="groups.html.j2",
    links=(("groups", "Groups"),),
    redaction=RULES,
    present=lambda report: report.groups is not None,
    drawing=_drawing,
)
