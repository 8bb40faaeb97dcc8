"""Driving a run to its end in a terminal: announcement, progress bar, interruption, report."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from transexplain.settings import Settings

if TYPE_CHECKING:
    from transexplain.models.loaded_model import LoadedModel
    from transexplain.store.database import Database
    from transexplain.store.run_records import RunProgress


_EVERY = 10.0  #: seconds between lines where there is no terminal


class RateColumn(ProgressColumn):
    """Items per second."""

    def render(self, task: Task) -> Text:
        """The rate so far."""
        return Text(f"{task.speed:.1f} items/s" if task.speed else "… items/s")


@contextmanager
def item_progress(label: str, total: int, done: int = 0) -> Iterator[Callable[[int], None]]:
    """Show a bar over items; yields the function to call with the number newly finished."""
    console = Console(stderr=True)
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        RateColumn(),
        TimeRemainingColumn(),
        console=console,
        speed_estimate_period=60.0,
        disable=not console.is_terminal,
    )
    with bar:
        task = bar.add_task(label, total=total, completed=done)
        yield lambda count: bar.advance(task, count)


OnItems = Callable[[int], None]
Work = Callable[[OnItems, Event], None]
_INTERRUPTED = 130


def work_here(
    store: "Database",
    run_id: str,
    settings: Settings,
    processes: int,
    model: "LoadedModel | None" = None,
) -> Work:
    """Work on a run in this process or its children; `model` is loaded already."""

    def work(on_items: OnItems, stop: Event) -> None:
        from orchestrator.dispatch import local

        local.run_local(
            store,
            run_id,
            settings,
            processes,
            model=model,
            on_items=on_items,
            on_wait=warn,
            stop=stop,
        )

    return work


def work_of_others(store: "Database", run_id: str, settings: Settings) -> Work:
    """Send hints for free shards at once, then watch the workers, sending what is lost or left."""
    from orchestrator.dispatch import queue
    from orchestrator.dispatch.follow import follow
    from orchestrator.dispatch.queue import send_messages
    from transexplain.store import hints, runs
    from workers.app import queue_of

    # a large run's other hints are for the sweeps: a broker is no store
    indices = hints.take(store, [run_id], queue.BOUND, patience=0.0).get(run_id, [])
    send_messages(settings, run_id, indices, queue_of(settings, runs.get(store, run_id).plan))
    return lambda on_items, stop: follow(store, run_id, settings, on_items, warn, stop)


def announce(state: "RunProgress") -> None:
    """Say which run this is and how large."""
    done = state.items_done + state.items_failed
    so_far = f", {done} done before" if done else ""
    shards = sum(state.states.values())
    typer.echo(f"run {state.run_id}: {state.items_total} items in {shards} shards{so_far}")


def work_and_report(
    store: "Database",
    run_id: str,
    work: Work,
    report_dir: Path,
) -> None:
    """Do `work` under a progress bar, write and print the report, and end with its exit code.

    Ctrl-C and SIGTERM end the work between two batches; the run resumes.
    """
    from orchestrator.dispatch.finish import exit_code, report
    from orchestrator.dispatch.stopping import stopping
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
    report(store, run_id, report_dir)
    code = exit_code(store, run_id)
    if code:
        raise typer.Exit(code)


def warn(message: str) -> None:
    """A warning for the terminal."""
    typer.secho(f"warning: {message}", fg=typer.colors.YELLOW, err=True)
