"""The verb that measures explanations: evaluate."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestrator.cli import options as opt
from orchestrator.cli.planning import overrides_of, prepare
from orchestrator.cli.running import work_and_report, work_here, work_of_others
from transexplain.settings import Settings

if TYPE_CHECKING:
    from orchestrator.plan import Prepared

Methods = Annotated[
    list[str] | None,
    typer.Option("--method", help="a method, may be repeated; or `all`; default: quick ones"),
]
Metrics = Annotated[
    list[str] | None, typer.Option("--metric", help="a metric, may be repeated; default: all")
]
Baseline = Annotated[
    str | None,
    typer.Option("--baseline", help="in the place of what is hidden: mask, unk, mean, blur, ..."),
]
Items = Annotated[
    int | None,
    typer.Option("--items", min=0, help="so many, drawn from the data; default 200, 0: all"),
]

Queue = Annotated[bool, typer.Option("--queue", help="leave it to workers on the queue, and wait")]
ReportDir = Annotated[Path, typer.Option("--report-dir", help="where the tables are written")]


def register(app: typer.Typer) -> None:
    """Add this module's verb."""
    app.command()(evaluate)


def evaluate(  # noqa: PLR0913 - the options of a command line
    spec: opt.SpecPath = None,
    *,
    model: opt.Model = None,
    data: opt.Data = None,
    target: opt.Targets = None,
    method: Methods = None,
    metric: Metrics = None,
    baseline: Baseline = None,
    items: Items = None,
    long_text: opt.LongText = None,
    window: opt.Window = None,
    stride: opt.Stride = None,
    join: opt.Join = None,
    name: opt.Name = None,
    set_: opt.Set = None,
    processes: opt.Processes = 1,
    queue_: Queue = False,
    db: opt.DatabaseUrl = None,
    report_dir: ReportDir = Path("evaluations"),
) -> None:
    """Measure how faithful explanations are: tables with intervals, curves, paired tests."""
    settings = opt.settings_with(db)
    if queue_:
        from orchestrator.dispatch.queue import check_broker

        check_broker(settings)
    overrides: dict[str, Any] = {
        **overrides_of(model, data, target, None, None, name),
        "data.sample": items or None,
        "evaluation.methods": _names(method),
        "evaluation.metrics": _names(metric),
        "evaluation.baseline": _token(baseline),
        **opt.long_texts(long_text, window, stride, join),
    }
    if items == 0:
        set_ = [*(set_ or ()), "data.sample=null"]
    prepared = prepare(spec, overrides, set_, settings, task="evaluation")
    _measure(prepared, settings, report_dir, processes=None if queue_ else processes)


def _measure(
    prepared: "Prepared", settings: Settings, report_dir: Path, *, processes: int | None
) -> None:
    """Create the run and drive it to its end: here, or without `processes` on the queue."""
    from orchestrator.cost import evaluation_estimate
    from transexplain.store import runs

    if cost := evaluation_estimate(prepared.plan):
        typer.echo(cost.spoken())
    with opt.open_store(settings) as store:
        run_id = runs.create(store, prepared.plan, prepared.shards)
        work = (
            work_of_others(store, run_id, settings)
            if processes is None
            else work_here(store, run_id, settings, processes, prepared.model)
        )
        work_and_report(store, run_id, work, report_dir)


def _names(given: list[str] | None) -> list[str] | str | None:
    """What was named, or `all`; None: nothing was given."""
    if not given:
        return None
    return "all" if given == ["all"] else given


def _token(given: str | None) -> str | int | None:
    """The name of a baseline, or the id of a token."""
    return int(given) if given is not None and given.isdigit() else given
