"""An evaluation as one HTML file that needs nothing but a browser: no network."""

from collections.abc import Iterator
from dataclasses import dataclass

from markupsafe import Markup

from transexplain.metrics.facts import Better
from transexplain.reports import live
from transexplain.reports.charts import Series, Stroke, stroke
from transexplain.reports.evaluation.notes import baseline, notes
from transexplain.reports.evaluation.records import EvaluationSummary, Row, Table
from transexplain.reports.evaluation.statistics import FEWEST
from transexplain.reports.evaluation.wording import p_value, scale
from transexplain.reports.page import page
from transexplain.reports.wording import named, things

BETTER: dict[Better, str] = {
    "higher": "Higher is better",
    "lower": "Lower is better",
    "neither": "Neither way is better",
}
_ARROWS: dict[Better, str] = {"higher": "↑", "lower": "↓", "neither": ""}

Ends = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Overview:
    """All metrics of one target side by side."""

    target: str
    tables: tuple[Table, ...]
    rows: tuple[tuple[str, tuple[tuple[Table, Row | None], ...]], ...]  #: label, cells


def render(summary: EvaluationSummary) -> str:
    """One self-contained HTML page."""
    evaluated = summary.evaluated
    strokes = {label: place for place, label in enumerate(evaluated.methods)}
    drawings = {id(table): _chart(table, strokes) for table in summary.tables}
    return page(
        "evaluation.html.j2",
        s=summary,
        e=evaluated,
        overviews=tuple(_overviews(summary)),
        notes=notes(summary),
        better=BETTER,
        arrows=_ARROWS,
        fewest=FEWEST,
        few=_few,
        scale=scale,
        p_value=p_value,
        strip=_strip,
        strip_ends=_ends,
        chart=lambda table: drawings[id(table)],
        scripts=live.scripts() if any(drawings.values()) else (),
        swatch=lambda row: _swatch(_stroke(row, strokes)),
        baseline=lambda name: baseline(name, evaluated.modality),
        noun=lambda count: things(evaluated.modality, count),
    )


def _overviews(summary: EvaluationSummary) -> Iterator[Overview]:
    for target in dict.fromkeys(one.target for one in summary.tables):
        tables = tuple(one for one in summary.tables if one.target == target)
        found = {(one.metric, row.method): row for one in tables for row in one.rows}
        measured = [method for _, method in found]
        labels = [
            x for x in dict.fromkeys([*summary.evaluated.methods, *measured]) if x in measured
        ]
        if labels:
            rows = [
                (label, tuple((table, found.get((table.metric, label))) for table in tables))
                for label in labels
            ]
            yield Overview(target, tables, tuple(rows))


def _few(table: Table) -> str:
    """The methods whose mean has no interval because of too few items."""
    return named([row.method for row in table.rows if 0 < row.items < FEWEST])


def _ends(table: Table) -> Ends:
    """What the strips of a table's rows run over, in common."""
    points = [
        end
        for row in table.rows
        if row.mean is not None
        for end in (row.mean, *(row.interval or ()))
    ]
    return (min(points), max(points)) if points else (0.0, 0.0)


def _strip(row: Row, ends: Ends) -> Markup:
    """A row's mean and interval as a dot on a line."""
    if row.mean is None or ends[0] == ends[1]:
        return Markup("")
    low, high = (_percent(end, ends) for end in row.interval or (row.mean, row.mean))
    return Markup(
        '<svg class="fp" width="100%" height="26" aria-hidden="true">'
        '<line class="fp-interval" x1="{}%" x2="{}%" y1="13" y2="13"/>'
        '<circle class="fp-dot" cx="{}%" cy="13" r="4"/></svg>'
    ).format(low, high, _percent(row.mean, ends))


def _percent(number: float, ends: Ends) -> float:
    """Percent from the left, with room for a dot at both ends."""
    return round(3 + 94 * (number - ends[0]) / (ends[1] - ends[0]), 1)


def _chart(table: Table, strokes: dict[str, int]) -> live.Drawing | None:
    """The mean curves of all methods; None where no curve has two points."""
    drawn = [row for row in table.rows if row.curve]
    if not drawn or len(table.x) < 2 or any(len(row.curve) != len(table.x) for row in drawn):
        return None
    series = [
        Series(x=table.x, y=row.curve, stroke=_stroke(row, strokes), name=row.method)
        for row in drawn
    ]
    return live.lines(
        series,
        x_title=table.axis,
        y_title=table.unit,
        label=f"{table.title}: mean curves of {len(series)} methods over {table.axis}; "
        "the table above has their summary.",
    )


def _stroke(row: Row, strokes: dict[str, int]) -> Stroke:
    """The same for a method in every chart of the page."""
    return stroke(strokes.get(row.method, 0), row.kind)


def _swatch(look: Stroke) -> Markup:
    return Markup(
        '<svg class="swatch" viewBox="0 0 28 10" aria-hidden="true"><line x1="0" x2="28" y1="5" '
        'y2="5" stroke="{}" stroke-width="2" stroke-dasharray="{}"/></svg>'
    ).format(look.colour, " ".join(map(str, look.dash)))
