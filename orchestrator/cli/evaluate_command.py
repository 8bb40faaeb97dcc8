"""The verb that measures explanations: evaluate."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli import options as opt
from orchestrator.cli.run_commands import prepare, work_and_report, worked_on
from orchestrator.spec.audit_spec import (
    overrides_of,
)
from transexplain.settings import Settings

if TYPE_CHECKING:
    from orchestrator.dispatch.executors import Executor
    from orchestrator.plan.audit_plan import Prepared

Methods = Annotated[
    list[str] | None,
    typer.Option("--method", help="a method, may be repeated; or `all`; default: quick ones"),
]
Metrics = Annotated[
    list[str] | None,
    typer.Option("--metric", help="a metric, may be repeated; or `all`; default: usual ones"),
]
Baseline = Annotated[
    str | None,
    typer.Option("--baseline", help="replacement of hidden positions: mask, unk, mean, blur, ..."),
]
Items = Annotated[
    int | None,
    typer.Option(
        "--items", min=0, help="number of items, sampled from the data; default 200, 0: all"
    ),
]

Queue = Annotated[bool, typer.Option("--queue", help="leave it to workers on the queue, and wait")]
ReportDir = Annotated[
    opt.Place, opt.place_option("--out", "-o", "--report-dir", help="where the tables are written")
]


def evaluate(  # noqa: PLR0913 - the options of a command line
    spec: opt.SpecPath = None,
    *,
    overrides: opt.EvaluationOverrides,
    method: Methods = None,
    metric: Metrics = None,
    baseline: Baseline = None,
    items: Items = None,
    set_: opt.Set = None,
    chosen: opt.Chosen,
    host_processes: opt.HostProcesses = None,
    queue_: Queue = False,
    db: opt.DatabaseUrl = None,
    report_dir: ReportDir = Path("evaluations"),
    output: opt.OutputMode,
) -> None:
    """Measure how faithful explanations are: tables with intervals, curves, paired tests."""
    settings = opt.settings_with(db, host_processes)
    executor = chosen.made(settings, queue=queue_)
    executor.check()
    overrides |= overrides_of(
        items=items or None,
        methods=_names(method),
        metrics=_names(metric),
        baseline=_token(baseline),
    )
    if items == 0:
        set_ = [*(set_ or ()), "data.sample=null"]
    prepared = prepare(spec, overrides, set_, settings, task="evaluation")
    _measure(prepared, settings, executor, report_dir, output)


def _measure(
    prepared: "Prepared",
    settings: Settings,
    executor: "Executor",
    report_dir: opt.Place,
    output: opt.Output,
) -> None:
    """Create the run and drive it to its end."""
    from orchestrator.spec.evaluation_section import evaluation_estimate
    from transexplain.store import runs

    if output == "bar" and (cost := evaluation_estimate(prepared.plan)):
        typer.echo(cost.summary_text())
    with opt.open_store(settings) as store:
        run_id = runs.create(store, prepared.plan, prepared.shards, place=prepared.place)
        work = worked_on(executor, store, run_id, prepared.model)
        work_and_report(store, run_id, work, report_dir, output)


def _names(given: list[str] | None) -> list[str] | str | None:
    """The given names, or `all`; None: nothing was given."""
    if not given:
        return None
    return "all" if given == ["all"] else given


def _token(given: str | None) -> str | int | None:
    """The name of a baseline, or the id of a token."""
    return int(given) if given is not None and given.isdigit() else given
