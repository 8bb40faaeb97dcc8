"""Verbs that read the store: status (once, or watching) and report."""

import json
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from textwrap import indent
from typing import Annotated

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from orchestrator.cli import options as opt
from orchestrator.cli.fleet_commands import place_text
from transexplain.errors import ConfigurationError
from transexplain.store import fleet_state, runs, shards
from transexplain.store.database import Database
from transexplain.store.fleet_state import WorkerStatus, device_times
from transexplain.store.runs import RunProgress
from transexplain.types.device_time import DeviceTime, together
from transexplain.types.plans import NO_PREFERENCE

WINDOW = 60.0  #: seconds over which the rate is measured
Wait = Callable[[float], bool]


class WorkRate:
    """Items per second over the last minute, from snapshots of one run."""

    def __init__(self) -> None:
        self._points: deque[tuple[float, int]] = deque()

    def note(self, elapsed: float, finished: int) -> float:
        """Add a snapshot (seconds of the run, items finished by then); returns the current rate.

        Before there is a second look, and while shards last longer than the window, it is the
        mean over the whole run.
        """
        self._points.append((elapsed, finished))
        while len(self._points) > 2 and self._points[1][0] <= elapsed - WINDOW:
            self._points.popleft()
        then, before = self._points[0]
        if finished > before:
            return (finished - before) / (elapsed - then)
        return finished / elapsed if elapsed else 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class RunSnapshot:
    """The state of one run at one moment."""

    progress: RunProgress
    rate: float  #: items per second
    failures: dict[str, int]  #: kind -> items
    devices: Mapping[str, DeviceTime]  #: worker -> its time on the shards that it saved

    @property
    def left(self) -> float | None:
        """Seconds still to go at this rate; None: unknown, or nothing left."""
        rest = self.progress.items_total - self.progress.items_finished
        running = self.progress.state == "running"
        return rest / self.rate if running and rest and self.rate else None


Snapshots = tuple[list[RunSnapshot], tuple[WorkerStatus, ...]]


def show(db: Database, run_id: str | None, console: Console, *, every: float, wait: Wait) -> None:
    """Show one run, or all that run, until none runs any more or `wait` (seconds) says to stop.

    On a terminal one picture that is renewed; elsewhere a line per run and snapshot.
    """
    if not console.is_terminal:
        for snapshots, workers in _snapshots(db, run_id, every, wait):
            for line in lines(snapshots, workers):
                console.print(line, soft_wrap=True, markup=False, highlight=False)
        return
    with Live(console=console, auto_refresh=False) as live:
        for snapshots, workers in _snapshots(db, run_id, every, wait):
            live.update(picture(snapshots, workers), refresh=True)


def _snapshots(db: Database, run_id: str | None, every: float, wait: Wait) -> Iterator[Snapshots]:
    """The state of the watched runs and their workers; a run that was seen once stays."""
    rates: dict[str, WorkRate] = defaultdict(WorkRate)
    seen = [run_id] if run_id else []
    while True:
        if not run_id:
            running = [run.id for run in runs.list_runs(db) if run.state == "running"]
            seen = list(dict.fromkeys((*seen, *running)))
        snapshots = []
        for watched in seen:
            state = runs.progress(db, watched)
            snapshots.append(
                RunSnapshot(
                    progress=state,
                    rate=rates[watched].note(state.elapsed, state.items_finished),
                    failures=runs.failures(db, watched) if state.items_failed else {},
                    devices={times.worker or "": times for times in device_times(db, watched)},
                )
            )
        workers = fleet_state.status(db).workers
        yield snapshots, tuple(worker for worker in workers if worker.run_id in seen)
        if all(snapshot.progress.state != "running" for snapshot in snapshots) or wait(every):
            return


def lines(snapshots: Sequence[RunSnapshot], workers: Sequence[WorkerStatus]) -> list[str]:
    """One line per run: counts, rate, time left, workers, failures."""
    if not snapshots:
        return ["no run runs"]
    rows = []
    for snapshot in snapshots:
        state = snapshot.progress
        at_work = [worker for worker in workers if worker.run_id == state.run_id]
        oldest = max((worker.heartbeat_age for worker in at_work), default=0.0)
        rows.append(
            f"{state.run_id}  {state.name}  {_state(state)}  "
            f"{state.items_finished}/{state.items_total} items  {snapshot.rate:.1f} items/s  "
            f"left {span(snapshot.left)}  shards: {_counts(state.states)}"
            f"  workers: {len(at_work)} (oldest heartbeat {oldest:.0f} s)"
            f"  failures: {_counts(snapshot.failures)}"
            f"{_waited(together(snapshot.devices.values()))}"
        )
    return rows


def picture(snapshots: Sequence[RunSnapshot], workers: Sequence[WorkerStatus]) -> RenderableType:
    """The runs and the workers as two tables."""
    of_runs = Table(
        "run", "name", "state", "items", "items/s", "left", "waited", "shards", "failures"
    )
    for snapshot in snapshots:
        state = snapshot.progress
        of_runs.add_row(
            state.run_id,
            Text(state.name),
            _state(state),
            f"{state.items_finished}/{state.items_total}",
            f"{snapshot.rate:.1f}",
            span(snapshot.left),
            _share(together(snapshot.devices.values()).waited),
            _counts(state.states),
            Text(_counts(snapshot.failures)),
        )
    of_workers = Table("worker", "run", "shards", "heartbeat", "lease", "waited")
    devices = {snapshot.progress.run_id: snapshot.devices for snapshot in snapshots}
    for worker in workers:
        time = devices.get(worker.run_id, {}).get(worker.name)
        lease = f"{worker.lease_left:.0f} s" if worker.lease_left > 0 else "lost"
        of_workers.add_row(
            Text(worker.name),
            worker.run_id,
            str(worker.shards),
            f"{worker.heartbeat_age:.0f} s",
            lease,
            _share(time.waited if time else None),
        )
    return Group(of_runs, of_workers)


def span(seconds: float | None) -> str:
    """A length of time for people: `3 h 04 min`, `2 min 05 s`, `40 s`; unknown is a dash."""
    if seconds is None:
        return "-"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def _waited(time: DeviceTime) -> str:
    """The share of time that the device waited for the host, by cause; "" if unknown."""
    if time.waited is None:
        return ""
    stages = ", ".join(f"{name} {share:.1%}" for name, share in time.stages.items())
    return f"  device waited {time.waited:.1%}{f' ({stages})' if stages else ''}"


def _share(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count) or "none"


def status(
    run_id: Annotated[str | None, typer.Argument(help="run id or `latest`; default: all")] = None,
    *,
    watch: Annotated[bool, typer.Option("--watch", help="repeat until no run is active")] = False,
    every: Annotated[
        float, typer.Option("--every", min=0.2, help="seconds between snapshots, with --watch")
    ] = 2.0,
    json_: opt.AsJson = False,
    db: opt.DatabaseUrl = None,
) -> None:
    """Show the progress of runs."""
    from orchestrator.dispatch.stopping import stopping

    if watch:
        if json_:
            raise ConfigurationError("--watch is for people, --json for programs; give one")
        with opt.open_store(opt.settings_with(db)) as store, stopping() as stop:
            watched = runs.get(store, run_id).id if run_id else None
            show(store, watched, Console(), every=every, wait=stop.wait)
        return
    with opt.open_store(opt.settings_with(db)) as store:
        listed = [runs.get(store, run_id)] if run_id else runs.list_runs(store)
        states = [runs.progress(store, run.id) for run in listed]
        devices = [device_times(store, run.id) for run in listed]
        notes = _notes(store, listed[0].id if run_id else None)
    if json_:
        documents = []
        for state, times in zip(states, devices, strict=True):
            workers = [device.document for device in times]
            device = {**together(times).document, "workers": workers}
            documents.append({**asdict(state), "device": device})
        typer.echo(json.dumps(documents, indent=2))
        return
    for state, times in zip(states, devices, strict=True):
        finished = state.items_finished
        rate = finished / state.elapsed if state.elapsed else 0.0
        typer.echo(
            f"{state.run_id}  {state.name}  {_state(state)}  {finished}/{state.items_total} items "
            f"({state.items_failed} failed)  {rate:.1f} items/s  shards: {_counts(state.states)}"
            f"{_waited(together(times))}"
        )
        for worker_times in times if run_id and len(times) > 1 else ():
            typer.echo(f"  worker {worker_times.worker}:{_waited(worker_times)}")
    if not states:
        typer.echo("no runs yet; `transexplain run --model MODEL --data DATA` makes one")
    for note in notes:
        typer.echo(note)


def _notes(store: Database, run_id: str | None) -> list[str]:
    """The problems: shards of this run, or else messages that no worker took."""
    if run_id:
        notes, seen = [], set[str]()
        for shard in shards.list_shards(store, run_id):
            if shard.error or shard.state == "dead":
                notes.append(
                    f"  shard {shard.shard.index} {shard.state} after {shard.attempt} attempts: "
                    f"{shard.error}"
                )
                if shard.traceback and shard.traceback not in seen:  # many shards fail alike
                    seen.add(shard.traceback)
                    notes.append(indent(shard.traceback, " " * 4))
        return notes
    refused = fleet_state.status(store).refused
    by_reason = ", ".join(f"{count} {reason}" for reason, count in refused.items())
    return [f"messages that workers refused: {by_reason}"] if refused else []


def _state(state: RunProgress) -> str:
    """The state of a run, with its place in the queue where that is another than by default."""
    if state.state != "running":
        return state.state
    place = "" if state.place == NO_PREFERENCE else f" ({place_text(state.place)})"
    return f"{'paused' if state.paused else 'running'}{place}"


def report(
    run_id: opt.RunId = "latest",
    *,
    report_dir: opt.ReportDir = Path("audits"),
    checked: Annotated[
        Path | None,
        typer.Option("--checked", help="a sheet of `matches` that a person filled: precision"),
    ] = None,
    sign: Annotated[
        Path | None,
        typer.Option(
            "--sign", help="private key (PEM): sign the report and the manifest beside it"
        ),
    ] = None,
    redact: opt.Redact = False,
    min_count: opt.MinCount = None,
    json_: opt.AsJson = False,
    db: opt.DatabaseUrl = None,
) -> None:
    """Write the report of an audit or evaluation again, or print it as JSON.

    Exit code 3 where stored results are not those that were saved.
    """
    from transexplain.reports.redaction import fewest_of

    fewest = fewest_of(redact, min_count)
    if json_ and sign is not None:
        raise ConfigurationError("--sign signs files, and --json prints one; leave out --json")
    with opt.open_store(opt.settings_with(db)) as store:
        run_id = runs.get(store, run_id).id
        from orchestrator.dispatch import finish  # slow to import, and a wrong request comes first

        options = finish.ReportOptions(checked=checked, fewest=fewest, sign=sign)
        if json_:
            text, code = finish.as_json(store, run_id, options)
            typer.echo(text)
        else:
            code = finish.report(store, run_id, report_dir, options).exit_code
    raise typer.Exit(code)
