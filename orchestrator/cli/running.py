"""Driving a run to its end in a terminal: announcement, progress, interruption, report."""

from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from transexplain.store.database import Database
    from transexplain.store.records import RunProgress

OnItems = Callable[[int], None]
_INTERRUPTED = 130


def announce(state: "RunProgress") -> None:
    """Say which run this is and how large."""
    done = state.items_done + state.items_failed
    so_far = f", {done} done before" if done else ""
    shards = sum(state.states.values())
    typer.echo(f"run {state.run_id}: {state.items_total} items in {shards} shards{so_far}")


def work_and_report(
    store: "Database",
    run_id: str,
    work: Callable[[OnItems, Event], None],
    report_dir: Path,
) -> None:
    """Do `work` under a progress bar, write and print the report, and end with its exit code.

    Ctrl-C and SIGTERM end the work between two batches; the run resumes.
    """
    from orchestrator.cli.progress import item_progress
    from orchestrator.dispatch.stopping import stopping
    from orchestrator.finish import exit_code, print_summary, write_reports
    from transexplain.store import runs

    before = runs.progress(store, run_id)
    done = before.items_done + before.items_failed
    try:
        # before anything is said: from here on Ctrl-C loses nothing
        with stopping() as stop:
            announce(before)
            with item_progress(before.name, before.items_total, done) as on_items:
                work(on_items, stop)
    except KeyboardInterrupt:
        typer.echo(f"interrupted; `transexplain resume {run_id}` continues the run", err=True)
        raise typer.Exit(_INTERRUPTED) from None
    print_summary(*write_reports(store, run_id, report_dir))
    code = exit_code(store, run_id)
    if code:
        raise typer.Exit(code)
