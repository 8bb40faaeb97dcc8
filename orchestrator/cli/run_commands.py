"""Verbs of audits: validate, plan, run, submit, resume, retry, cancel."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestrator.cli import options as opt
from orchestrator.cli.run_to_end import announce, warn, work_and_report, work_here, work_of_others
from orchestrator.spec.audit_spec import (
    JoinOption,
    LongTextOption,
    NameOption,
    StrideOption,
    TargetsOption,
    WindowOption,
    load_spec,
    overrides_of,
)
from orchestrator.spec.data_section import DataOption
from orchestrator.spec.groups_section import LexiconOption
from orchestrator.spec.method_section import MethodOption
from orchestrator.spec.model_section import ModelOption
from transexplain.errors import ConfigurationError
from transexplain.settings import Settings

if TYPE_CHECKING:
    from orchestrator.plan.audit_plan import Prepared
    from transexplain.settings import Settings
    from transexplain.store.database import Database
    from transexplain.types.plans import Task


def validate(  # noqa: PLR0913 - the options of a command line
    spec: opt.SpecPath = None,
    *,
    model: ModelOption = None,
    data: DataOption = None,
    target: TargetsOption = None,
    method: MethodOption = None,
    lexicon: LexiconOption = None,
    long_text: LongTextOption = None,
    window: WindowOption = None,
    stride: StrideOption = None,
    join: JoinOption = None,
    set_: opt.Set = None,
) -> None:
    """Check an audit without running it: model, data, targets, lexicon, one item explained."""
    overrides = overrides_of(
        **{"model": model, "data": data, "target": target, "method": method, "lexicon": lexicon},
        **{"long_text": long_text, "window": window, "stride": stride, "join": join},
    )
    prepared = prepare(spec, overrides, set_, Settings.from_environment())
    plan = prepared.plan
    typer.echo(
        f"ok: {plan.dataset.rows} items in {len(prepared.shards)} shards, model of "
        f"{plan.model.modality} with classes {', '.join(plan.model.classes[:10])}, "
        f"plan {plan.digest[:12]}"
    )


def plan(  # noqa: PLR0913 - the options of a command line
    spec: opt.SpecPath = None,
    *,
    model: ModelOption = None,
    data: DataOption = None,
    target: TargetsOption = None,
    method: MethodOption = None,
    lexicon: LexiconOption = None,
    long_text: LongTextOption = None,
    window: WindowOption = None,
    stride: StrideOption = None,
    join: JoinOption = None,
    set_: opt.Set = None,
    json_: opt.AsJson = False,
) -> None:
    """Check an audit and say what it would do and cost."""
    from orchestrator.plan.estimate import estimate
    from orchestrator.spec.evaluation_section import evaluation_estimate

    overrides = overrides_of(
        **{"model": model, "data": data, "target": target, "method": method, "lexicon": lexicon},
        **{"long_text": long_text, "window": window, "stride": stride, "join": join},
    )
    prepared = prepare(spec, overrides, set_, Settings.from_environment())
    found = estimate(prepared)
    measured = evaluation_estimate(prepared.plan)
    if json_:
        evaluation = asdict(measured) if measured else None
        typer.echo(json.dumps({**asdict(found), "evaluation": evaluation}, indent=2))
        return
    typer.echo(found.spoken())
    if measured:
        typer.echo(f"faithfulness: {measured.spoken()}")


def prepare(
    spec: Path | None,
    overrides: dict[str, Any],
    set_: list[str] | None,
    settings: Settings,
    task: "Task" = "audit",
) -> "Prepared":
    """Read and check a specification, telling its warnings; raises ConfigurationError."""
    from orchestrator.plan.audit_plan import prepare_audit

    read = load_spec(spec, overrides, set_ or ())
    if task == "evaluation":
        read = read.model_copy(update={"data": read.data.with_usual_sample()})
    prepared = prepare_audit(read, settings, task)
    for warning in prepared.warnings:
        warn(warning)
    return prepared


ReportDir = Annotated[Path, typer.Option("--report-dir", help="where the report is written")]
Wait = Annotated[
    bool, typer.Option("--wait", help="watch until the end, send lost messages again, report")
]
Queue = Annotated[
    bool, typer.Option("--queue", help="send messages to workers instead of working here")
]


def run(  # noqa: PLR0913 - the options of a command line
    spec: opt.SpecPath = None,
    *,
    model: ModelOption = None,
    data: DataOption = None,
    target: TargetsOption = None,
    method: MethodOption = None,
    lexicon: LexiconOption = None,
    long_text: LongTextOption = None,
    window: WindowOption = None,
    stride: StrideOption = None,
    join: JoinOption = None,
    name: NameOption = None,
    set_: opt.Set = None,
    previous: opt.Previous = None,
    processes: opt.Processes = 1,
    db: opt.DatabaseUrl = None,
    report_dir: ReportDir = Path("audits"),
) -> None:
    """Run an audit here and write its report."""
    from transexplain.store import runs

    settings = opt.settings_with(db)
    overrides = overrides_of(
        **{"model": model, "data": data, "target": target, "method": method, "lexicon": lexicon},
        **{"long_text": long_text, "window": window, "stride": stride, "join": join},
        name=name,
    )
    prepared = prepare(spec, overrides, set_, settings)
    with opt.open_store(settings) as store:
        before = audit_before(store, previous)
        run_id = runs.create(store, prepared.plan, prepared.shards, before)
        work = work_here(store, run_id, settings, processes, prepared.model)
        work_and_report(store, run_id, work, report_dir)


def submit(  # noqa: PLR0913 - the options of a command line
    spec: opt.SpecPath = None,
    *,
    model: ModelOption = None,
    data: DataOption = None,
    target: TargetsOption = None,
    method: MethodOption = None,
    lexicon: LexiconOption = None,
    long_text: LongTextOption = None,
    window: WindowOption = None,
    stride: StrideOption = None,
    join: JoinOption = None,
    name: NameOption = None,
    set_: opt.Set = None,
    previous: opt.Previous = None,
    db: opt.DatabaseUrl = None,
    wait: Wait = False,
    report_dir: ReportDir = Path("audits"),
) -> None:
    """Put an audit on the queue for workers."""
    from orchestrator.dispatch import queue
    from transexplain.store import runs

    settings = opt.settings_with(db)
    queue.check_broker(settings)
    overrides = overrides_of(
        **{"model": model, "data": data, "target": target, "method": method, "lexicon": lexicon},
        **{"long_text": long_text, "window": window, "stride": stride, "join": join},
        name=name,
    )
    prepared = prepare(spec, overrides, set_, settings)
    with opt.open_store(settings) as store:
        before = audit_before(store, previous)
        run_id = runs.create(store, prepared.plan, prepared.shards, before)
        work = work_of_others(store, run_id, settings)
        if not wait:
            announce(runs.progress(store, run_id))
        else:
            work_and_report(store, run_id, work, report_dir)


def resume(
    run_id: opt.RunId = "latest",
    *,
    queue_: Queue = False,
    processes: opt.Processes = 1,
    db: opt.DatabaseUrl = None,
    report_dir: ReportDir = Path("audits"),
) -> None:
    """Continue a run: finished shards stay, the others are worked on, dead ones once more."""
    from transexplain.store import shards

    settings = opt.settings_with(db)
    with opt.open_store(settings) as store:
        found = _can_go_on(store, run_id)
        _check_privacy(store, found, here=not queue_)
        shards.redrive(store, found)
        _drive(store, found, settings, processes if not queue_ else None, report_dir)


def retry(
    run_id: opt.RunId = "latest",
    *,
    failed: Annotated[
        bool,
        typer.Option(
            "--failed",
            help="also shards with items that failed in the model, ran out of memory or are in "
            "quarantine",
        ),
    ] = False,
    queue_: Queue = False,
    processes: opt.Processes = 1,
    db: opt.DatabaseUrl = None,
    report_dir: ReportDir = Path("audits"),
) -> None:
    """Work once more on dead shards and, with --failed, on shards that hold failed items."""
    from transexplain.store import shards

    settings = opt.settings_with(db)
    with opt.open_store(settings) as store:
        found = _can_go_on(store, run_id)
        _check_privacy(store, found, here=not queue_)
        again = (shards.retry_failed if failed else shards.redrive)(store, found)
        if not again:
            more = "" if failed else "; --failed looks at items that failed, too"
            typer.echo(f"run {found}: nothing to try again{more}")
            return
        typer.echo(f"run {found}: {again} shard{'s' if again > 1 else ''} once more")
        _drive(store, found, settings, processes if not queue_ else None, report_dir)


def _check_privacy(store: "Database", run_id: str, *, here: bool) -> None:
    """Refuse to work here without the key or the hook of the run; workers refuse by themselves."""
    from transexplain.audit.text_guard import guard_of
    from transexplain.store import runs

    if here:
        guard_of(runs.get(store, run_id).plan)


def cancel(run_id: opt.RunId, *, db: opt.DatabaseUrl = None) -> None:
    """Cancel a run; workers stop before their next batch."""
    from transexplain.store import runs

    with opt.open_store(opt.settings_with(db)) as store:
        found = runs.get(store, run_id)
        done = runs.cancel(store, found.id)
        typer.echo(f"run {found.id} {'cancelled' if done else f'was {found.state} already'}")


def _can_go_on(store: "Database", run_id: str) -> str:
    """The full id of a run that was not cancelled, and whose saved shards can still be read."""
    from transexplain.analysis.groups.shard_aggregate import check_versions
    from transexplain.store import run_totals, runs

    found = runs.get(store, run_id)
    if found.state == "cancelled":
        raise ConfigurationError(f"run {found.id} was cancelled; start a new one")
    try:
        check_versions(run_totals.aggregate_versions(store, found.id))
    except ConfigurationError as error:
        raise ConfigurationError(
            f"run {found.id} cannot go on, it was begun with older software: {error}, and end this "
            f"one with `transexplain cancel {found.id}`"
        ) from error
    return found.id


def _drive(
    store: "Database", run_id: str, settings: "Settings", processes: int | None, report_dir: Path
) -> None:
    """Work on a run in `processes` here or, None, on the queue; then report."""
    work = (
        work_of_others(store, run_id, settings)
        if processes is None
        else work_here(store, run_id, settings, processes)
    )
    work_and_report(store, run_id, work, report_dir)


def audit_before(store: "Database", run_id: str | None) -> str | None:
    """The full id of the audit to compare with."""
    from transexplain.store import runs

    if run_id is None:
        return None
    found = runs.get(store, run_id)
    if found.plan.task == "evaluation":
        raise ConfigurationError(f"--previous {run_id}: run {found.id} is no audit")
    return found.id
