"""Verbs that read the store: status, report."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli import options as opt
from transexplain.errors import ConfigurationError

if TYPE_CHECKING:
    from transexplain.store.database import Database
    from transexplain.store.records import RunProgress


def status(
    run_id: Annotated[str | None, typer.Argument(help="run id or `latest`; default: all")] = None,
    *,
    watch: Annotated[
        bool, typer.Option("--watch", help="look again and again until no run runs")
    ] = False,
    every: Annotated[
        float, typer.Option("--every", min=0.2, help="seconds between looks, with --watch")
    ] = 2.0,
    json_: opt.AsJson = False,
    db: opt.DatabaseUrl = None,
) -> None:
    """Show how far runs are."""
    from transexplain.store import runs

    if watch:
        if json_:
            raise ConfigurationError("--watch is for people, --json for programs; give one")
        _watch(run_id, every, db)
        return

    with opt.open_store(opt.settings_with(db)) as store:
        found = [runs.get(store, run_id)] if run_id else runs.list_runs(store)
        states = [runs.progress(store, one.id) for one in found]
        notes = _notes(store, found[0].id if run_id else None)
    if json_:
        typer.echo(json.dumps([asdict(state) for state in states], indent=2))
        return
    for state in states:
        typer.echo(_line(state))
    for note in notes:
        typer.echo(note)


def _notes(store: "Database", run_id: str | None) -> list[str]:
    """What is wrong: shards of this run, or else messages that no worker took."""
    from transexplain.store import fleet, shards

    if run_id:
        return [
            f"  shard {one.shard.index} {one.state} after {one.attempt} attempts: {one.error}"
            for one in shards.list_shards(store, run_id)
            if one.error or one.state == "dead"
        ]
    refused = fleet.status(store).refused
    by_reason = ", ".join(f"{count} {reason}" for reason, count in refused.items())
    return [f"messages that workers refused: {by_reason}"] if refused else []


def _watch(run_id: str | None, every: float, db: str | None) -> None:
    from rich.console import Console

    from orchestrator import watch
    from orchestrator.dispatch.stopping import stopping
    from transexplain.store import runs

    with opt.open_store(opt.settings_with(db)) as store, stopping() as stop:
        watcher = watch.Watcher(store, runs.get(store, run_id).id if run_id else None)
        watch.watch(watcher, Console(), every=every, wait=stop.wait)


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
    checked: Annotated[
        Path | None,
        typer.Option("--checked", help="a sheet of `matches` that a person filled: precision"),
    ] = None,
    redact: opt.Redact = False,
    min_count: opt.MinCount = None,
    json_: opt.AsJson = False,
    db: opt.DatabaseUrl = None,
) -> None:
    """Write the report of an audit or evaluation again, or print it as JSON."""
    from orchestrator import finish
    from transexplain.reports.redaction import fewest_of
    from transexplain.store import runs

    fewest = fewest_of(redact, min_count)
    with opt.open_store(opt.settings_with(db)) as store:
        found = runs.get(store, run_id).id
        wanted = finish.Wanted(checked=checked, fewest=fewest)
        if json_:
            typer.echo(finish.as_json(store, found, wanted))
        else:
            finish.report(store, found, report_dir, wanted)
