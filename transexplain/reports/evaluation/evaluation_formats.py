"""An evaluation as HTML, JSON, CSV and Markdown."""

import io
import json
from collections.abc import Iterator
from typing import Any

from markupsafe import Markup

from transexplain.evaluating.metrics.metric_table import Better
from transexplain.evaluating.metrics.token_overlap import LISTED
from transexplain.reports import charts
from transexplain.reports.charts import Series, Stroke, scatter_drawing, stroke
from transexplain.reports.evaluation.evaluation_tables import (
    baseline,
    correlation,
    notes,
    p_value,
    scale,
)
from transexplain.reports.evaluation.score_statistics import (
    FEWEST,
    SCHEMA_VERSION,
    EvaluationSummary,
    Row,
    ScoreTable,
)
from transexplain.reports.page import page
from transexplain.reports.phrasing import change, markdown_text, named, span, things, value
from transexplain.reports.report_formats import plain, schema_of
from transexplain.reports.sections.class_views import type_sizes
from transexplain.reports.tables import (
    Column,
    Columns,
    chosen,
    markdown_table,
    record_columns,
    write_csv,
)

BETTER: dict[Better, str] = {
    "higher": "Higher is better",
    "lower": "Lower is better",
    "neither": "Neither way is better",
}
_ARROWS: dict[Better, str] = {"higher": "↑", "lower": "↓", "neither": ""}

#: words of a class that a page shows; the JSON has all that are listed
_SHOWN_WORDS = 20

Ends = tuple[float, float]


def render(summary: EvaluationSummary) -> str:
    """One self-contained HTML page."""
    evaluated = summary.evaluated
    strokes = {label: place for place, label in enumerate(evaluated.methods)}
    drawings = {id(table): _chart(table, strokes) for table in summary.tables}
    scatters = {id(table): _scatters(table) for table in summary.tables}
    return page(
        "evaluation.html.j2",
        s=summary,
        e=evaluated,
        overviews=tuple(_overviews(summary)),
        notes=notes(summary),
        better=BETTER,
        arrows=_ARROWS,
        fewest=FEWEST,
        few=lambda table: named([row.method for row in table.rows if 0 < row.items < FEWEST]),
        scale=scale,
        p_value=p_value,
        correlation=correlation,
        strip=_strip,
        strip_ends=_ends,
        chart=lambda table: drawings[id(table)],
        scatters=lambda table: scatters[id(table)],
        shown=_SHOWN_WORDS,
        cloud=lambda words: sorted(
            zip(words.words, type_sizes(words.scores), words.scores, strict=True)
        ),
        listed=LISTED,
        scripts=charts.scripts() if any((*drawings.values(), *scatters.values())) else (),
        swatch=lambda row: _swatch(_stroke(row, strokes)),
        baseline=lambda name: baseline(name, evaluated.modality),
        noun=lambda count: things(evaluated.modality, count),
    )


def _overviews(summary: EvaluationSummary) -> Iterator[dict[str, Any]]:
    """All metrics of each target side by side: a row of tables' rows for each method."""
    for target in dict.fromkeys(table.target for table in summary.tables):
        tables = [table for table in summary.tables if table.target == target]
        scored = {(table.metric, row.method): row for table in tables for row in table.rows}
        measured = [method for _, method in scored]
        rows = [
            (label, [(table, scored.get((table.metric, label))) for table in tables])
            for label in dict.fromkeys([*summary.evaluated.methods, *measured])
            if label in measured
        ]
        if rows:
            yield {"target": target, "tables": tables, "rows": rows}


def _ends(table: ScoreTable) -> Ends:
    """The common range of the strips of a table's rows."""
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
    # per cent from the left, with room for a dot at both ends
    low, high, mean = (
        round(3 + 94 * (number - ends[0]) / (ends[1] - ends[0]), 1)
        for number in (*(row.interval or (row.mean, row.mean)), row.mean)
    )
    return Markup(
        '<svg class="fp" width="100%" height="26" aria-hidden="true">'
        '<line class="fp-interval" x1="{}%" x2="{}%" y1="13" y2="13"/>'
        '<circle class="fp-dot" cx="{}%" cy="13" r="4"/></svg>'
    ).format(low, high, mean)


def _chart(table: ScoreTable, strokes: dict[str, int]) -> charts.Drawing | None:
    """The mean curves of all methods; None where no curve has two points."""
    drawn = [row for row in table.rows if row.curve]
    if not drawn or len(table.x) < 2 or any(len(row.curve) != len(table.x) for row in drawn):
        return None
    series = [
        Series(x=table.x, y=row.curve, stroke=_stroke(row, strokes), name=row.method)
        for row in drawn
    ]
    return charts.line_drawing(
        series,
        x_title=table.axis,
        y_title=table.unit,
        label=f"{table.title}: mean curves of {len(series)} methods over {table.axis}; "
        "the table above has their summary.",
    )


def _scatters(table: ScoreTable) -> tuple[tuple[Row, charts.Drawing], ...]:
    """The pairs of every row that has some; empty for a table without."""
    if len(table.pair) != 2:
        return ()
    drawn = []
    for row in table.rows:
        drawing = scatter_drawing(
            row.points,
            titles=(table.pair[0], table.pair[1]),
            label=f"{table.title} of {row.method}: {table.pair[1]} over {table.pair[0]} of "
            f"{len(row.points)} items; on the dashed line both are equal.",
        )
        if drawing is not None:
            drawn.append((row, drawing))
    return tuple(drawn)


def _stroke(row: Row, strokes: dict[str, int]) -> Stroke:
    """The same for a method in every chart of the page."""
    kind = "method" if row.kind == "prediction" else row.kind
    return stroke(strokes.get(row.method, 0), kind)


def _swatch(look: Stroke) -> Markup:
    return Markup(
        '<svg class="swatch" viewBox="0 0 28 10" aria-hidden="true"><line x1="0" x2="28" y1="5" '
        'y2="5" stroke="{}" stroke-width="2" stroke-dasharray="{}"/></svg>'
    ).format(look.colour, " ".join(map(str, look.dash)))


def schema() -> dict[str, Any]:
    """The JSON Schema that every evaluation's JSON satisfies."""
    return schema_of(EvaluationSummary, "evaluation", SCHEMA_VERSION)


def render_csv(summary: EvaluationSummary) -> str:
    """One line for each target, metric and method, with all its numbers in full."""
    out = io.StringIO()
    rows = ((table, row) for table in summary.tables for row in table.rows)
    # an evaluation without scores still has its heading
    write_csv(out, _SCORES, rows, line_end="\n")
    return out.getvalue()


def render_markdown(summary: EvaluationSummary) -> str:
    """The sentences and one table for each target and metric."""
    evaluated = summary.evaluated
    return (
        "\n".join(
            [
                f"# {markdown_text(evaluated.name)}",
                "",
                f"Explanations of {markdown_text(evaluated.model)} on "
                f"{markdown_text(evaluated.dataset)}: "
                f"{evaluated.measured:,} of {evaluated.rows:,} items; targets "
                f"{markdown_text(', '.join(evaluated.targets))}.",
                "",
                *(f"- {markdown_text(line.text)}" for line in summary.headline),
                "",
                *(line for table in summary.tables for line in _table(summary, table)),
                "## How to read this",
                "",
                *(f"- {markdown_text(note)}" for note in notes(summary)),
            ]
        )
        + "\n"
    )


_Scored = tuple[ScoreTable, Row]


_SCORES: Columns[_Scored] = chosen(
    (
        *record_columns(ScoreTable, 0),
        *record_columns(Row, 1),
        Column("missing", lambda scored: sum(scored[1].missing.values())),
        Column("parameters", lambda scored: json.dumps(plain(scored[0].parameters))),
        Column(
            "missing_reasons",
            lambda scored: json.dumps(dict(scored[1].missing)) if scored[1].missing else "",
        ),
    ),
    "target metric method kind rank items missing mean low=interval_low high=interval_high "
    "draws=spread_draws sd_of_draws=spread_deviation best correlation "
    "common_items=difference_items difference=difference_mean "
    "difference_low=difference_interval_low difference_high=difference_interval_high "
    "p=difference_p p_adjusted=difference_p_adjusted better unit baseline parameters "
    "missing_reasons",
)


def _table(summary: EvaluationSummary, table: ScoreTable) -> Iterator[str]:
    size, modality = scale(table), summary.evaluated.modality
    hidden = f" Hidden positions: {baseline(table.baseline, modality)}." if table.baseline else ""
    yield f"## {markdown_text(table.title)}, {markdown_text(table.target)}"
    yield ""
    read = f"{BETTER[table.better]}, in {table.unit}; {table.source}."
    yield markdown_text(f"{read}{hidden}")
    yield ""
    columns = _method_columns(size)
    if not any(row.spread for row in table.rows):
        columns = (*columns[:3], *columns[4:])
    if table.pair:  # no row is compared with a best
        columns = (*columns[:-2], Column("Correlation", correlation, right=True))
    yield from markdown_table(columns, table.rows)
    yield ""
    for row in table.rows:
        yield from _words(row)


def _words(row: Row) -> Iterator[str]:
    """The words that a method lists for the classes, where the metric lists any."""
    if not row.lists:
        return
    yield f"Words of {markdown_text(row.method)}:"
    yield ""
    for items in row.lists:
        words = markdown_text(", ".join(items.words[:_SHOWN_WORDS]))
        yield f"- {markdown_text(items.class_name)}: {words}"
    for pair in row.shared:
        words = markdown_text(", ".join(pair.words)) or "none"
        both = markdown_text(" and ".join(pair.classes))
        yield f"- in the first {LISTED} of {both}: {words}"
    yield ""


def _method_columns(size: float) -> Columns[Row]:
    """Of the table of one metric, whose numbers have the decimals of `size`."""
    return (
        Column(
            "Method",
            lambda row: row.method + (f" (mean of {row.spread.draws} draws)" if row.spread else ""),
        ),
        Column("Mean", lambda row: "" if row.mean is None else value(row.mean, size), right=True),
        Column("95 % interval", lambda row: span(row.interval, size), right=True),
        Column(
            "SD of draws",
            lambda row: value(row.spread.deviation, size) if row.spread else "",
            right=True,
        ),
        Column("Items", lambda row: f"{row.items:,}", right=True),
        Column(
            "Missing",
            lambda row: "; ".join(f"{count:,}: {why}" for why, count in row.missing.items()),
        ),
        Column("Difference to best", lambda row: _to_best(row, size), right=True),
        Column("Adjusted p", lambda row: p_value(row.difference), right=True),
    )


def _to_best(row: Row, size: float) -> str:
    versus = row.difference
    if not versus:
        return ""
    within = f" ({span(versus.interval, size)})" if versus.interval else ""
    return change(versus.mean, size) + within
