"""An evaluation as JSON, CSV and Markdown."""

import csv
import io
import json
from collections.abc import Iterator
from typing import Any

from transexplain.reports.escaping import markdown_text, spreadsheet_safe
from transexplain.reports.evaluation.html import BETTER
from transexplain.reports.evaluation.notes import baseline, notes
from transexplain.reports.evaluation.records import SCHEMA_VERSION, EvaluationSummary, Row, Table
from transexplain.reports.evaluation.wording import change, p_value, scale, span, value
from transexplain.reports.json_report import plain


def render_json(summary: EvaluationSummary) -> str:
    """`summary` as JSON text in ASCII: the keys are the fields of `records.EvaluationSummary`."""
    return json.dumps(plain(summary), indent=1, allow_nan=False) + "\n"


def schema() -> dict[str, Any]:
    """The JSON Schema that every evaluation's JSON satisfies."""
    from transexplain.reports.json_schema import schema_of

    return schema_of(EvaluationSummary, "evaluation", SCHEMA_VERSION)


def render_csv(summary: EvaluationSummary) -> str:
    """One line for each target, metric and method, with all its numbers in full."""
    out = io.StringIO()
    lines = [_cells(table, row) for table in summary.tables for row in table.rows]
    # an evaluation without scores still has its heading
    writer = csv.DictWriter(out, fieldnames=_COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(
        {name: spreadsheet_safe(cell) for name, cell in line.items()} for line in lines
    )
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


_COLUMNS = (
    "target",
    "metric",
    "method",
    "kind",
    "rank",
    "items",
    "missing",
    "mean",
    "low",
    "high",
    "best",
    "common_items",
    "difference",
    "difference_low",
    "difference_high",
    "p",
    "p_adjusted",
    "better",
    "unit",
    "baseline",
    "parameters",
    "missing_reasons",
)


def _cells(table: Table, row: Row) -> dict[str, Any]:
    low, high = row.interval or (None, None)
    versus = row.difference
    d_low, d_high = (versus.interval if versus else None) or (None, None)
    return {
        "target": table.target,
        "metric": table.metric,
        "method": row.method,
        "kind": row.kind,
        "rank": row.rank,
        "items": row.items,
        "missing": sum(row.missing.values()),
        "mean": row.mean,
        "low": low,
        "high": high,
        "best": table.best,
        "common_items": versus.items if versus else None,
        "difference": versus.mean if versus else None,
        "difference_low": d_low,
        "difference_high": d_high,
        "p": versus.p if versus else None,
        "p_adjusted": versus.p_adjusted if versus else None,
        "better": table.better,
        "unit": table.unit,
        "baseline": table.baseline,
        "parameters": json.dumps(plain(table.parameters)),
        "missing_reasons": json.dumps(dict(row.missing)) if row.missing else "",
    }


def _table(summary: EvaluationSummary, table: Table) -> Iterator[str]:
    size, modality = scale(table), summary.evaluated.modality
    hidden = f" Hidden positions: {baseline(table.baseline, modality)}." if table.baseline else ""
    yield f"## {markdown_text(table.title)}, {markdown_text(table.target)}"
    yield ""
    read = f"{BETTER[table.better]}, in {table.unit}; {table.source}."
    yield markdown_text(f"{read}{hidden}")
    yield ""
    yield "| Method | Mean | 95 % interval | Items | Missing | Difference to best | Adjusted p |"
    yield "|---|---:|---:|---:|---|---:|---:|"
    for row in table.rows:
        yield _line(row, size)
    yield ""


def _line(row: Row, size: float) -> str:
    versus = row.difference
    within = f" ({span(versus.interval, size)})" if versus and versus.interval else ""
    cells = (
        row.method,
        "" if row.mean is None else value(row.mean, size),
        span(row.interval, size),
        f"{row.items:,}",
        "; ".join(f"{count:,}: {reason}" for reason, count in row.missing.items()),
        change(versus.mean, size) + within if versus else "",
        p_value(versus),
    )
    return f"| {' | '.join(map(markdown_text, cells))} |"
