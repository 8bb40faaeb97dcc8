"""Verbs that start and continue audits: validate, plan, run, submit, resume, retry, cancel."""

import json
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
)
from rich.text import Text

from orchestrator.cli import options as opt
from orchestrator.cli.fleet_commands import MostWorkers, Priority, Share, settings_of
from orchestrator.dispatch.stopping import Reports
from orchestrator.spec.audit_spec import NameOption, load_spec, overrides_of
from transexplain.errors import ConfigurationError
from transexplain.reports.phrasing import counted
from transexplain.settings import Settings

if TYPE_CHECKING:
    from orchestrator.dispatch.executors import Executor
    from orchestrator.plan.audit_plan import PreparedAudit
    from orchestrator.plan.import_plan import Imported
    from transexplain.models.loaded_model import LoadedModel
    from transexplain.store.database import Database
    from transexplain.store.runs import RunProgress
    from transexplain.types.plans import Task as AuditTask

_FAILED_ITEMS = 3  #: exit code of a run with failed items above its tolerance


def validate(
    spec: opt.SpecPath = None,
    *,
    overrides: opt.UnnamedOverrides,
    set_: opt.Set = None,
) -> None:
    """Check an audit without running it: every row, labels, mentions, one item explained."""
    from orchestrator.plan.audit_plan import check_data

    prepared = prepare(spec, overrides, set_, Settings.from_environment().planning_only())
    plan = prepared.plan
    report = check_data(prepared)
    for line in report.lines():
        typer.echo(line)
    too_many = report.share_failing > plan.tolerance
    if too_many:
        opt.warn(
            f"a run would end with exit code {_FAILED_ITEMS}: {report.share_failing:.2%} of the "
            f"rows fail, and the tolerance is {plan.tolerance:.2%} (`tolerance:` in the "
            "specification)"
        )
    verdict = "not ok" if too_many else "ok"
    typer.echo(
        f"{verdict}: {counted(plan.dataset.rows, 'item')} in "
        f"{counted(len(prepared.shards), 'shard')}, "
        f"model of {plan.model.modality} with {classes_shown(plan.model.classes)}, "
        f"plan {plan.digest[:12]}"
    )
    if prepared.labels:
        typer.echo(f"labels: {prepared.label_summary()}")
    if too_many:
        raise typer.Exit(_FAILED_ITEMS)


_CLASSES = 10  #: that are named


def classes_shown(names: Sequence[str]) -> str:
    """The names of a model's classes, the first ten of many."""
    shown = ", ".join(names[:_CLASSES])
    if len(names) > _CLASSES:
        return f"{len(names):,} classes ({shown}, ...)"
    return f"{'class' if len(names) == 1 else 'classes'} {shown}"


def plan(
    spec: opt.SpecPath = None,
    *,
    overrides: opt.UnnamedOverrides,
    set_: opt.Set = None,
    json_: opt.AsJson = False,
) -> None:
    """Check an audit and estimate its passes, time and storage."""
    from orchestrator.plan.estimate import estimate
    from orchestrator.spec.evaluation_section import evaluation_estimate

    prepared = prepare(spec, overrides, set_, Settings.from_environment().planning_only())
    costs = estimate(prepared)
    measured = evaluation_estimate(prepared.plan)
    if json_:
        evaluation = asdict(measured) if measured else None
        document = {**asdict(costs), "evaluation": evaluation, "labels": dict(prepared.labels)}
        typer.echo(json.dumps(document, indent=2))
        return
    typer.echo(costs.summary_text())
    if prepared.labels:
        typer.echo(f"labels: {prepared.label_summary()}")
    if measured:
        typer.echo(f"faithfulness is measured by {measured.subject_text()}")


def prepare(
    spec: opt.Place | None,
    overrides: dict[str, Any],
    set_: list[str] | None,
    settings: Settings,
    task: "AuditTask" = "audit",
) -> "PreparedAudit":
    """Read and check a specification, and print its warnings; raises ConfigurationError."""
    from orchestrator.plan.audit_plan import prepare_audit

    read = load_spec(spec, overrides, set_ or ())
    if task == "evaluation":
        read = read.model_copy(update={"data": read.data.with_sample_of(read.evaluation.items)})
    prepared = prepare_audit(read, settings, task)
    for warning in prepared.warnings:
        opt.warn(warning)
    return prepared


FilesLost = Annotated[
    bool,
    typer.Option(
        "--files-lost",
        help="the files of the run's sink are deleted for good: write all of them again",
    ),
]
Queue = Annotated[
    bool, typer.Option("--queue", help="send messages to workers instead of working here")
]


def run(  # noqa: PLR0913 - the options of a command line
    spec: opt.SpecPath = None,
    *,
    overrides: opt.Overrides,
    set_: opt.Set = None,
    previous: opt.Previous = None,
    chosen: opt.Chosen,
    host_processes: opt.HostProcesses = None,
    db: opt.DatabaseUrl = None,
    report_dir: opt.ReportDir = Path("audits"),
    output: opt.OutputMode,
) -> None:
    """Run an audit here, or by workers of a cluster, and write its report."""
    settings = opt.settings_with(db, host_processes)
    executor = opt.ready_executor(chosen, settings)
    prepared = prepare(spec, overrides, set_, settings)
    with opt.open_store(settings) as store:
        run_id = created(store, prepared, previous)
        work_and_report(store, run_id, executor, report_dir, output, prepared.model)


def created(store: "Database", prepared: "PreparedAudit | Imported", previous: str | None) -> str:
    """Write a run, to be compared with the `previous` audit; returns its id."""
    from transexplain.store import runs  # slow to import, and a wrong request comes first

    before = None
    if previous is not None:
        run = runs.get(store, previous)
        if run.plan.task == "evaluation":
            raise ConfigurationError(f"--previous {previous}: run {run.id} is no audit")
        before = run.id
    return runs.create(store, prepared.plan, prepared.shards, before, prepared.place)


def submit(  # noqa: PLR0913 - the options of a command line
    spec: opt.SpecPath = None,
    *,
    overrides: opt.Overrides,
    set_: opt.Set = None,
    previous: opt.Previous = None,
    priority: Priority = None,
    share: Share = None,
    most_workers: MostWorkers = None,
    db: opt.DatabaseUrl = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="watch until the end, send lost messages again, report")
    ] = False,
    report_dir: opt.ReportDir = Path("audits"),
    output: opt.OutputMode,
) -> None:
    """Put an audit on the queue for workers."""
    from orchestrator.dispatch.executors import QueuedWorkers, Workforce
    from orchestrator.dispatch.run_actions import send_hints
    from transexplain.store import runs

    settings = opt.settings_with(db)
    executor = QueuedWorkers(Workforce(settings=settings))
    executor.check()
    set_ = [*(set_ or ()), *settings_of(priority, share, most_workers)]
    prepared = prepare(spec, overrides, set_, settings)
    with opt.open_store(settings) as store:
        run_id = created(store, prepared, previous)
        if not wait:
            send_hints(store, settings, run_id)
            announce(runs.progress(store, run_id), output)
        else:
            work_and_report(store, run_id, executor, report_dir, output)


def resume(
    run_id: opt.RunId = "latest",
    *,
    queue_: Queue = False,
    files_lost: FilesLost = False,
    chosen: opt.Chosen,
    host_processes: opt.HostProcesses = None,
    db: opt.DatabaseUrl = None,
    report_dir: opt.ReportDir = Path("audits"),
    output: opt.OutputMode,
) -> None:
    """Continue a run: finished shards stay, others go on, dead and damaged ones are done again."""
    from orchestrator.dispatch import run_actions

    settings = opt.settings_with(db, host_processes)
    executor = opt.ready_executor(chosen, settings, queue=queue_)
    with opt.open_store(settings) as store:
        run_id = _resumable(store, run_id, executor)
        run_actions.queue_again(store, run_id, files_lost=files_lost)
        work_and_report(store, run_id, executor, report_dir, output)


def retry(  # noqa: PLR0913 - the options of a command line
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
    files_lost: FilesLost = False,
    chosen: opt.Chosen,
    host_processes: opt.HostProcesses = None,
    db: opt.DatabaseUrl = None,
    report_dir: opt.ReportDir = Path("audits"),
    output: opt.OutputMode,
) -> None:
    """Try dead shards again and, with --failed, shards with failed items."""
    from orchestrator.dispatch import run_actions

    settings = opt.settings_with(db, host_processes)
    executor = opt.ready_executor(chosen, settings, queue=queue_)
    with opt.open_store(settings) as store:
        run_id = _resumable(store, run_id, executor)
        again = run_actions.queue_again(store, run_id, failed=failed, files_lost=files_lost)
        if not again:
            more = "" if failed else "; --failed looks at items that failed, too"
            typer.echo(f"run {run_id}: nothing to try again{more}")
            return
        typer.echo(f"run {run_id}: {again} shard{'s' if again > 1 else ''} once more")
        work_and_report(store, run_id, executor, report_dir, output)


def _resumable(store: "Database", run_id: str, executor: "Executor") -> str:
    """The full id of a run that can continue; raises ConfigurationError.

    Work here needs the run's key, hook and model; workers refuse by themselves.
    """
    from orchestrator.dispatch import run_actions
    from orchestrator.dispatch.executors import LocalProcesses
    from transexplain.auditing.text_redaction import guard_of
    from transexplain.store import runs

    run_id = run_actions.resumable(store, run_id)
    if not isinstance(executor, LocalProcesses):
        return run_id
    plan = runs.get(store, run_id).plan
    guard_of(plan)
    known = runs.progress(store, run_id)
    source = plan.model.source
    over = known.items_finished >= known.items_total
    if plan.task == "imported" or over or not Path(source).is_absolute():
        return run_id
    if not Path(source).exists():
        raise ConfigurationError(
            f"run {run_id} explains the model {source}, which is not there; put it back in that "
            "place and try again. Nothing was changed"
        )
    from transexplain.provenance.verify import model_faults  # with torch: not for a queue

    if plan.model.files and (faults := model_faults(plan.model)):
        raise ConfigurationError(
            f"run {run_id} explains another model than {source} is now: {'; '.join(faults[:3])}. "
            "Put those files back and try again, or start a new run. Nothing was changed"
        )
    return run_id


def cancel(run_id: opt.RunId, *, db: opt.DatabaseUrl = None) -> None:
    """Cancel a run; workers stop before their next batch."""
    from orchestrator.dispatch import run_actions
    from transexplain.reports import sql_results
    from transexplain.store import runs

    with opt.open_store(opt.settings_with(db)) as store:
        run = runs.get(store, run_id)
        done = run_actions.cancel(store, run.id, sql_results.close)
        typer.echo(f"run {run.id} {'cancelled' if done else f'was {run.state} already'}")


WINDOW = 10.0  #: seconds over which a rate is measured
_EVERY = 5.0  #: seconds between two lines of JSON at least


class RecentRate:
    """Items per second, over the last seconds only: it falls while nothing is done."""

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        self.clock = clock or time.monotonic
        self._begun = self.clock()
        self._added: deque[tuple[float, int]] = deque()

    def add(self, count: int) -> None:
        """So many more are done."""
        self._added.append((self.clock(), count))

    def per_second(self) -> float:
        """The rate by now."""
        now = self.clock()
        while self._added and self._added[0][0] < now - WINDOW:
            self._added.popleft()
        elapsed = min(WINDOW, now - self._begun)
        return sum(count for _, count in self._added) / elapsed if elapsed > 0 else 0.0


class _JsonLines:
    """A line on standard output every few seconds."""

    def __init__(self, total: int, done: int) -> None:
        self._total, self._done, self._checks, self._share = total, done, 0, 0.0
        self._rate, self._last, self._new = RecentRate(), float("-inf"), False

    def items(self, count: int) -> None:
        self._done += count
        self._rate.add(count)
        self._changed()

    def checks(self, count: int, share: float) -> None:
        self._checks, self._share = self._checks + count, share
        self._changed()

    def _changed(self) -> None:
        self._new = True
        if self._rate.clock() - self._last >= _EVERY:
            self.say()

    def say(self) -> None:
        """Write what is new since the last line."""
        if not self._new:
            return
        self._last, self._new, rate = self._rate.clock(), False, self._rate.per_second()
        json_line(
            "progress",
            done=self._done,
            total=self._total,
            items_per_second=round(rate, 2),
            seconds_left=round((self._total - self._done) / rate, 1) if rate else None,
            checks=self._checks,
            checks_share=round(self._share, 3),
        )


class _Rate(ProgressColumn):
    """So many a second."""

    def render(self, task: Task) -> Text:
        rate = task.fields["rate"].per_second()
        return Text(f"{rate:.1f} {task.fields['unit']}/s")


class _Left(ProgressColumn):
    """The time left at the rate of the last seconds."""

    def render(self, task: Task) -> Text:
        rate = task.fields["rate"].per_second()
        if task.total is None or task.completed >= task.total:
            return Text("")  # of checks nobody knows how many are to come
        if not rate:
            return Text("-:--:--")
        minutes, seconds = divmod(round((task.total - task.completed) / rate), 60)
        return Text(f"{minutes // 60}:{minutes % 60:02d}:{seconds:02d}")


class _Bars:
    """A bar over the items, and one over the passes of checks once there are any."""

    def __init__(self, bar: Progress, label: str, total: int, done: int) -> None:
        self._bar, self._label = bar, label
        self._rates = {"items": RecentRate()}
        self._tasks = {"items": self._add(label, "items", total, done)}

    def _add(self, label: str, unit: str, total: int | None, done: int = 0) -> Any:
        return self._bar.add_task(
            label, total=total, completed=done, rate=self._rates[unit], unit=unit
        )

    def items(self, count: int) -> None:
        self._advance("items", count)

    def checks(self, count: int, share: float) -> None:
        if "checks" not in self._tasks:
            self._rates["checks"] = RecentRate()
            self._tasks["checks"] = self._add("", "checks", None)
        description = f"{self._label}: checks, {share:.0%} of the time"
        self._bar.update(self._tasks["checks"], description=description)
        self._advance("checks", count)

    def _advance(self, unit: str, count: int) -> None:
        self._rates[unit].add(count)
        self._bar.advance(self._tasks[unit], count)


@contextmanager
def run_progress(label: str, total: int, done: int, output: opt.Output) -> Iterator[Reports]:
    """Show how far a run of `total` items is, of which `done` were done before."""
    if output == "json":
        lines = _JsonLines(total, done)
        yield Reports(lines.items, lines.checks, opt.warn)
        lines.say()
        return
    console = Console(stderr=True)
    if output == "quiet" or not console.is_terminal:
        yield Reports(wait=opt.warn)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, _Rate(), _Left(), console=console) as bar:
        bars = _Bars(bar, label, total, done)
        yield Reports(bars.items, bars.checks, opt.warn)


def json_line(event: str, **values: Any) -> None:
    """One event as a line of JSON on standard output."""
    typer.echo(json.dumps({"event": event, **values}, ensure_ascii=False))


_INTERRUPTED = 130


def announce(state: "RunProgress", output: opt.Output) -> None:
    """Print the name and the size of the run."""
    done = state.items_finished
    shards = sum(state.states.values())
    if output == "json":
        json_line("run", run=state.run_id, items=state.items_total, shards=shards, done=done)
    elif output == "bar":
        so_far = f", {done} done before" if done else ""
        size = f"{counted(state.items_total, 'item')} in {counted(shards, 'shard')}"
        typer.echo(f"run {state.run_id}: {size}{so_far}")


def work_and_report(
    store: "Database",
    run_id: str,
    executor: "Executor",
    report_dir: opt.Place,
    output: opt.Output,
    model: "LoadedModel | None" = None,
) -> None:
    """Work on a run under a progress bar, write and print its report, and end with its exit code.

    Ctrl-C and SIGTERM end the work between two batches; the run resumes. `model` is loaded already.
    """
    from orchestrator.dispatch.executors import RunJob
    from orchestrator.dispatch.finish import check_folder, exit_code, report
    from orchestrator.dispatch.stopping import stopping
    from transexplain.store import runs, shards

    check_folder(report_dir, run_id)
    before = runs.progress(store, run_id)
    done = before.items_finished
    try:
        # before the first output: from here on Ctrl-C loses nothing
        with stopping() as stop:
            announce(before, output)
            with run_progress(before.name, before.items_total, done, output) as reports:
                executor.work(RunJob(store, run_id, reports, stop, model))
    except KeyboardInterrupt:
        typer.echo(f"interrupted; `transexplain resume {run_id}` continues the run", err=True)
        raise typer.Exit(_INTERRUPTED) from None
    headline, paths, damaged = report(store, run_id, report_dir, show=output == "bar")
    code = exit_code(store, run_id) or damaged
    if output == "json":
        findings = [{"kind": finding.kind, "text": finding.text} for finding in headline]
        files = [str(path) for path in paths]
        json_line("end", run=run_id, exit_code=code, findings=findings, files=files)
    if code:
        if dead := shards.list_shards(store, run_id, states=["dead"]):
            error = " ".join((dead[0].error or "no error is known").split())
            opt.warn(
                f"{counted(len(dead), 'shard')} gave up. Shard {dead[0].shard.index}: "
                f"{error:.400}. `transexplain resume {run_id}` tries again"
            )
        if output == "quiet":
            opt.warn(f"{headline[0].text} That is beyond the tolerance; {paths[0]} lists them.")
        raise typer.Exit(code)


Baseline = Annotated[
    str | None,
    typer.Option("--baseline", help="replacement of hidden positions: mask, unk, mean, blur, ..."),
]


def evaluate(  # noqa: PLR0913 - the options of a command line
    spec: opt.SpecPath = None,
    *,
    overrides: opt.EvaluationOverrides,
    method: Annotated[
        list[str] | None,
        typer.Option("--method", help="a method, may be repeated; or `all`; default: quick ones"),
    ] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option("--metric", help="a metric, may be repeated; or `all`; default: usual ones"),
    ] = None,
    baseline: Baseline = None,
    items: Annotated[
        int | None,
        typer.Option(
            "--items", min=0, help="number of items, sampled from the data; default 200, 0: all"
        ),
    ] = None,
    set_: opt.Set = None,
    chosen: opt.Chosen,
    host_processes: opt.HostProcesses = None,
    queue_: Annotated[
        bool, typer.Option("--queue", help="leave it to workers on the queue, and wait")
    ] = False,
    db: opt.DatabaseUrl = None,
    report_dir: opt.ReportDir = Path("evaluations"),
    output: opt.OutputMode,
) -> None:
    """Measure how faithful explanations are: tables with intervals, curves, paired tests."""
    from orchestrator.spec.evaluation_section import evaluation_estimate

    settings = opt.settings_with(db, host_processes)
    executor = opt.ready_executor(chosen, settings, queue=queue_)
    overrides |= overrides_of(
        items=items or None,
        methods="all" if method == ["all"] else method,
        metrics="all" if metric == ["all"] else metric,
        baseline=int(baseline) if baseline and baseline.isdigit() else baseline,
    )
    if items == 0:
        set_ = [*(set_ or ()), "data.sample=null"]
    prepared = prepare(spec, overrides, set_, settings, task="evaluation")
    if output == "bar" and (cost := evaluation_estimate(prepared.plan)):
        typer.echo(cost.summary_text())
    with opt.open_store(settings) as store:
        run_id = created(store, prepared, None)
        work_and_report(store, run_id, executor, report_dir, output, prepared.model)


File = Annotated[
    str, typer.Argument(help="jsonl or parquet file or glob; docs/how-to/import.md has its columns")
]
Lexicons = Annotated[
    list[str] | None,
    typer.Option(
        "--lexicon",
        help="entity groups: yaml, json, csv or tsv file, or builtin:gender and such; may be "
        "repeated",
    ),
]
Reference = Annotated[
    str | None, typer.Option("--reference", help="reference group; default: all others")
]
Practical = Annotated[
    float | None,
    typer.Option("--practical", help="smallest difference that matters, in the unit of the scores"),
]
Slice = Annotated[
    str | None, typer.Option("--slice", help="column that the statistics are also split by")
]
Columns = Annotated[
    list[str] | None,
    typer.Option("--column", help="which column is which, e.g. --column scores=attr; repeatable"),
]
Classes = Annotated[
    str | None, typer.Option("--classes", help="class names by index, e.g. negative,positive")
]
Unit = Annotated[
    str, typer.Option("--unit", help="unit of the scores: logits, unit_relevance or score")
]
MethodName = Annotated[
    str, typer.Option("--method-name", help="what the attributions were made with")
]
ModelName = Annotated[str, typer.Option("--model-name", help="what the report calls the model")]


def import_(  # noqa: PLR0913 - the options of a command line
    file: File,
    *,
    lexicon: Lexicons = None,
    reference: Reference = None,
    practical: Practical = None,
    slice_: Slice = None,
    column: Columns = None,
    classes: Classes = None,
    unit: Unit = "logits",
    method_name: MethodName = "imported",
    model_name: ModelName = "imported",
    name: NameOption = None,
    set_: opt.Set = None,
    previous: opt.Previous = None,
    processes: opt.Processes = 1,
    db: opt.DatabaseUrl = None,
    report_dir: opt.ReportDir = Path("audits"),
    output: opt.OutputMode,
) -> None:
    """Group statistics and a report over attributions made elsewhere; no model is loaded."""
    from orchestrator.dispatch.executors import LocalProcesses, Workforce
    from orchestrator.plan.import_plan import import_spec, prepare_import

    settings = opt.settings_with(db)
    executor = LocalProcesses(Workforce(settings=settings, processes=processes))
    groups = {"lexicon": lexicon, "reference": reference, "practical": practical, "slice": slice_}
    spec = import_spec(file, overrides_of(name=name, **groups), set_ or (), model_name)
    prepared = prepare_import(
        *(spec, settings),
        columns=_columns(column),
        classes=tuple(map(str.strip, classes.split(","))) if classes else (),
        method=method_name,
        unit=unit,
    )
    for warning in prepared.warnings:
        opt.warn(warning)
    with opt.open_store(settings) as store:
        run_id = created(store, prepared, previous)
        work_and_report(store, run_id, executor, report_dir, output)


def _columns(pairs: list[str] | None) -> dict[str, str]:
    columns: dict[str, str] = {}
    for pair in pairs or ():
        meaning, equals, column = pair.partition("=")
        if not (meaning and equals and column):
            raise ConfigurationError(f"--column {pair!r} is not meaning=column")
        columns[meaning] = column
    return columns
