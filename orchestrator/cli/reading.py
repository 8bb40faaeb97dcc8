"""Verbs that read the store: status, report."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli import options as opt

if TYPE_CHECKING:
    from transexplain.store.records import RunProgress


def register(app: typer.Typer) -> None:
    """Add this module's verbs."""
    app.command()(status)
    app.command()(report)


def status(
    run_id: Annotated[str | None, typer.Argument(help="run id or `latest`; default: all")] = None,
    *,
    json_: opt.AsJson = False,
    db: opt.DatabaseUrl = None,
) -> None:
    """Show how far runs are."""
    from transexplain.store import runs, shards

    with opt.open_store(opt.settings_with(db)) as store:
        found = [runs.get(store, run_id)] if run_id else runs.list_runs(store)
        states = [runs.progress(store, one.id) for one in found]
        unwell = [
            entry
            for one in (found if run_id else ())
            for entry in shards.list_shards(store, one.id)
            if entry.error or entry.state == "dead"
        ]
    if json_:
        typer.echo(json.dumps([asdict(state) for state in states], indent=2))
        return
    for state in states:
        typer.echo(_line(state))
    for entry in unwell:
        typer.echo(
            f"  shard {entry.shard.index} {entry.state} after {entry.attempt} attempts: "
            f"{entry.error}"
        )


def _line(state: "RunProgress") -> str:
    finished = state.items_done + state.items_failed
    counts = ", ".join(f"{count} {name}" for name, count in state.states.items() if count)
    rate = finished / state.elapsed if state.elapsed else 0.0
    return (
        f"{state.run_id}  {state.name}  {state.state}  {finished}/{state.items_total} items "
        f"({state.items_failed} failed)  {rate:.1f} items/s  shards: {counts}"
    )


def report(
    run_id: opt.RunId = "latest",
    *,
    report_dir: Annotated[
        Path, typer.Option("--report-dir", help="where the files are written")
    ] = Path("audits"),
    json_: opt.AsJson = False,
    db: opt.DatabaseUrl = None,
) -> None:
    """Write the report of a run again (HTML and JSON), or print it as JSON."""
    from orchestrator.finish import print_summary, write_reports
    from transexplain.reports import REPORTS
    from transexplain.reports.summary import summarise
    from transexplain.store import runs

    with opt.open_store(opt.settings_with(db)) as store:
        found = runs.get(store, run_id).id
        if json_:
            typer.echo(REPORTS.load("json")(summarise(store, found)))
            return
        print_summary(*write_reports(store, found, report_dir))
