"""Verbs that make and drive runs: run, submit, resume, cancel, validate."""

from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestrator.cli import options as opt
from orchestrator.cli.running import OnItems, announce, work_and_report
from transexplain.errors import ConfigurationError
from transexplain.settings import Settings

if TYPE_CHECKING:
    from orchestrator.plan import Prepared
    from transexplain.store.database import Database

ReportDir = Annotated[Path, typer.Option("--report-dir", help="where the report is written")]
Processes = Annotated[int, typer.Option("--processes", "-p", min=1, help="local processes")]


def register(app: typer.Typer) -> None:
    """Add this module's verbs."""
    for verb in (run, submit, resume, cancel, validate):
        app.command()(verb)


def run(  # noqa: PLR0913 - the options of a command line
    spec: opt.SpecPath = None,
    *,
    model: opt.Model = None,
    data: opt.Data = None,
    target: opt.Targets = None,
    method: opt.Method = None,
    lexicon: opt.Lexicon = None,
    name: opt.Name = None,
    set_: opt.Set = None,
    processes: Processes = 1,
    db: opt.DatabaseUrl = None,
    report_dir: ReportDir = Path("audits"),
) -> None:
    """Run an audit here and write its report."""
    from orchestrator.dispatch import local

    settings = opt.settings_with(db)
    prepared = _prepare(
        spec, _overrides(model, data, target, method, lexicon, name), set_, settings
    )
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
    name: opt.Name = None,
    set_: opt.Set = None,
    db: opt.DatabaseUrl = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="watch until the end, re-send lost hints, report")
    ] = False,
    report_dir: ReportDir = Path("audits"),
) -> None:
    """Put an audit on the queue for workers."""
    from orchestrator.dispatch import queue
    from transexplain.store import runs

    settings = opt.settings_with(db)
    queue.check_broker(settings)
    prepared = _prepare(
        spec, _overrides(model, data, target, method, lexicon, name), set_, settings
    )
    with opt.open_store(settings) as store:
        run_id = _create(store, prepared)
        queue.send_hints(settings, run_id, [shard.index for shard in prepared.shards])
        if not wait:
            announce(runs.progress(store, run_id))
        else:
            work_and_report(
                store,
                run_id,
                lambda on_items, stop: queue.follow(store, run_id, settings, on_items, _warn, stop),
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
                queue.follow(store, found.id, settings, on_items, _warn, stop)
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


def validate(
    spec: opt.SpecPath = None,
    *,
    model: opt.Model = None,
    data: opt.Data = None,
    target: opt.Targets = None,
    method: opt.Method = None,
    lexicon: opt.Lexicon = None,
    set_: opt.Set = None,
) -> None:
    """Check an audit without running it: model, data, targets, lexicon, one item explained."""
    prepared = _prepare(
        spec,
        _overrides(model, data, target, method, lexicon, None),
        set_,
        Settings.from_environment(),
    )
    plan = prepared.plan
    typer.echo(
        f"ok: {plan.dataset.rows} items in {len(prepared.shards)} shards, model of "
        f"{plan.model.modality} with classes {', '.join(plan.model.classes[:10])}, "
        f"plan {plan.digest[:12]}"
    )


def _overrides(
    model: str | None,
    data: str | None,
    target: list[str] | None,
    method: str | None,
    lexicon: str | None,
    name: str | None,
) -> dict[str, Any]:
    return {
        "model.source": model,
        "data.source": data,
        "targets": target or None,
        "method.name": method,
        "groups.lexicon": lexicon,
        "name": name,
    }


def _prepare(
    spec: Path | None, overrides: dict[str, Any], set_: list[str] | None, settings: Settings
) -> "Prepared":
    from orchestrator.plan import prepare_audit
    from orchestrator.spec import load_spec

    prepared = prepare_audit(load_spec(spec, overrides, set_ or ()), settings)
    for warning in prepared.warnings:
        _warn(warning)
    return prepared


def _warn(message: str) -> None:
    typer.secho(f"warning: {message}", fg=typer.colors.YELLOW, err=True)


def _create(store: "Database", prepared: "Prepared") -> str:
    from transexplain.store import runs

    return runs.create(store, prepared.plan, prepared.shards)
