"""The verb that compares two runs: what moved from one model version to the next."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli import options as opt
from transexplain.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.table import Table

    from transexplain.analysis.groups.paired_runs import GroupShift
    from transexplain.reports.runs_compared import DriftSummary
    from transexplain.store.database import Database

_PREVIOUS = "previous"
_ROWS = 30  # of a table in the terminal; the page has all


def compare(
    run_a: Annotated[
        str,
        typer.Argument(
            help="the earlier run: id, its beginning, or `previous`: the one that RUN_B names"
        ),
    ],
    run_b: Annotated[str, typer.Argument(help="the run that is compared with it")] = "latest",
    *,
    force: Annotated[
        bool, typer.Option("--force", help="compare although more than the model differs")
    ] = False,
    report_dir: Annotated[
        Path, typer.Option("--report-dir", help="where the report is written")
    ] = Path("audits"),
    json_: opt.AsJson = False,
    db: opt.DatabaseUrl = None,
) -> None:
    """Compare two runs over the same data, item by item and entity by entity."""
    from orchestrator.dispatch import finish
    from transexplain.reports.runs_compared import compare_runs
    from transexplain.reports.runs_compared.comparison_formats import render_json

    with opt.open_store(opt.settings_with(db)) as store:
        before = run_a if run_a != _PREVIOUS else _before(store, run_b)
        found = compare_runs(store, before, run_b, force=force)
    if json_:
        typer.echo(render_json(found), nl=False)
        return
    _print(found)
    finish.write_comparison(found, report_dir)


def _before(store: "Database", run_id: str) -> str:
    """The run that this one was made to be compared with."""
    from transexplain.store import runs

    found = runs.get(store, run_id)
    if found.previous is None:
        raise ConfigurationError(
            f"run {found.id} names no run before it; give the id of one, or run with --previous"
        )
    return found.previous


def _print(found: "DriftSummary") -> None:
    from rich.console import Console

    console = Console(highlight=False)
    console.print(_pairs(found))
    console.print(_classes(found))
    for table in _groups(found):
        console.print(table)
    left = len(found.groups.shifts) - _ROWS if found.groups else 0
    if left > 0:
        console.print(f"{left} more rows are in the report")


def _pairs(found: "DriftSummary") -> str:
    """How many items all rests on, and why others are left out."""
    predictions = found.predictions
    left = (
        (predictions.other_content, "left out: other content under the same id"),
        (predictions.unknown_content, "left out: contents not stored, so not compared"),
    )
    things = "item" if predictions.common == 1 else "items"
    parts = [f"{predictions.common:,} {things} in both", *(f"{n:,} {why}" for n, why in left if n)]
    return "; ".join(parts)


def _classes(found: "DriftSummary") -> "Table":
    from rich.table import Table
    from rich.text import Text

    table = Table("target", "class", title="explanations", title_justify="left")
    for name in ("pairs", "logit before", "after", "agreement", "of"):
        table.add_column(name, justify="right")
    for one in found.changes[:_ROWS]:
        table.add_row(
            Text(one.target),
            Text(one.class_name),
            f"{one.items:,}",
            f"{one.logit_before:+.3f}",
            f"{one.logit_after:+.3f}",
            "" if one.agreement is None else f"{one.agreement.mean:.3f}",
            "" if one.agreement is None else f"{one.agreement.items:,}",
        )
    return table


def _groups(found: "DriftSummary") -> "Iterator[Table]":
    """One table per target and class, of the groups that moved most."""
    if found.groups is None:
        return
    verdicts = {
        (one.target, one.class_name, one.group): _moved(one.before, one.after)
        for one in found.groups.transitions
    }
    shown = sorted(found.groups.shifts, key=lambda row: -abs(row.change))[:_ROWS]
    for key in dict.fromkeys((row.target, row.class_name) for row in shown):
        rows = [row for row in shown if (row.target, row.class_name) == key]
        yield _of_class(key, rows, [verdicts.get((*key, row.group), "reference") for row in rows])


def _of_class(
    key: tuple[str, str], rows: "Sequence[GroupShift]", verdicts: "Sequence[str]"
) -> "Table":
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    title = Text(f"groups, {key[0]}: {key[1]}")
    table = Table("group", title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in ("entities", "change", "p", "to reference", "p"):
        table.add_column(name, justify="right")
    table.add_column("verdict (moved)")
    for one, verdict in zip(rows, verdicts, strict=True):
        table.add_row(
            Text(one.group),
            f"{one.entities:,}",
            _number(one.change if one.interval else None, "+.3f"),
            _number(one.adjusted_p, ".3f"),
            _number(one.apart, "+.3f"),
            _number(one.apart_adjusted_p, ".3f"),
            Text(verdict),
            style="bold yellow" if "difference" in (one.verdict, one.apart_verdict) else None,
        )
    return table


def _moved(before: str | None, after: str | None) -> str:
    if before == after:
        return after or "-"
    return f"{before or '-'} → {after or '-'}"


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
