"""Writes a comparison of two runs as one HTML file and as JSON."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

from transexplain.analysis.groups.paired_runs import GroupShift
from transexplain.reports import forest
from transexplain.reports.page import page
from transexplain.reports.phrasing import class_phrase, things
from transexplain.reports.report_formats import plain
from transexplain.reports.runs_compared.comparison_headline import correlation, gone, newly
from transexplain.reports.runs_compared.comparison_records import (
    SCHEMA_VERSION,
    DriftSummary,
    GroupChanges,
    Transition,
)
from transexplain.types.findings import Decision, GroupStatistic


@dataclass(frozen=True, slots=True)
class ShiftTable:
    """The groups of one target and class, those that rose most first."""

    target: str
    class_name: str
    rows: tuple[tuple[GroupShift, GroupStatistic], ...]  #: the second is what is drawn
    axis: forest.Axis


def render(summary: DriftSummary) -> str:
    """One self-contained HTML page."""
    groups = summary.groups
    return page(
        "drift.html.j2",
        s=summary,
        tables=tuple(_tables(groups)) if groups else (),
        verdicts=_matrix(groups.transitions) if groups else (),
        moves=_moves(groups) if groups else (),
        correlation=correlation,
        noun=lambda count: things(summary.modality, count),
        class_phrase=lambda target, name: class_phrase(target, name, summary.classes),
    )


def _tables(groups: GroupChanges) -> Iterator[ShiftTable]:
    drawn = [(row, _drawn(row)) for row in groups.shifts]
    for key in dict.fromkeys((row.target, row.class_name) for row in groups.shifts):
        rows = [one for one in drawn if (one[0].target, one[0].class_name) == key]
        rows.sort(key=lambda one: (one[0].interval is None, -one[0].change, one[0].group))
        axis = forest.axis_of([one[1] for one in rows], groups.practical)
        yield ShiftTable(*key, tuple(rows), axis)


def _drawn(row: GroupShift) -> GroupStatistic:
    """The change as the forest plot takes it."""
    shown = GroupStatistic(
        group=row.group,
        target=row.target,
        class_name=row.class_name,
        mentions=row.mentions,
        documents=row.documents,
        entities=row.entities,
        mean=row.change,
        entity_mean=row.change,
        positive=0.0,
        interval=row.interval,
        reference=row.reference,
        difference=row.change,
        difference_interval=row.interval,
    )
    return replace(shown, verdict=row.verdict)


def _matrix(transitions: Sequence[Transition]) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """How many comparisons had which verdict before (rows) and after (columns)."""
    ends: list[Decision | None] = [*get_args(Decision), None]
    rows = [
        (
            was or "not mentioned",
            tuple(
                sum((one.before, one.after) == (was, now) for one in transitions) for now in ends
            ),
        )
        for was in ends
    ]
    return tuple(rows)


def _moves(groups: GroupChanges) -> tuple[Transition, ...]:
    """Comparisons that became or ceased to be a difference, then those that changed otherwise."""
    first = list(dict.fromkeys([*newly(groups), *gone(groups)]))
    rest = [one for one in groups.transitions if one.before != one.after and one not in first]
    return (*first, *rest)


def render_json(summary: DriftSummary) -> str:
    """`summary` as JSON text in ASCII; a number that is not finite is null."""
    return json.dumps(plain(summary), indent=1, allow_nan=False) + "\n"


def schema() -> dict[str, Any]:
    """The JSON Schema that every comparison satisfies."""
    from transexplain.reports.report_formats import schema_of

    return schema_of(DriftSummary, "comparison", SCHEMA_VERSION)
