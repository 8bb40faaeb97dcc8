"""Verbs that make and drive runs: run, submit, resume, cancel."""

from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli import options as opt
from orchestrator.cli.planning import overrides_of, prepare, warn
from orchestrator.cli.running import OnItems, announce, work_and_report
from transexplain.errors import ConfigurationError

if TYPE_CHECKING:
    from orchestrator.plan import Prepared
    from transexplain.store.database import Database

ReportDir = Annotated[Path, typer.Option("--report-dir", help="where the report is written")]
Wait = Annotated[
    bool, typer.Option("--wait", help="watch until the end, re-send lost hints, report")
]
Processes = Annotated[int, typer.Option("--processes", "-p", min=1, help="local processes")]


def register(app: typer.Typer) -> None:
    """Add this module's verbs."""
    for verb in (run, submit, resume, cancel):
        app.command()(verb)


def run(  # noqa: PLR0913 - the options of a command line
    spec: opt.SpecPath = None,
    *,
    model: opt.Model = None,
    data: opt.Data = None,
    target: opt.Targets = None,
    method: opt.Method = None,
    lexicon: opt.Lexicon = None,
    long_text: opt.LongText = None,
    window: opt.Window = None,
    stride: opt.Stride = None,
    join: opt.Join = None,
    name: opt.Name = None,
    set_: opt.Set = None,
    processes: Processes = 1,
    db: opt.DatabaseUrl = None,
    report_dir: ReportDir = Path("audits"),
) -> None:
    """Run an audit here and write its report."""
    from orchestrator.dispatch import local

    settings = opt.settings_with(db)
    long = opt.long_texts(long_text, window, stride, join)
    overrides = {**overrides_of(model, data, target, method, lexicon, name), **long}
    prepared = prepare(spec, overrides, set_, settings)
    with opt.open_store(settings) as store:
        run_id = _create(store, prepared)

        def work(on_items: OnItems, stop: Event) -> None:
            local.run_local(
                store,
                run_id,
                settings,
                processes,
                model=prepared.model,
                on_items=on_items,
                stop=stop,
            )

        work_and_report(store, run_id, work, report_dir)


def submit(  # noqa: PLR0913 - the options of a command line
    spec: opt.SpecPath = None,
    *,
    model: opt.Model = None,
    data: opt.Data = None,
    target: opt.Targets = None,
    method: opt.Method = None,
    lexicon: opt.Lexicon = None,
    long_text: opt.LongText = None,
    window: opt.Window = None,
    stride: opt.Stride = None,
    join: opt.Join = None,
    name: opt.Name = None,
    set_: opt.Set = None,
    db: opt.DatabaseUrl = None,
    wait: Wait = False,
    report_dir: ReportDir = Path("audits"),
) -> None:
    """Put an audit on the queue for workers."""
    from orchestrator.dispatch import queue
    from transexplain.store import runs

    settings = opt.settings_with(db)
    queue.check_broker(settings)
    long = opt.long_texts(long_text, window, stride, join)
    overrides = {**overrides_of(model, data, target, method, lexicon, name), **long}
    prepared = prepare(spec, overrides, set_, settings)
    with opt.open_store(settings) as store:
        run_id = _create(store, prepared)
        queue.send_hints(settings, run_id, [shard.index for shard in prepared.shards])
        if not wait:
            announce(runs.progress(store, run_id))
        else:
            work_and_report(
                store,
                run_id,
                lambda on_items, stop: queue.follow(store, run_id, settings, on_items, warn, stop),
                report_dir,
            )


def resume(
    run_id: opt.RunId = "latest",
    *,
    queue_: Annotated[
        bool, typer.Option("--queue", help="send hints to workers instead of working here")
    ] = False,
    processes: Processes = 1,
    db: opt.DatabaseUrl = None,
    report_dir: ReportDir = Path("audits"),
) -> None:
    """Continue a run: finished shards stay, the others are worked on, dead ones once more."""
    from orchestrator.dispatch import local, queue
    from transexplain.store import runs, shards

    settings = opt.settings_with(db)
    with opt.open_store(settings) as store:
        found = runs.get(store, run_id)
        if found.state == "cancelled":
            raise ConfigurationError(f"run {found.id} was cancelled; start a new one")
        shards.redrive(store, found.id)

        def work(on_items: OnItems, stop: Event) -> None:
            if queue_:
                queue.send_hints(settings, found.id, shards.claimable(store, found.id))
                queue.follow(store, found.id, settings, on_items, warn, stop)
            else:
                local.run_local(store, found.id, settings, processes, on_items=on_items, stop=stop)

        work_and_report(store, found.id, work, report_dir)


def cancel(run_id: opt.RunId, *, db: opt.DatabaseUrl = None) -> None:
    """Cancel a run; workers stop before their next batch."""
    from transexplain.store import runs

    with opt.open_store(opt.settings_with(db)) as store:
        found = runs.get(store, run_id)
        done = runs.cancel(store, found.id)
        typer.echo(f"run {found.id} {'cancelled' if done else f'was {found.state} already'}")


def _create(store: "Database", prepared: "Prepared") -> str:
    from transexplain.store import runs

    return runs.create(store, prepared.plan, prepared.shards)
