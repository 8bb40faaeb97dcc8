"""Verbs for those who size a fleet: fleet waiting, fleet size."""

import json
import re
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Annotated, Any, cast, get_args

import typer

from orchestrator.cli import options as opt
from transexplain.errors import ConfigurationError
from transexplain.types.plans import DeviceClass, QueuePlace

_LENGTH = re.compile(r"(\d+)(min|h|d|s)")
_CLOCK = re.compile(r"(\d{1,2}):(\d{2})")
_UNITS = {"s": "seconds", "min": "minutes", "h": "hours", "d": "days"}
_LATE = 1  #: exit code where no number of workers is in time

DeviceOption = Annotated[
    str | None,
    typer.Option("--device-class", help="of plans for cpu, or for gpu (any accelerator); both"),
]


def fleet_group() -> typer.Typer:
    """The verb `fleet` with its own verbs."""
    group = typer.Typer(name="fleet", no_args_is_help=True, add_completion=False)
    for verb in (waiting, size):
        group.command()(verb)
    return group


def waiting(
    *,
    device: DeviceOption = None,
    modality: opt.Modalities = None,
    sql: Annotated[
        bool, typer.Option("--sql", help="print the query, for an autoscaler that asks SQL")
    ] = False,
    db: opt.DatabaseUrl = None,
) -> None:
    """Count the shards that need a worker: they wait, or are in a worker's hand.

    Runs that are paused count with what is in hand, those with a cap up to it. The number stands
    alone on its line.
    """
    from transexplain.store import fleet_state

    known, modalities = _class_of(device), opt.modalities_of(modality) if modality else ()
    if sql:
        typer.echo(fleet_state.demand_sql(known, modalities))
        return
    with opt.open_store(opt.settings_with(db)) as store:
        typer.echo(fleet_state.demand(store, known, modalities))


def size(
    *,
    by: Annotated[
        str,
        typer.Option("--by", help="2h, 90min, 06:00 (the next), or 2026-11-26T06:00 (local time)"),
    ],
    start: Annotated[
        float,
        typer.Option("--start", min=0, help="seconds until a worker that is asked for now works"),
    ] = 60.0,
    device: DeviceOption = None,
    json_: opt.AsJson = False,
    db: opt.DatabaseUrl = None,
) -> None:
    """Say how many workers finish the runs that wait by a time, from their measured rates.

    The number stands alone on its line; what has to be said about it goes to standard error. Exit
    code 1: no number is enough, and this is the most that can be of use.
    """
    from orchestrator.dispatch import fleet_size

    seconds = _seconds_until(by, datetime.now().astimezone())
    with opt.open_store(opt.settings_with(db)) as store:
        left = fleet_size.work_left(store, _class_of(device))
    workers = fleet_size.fleet_size(left, seconds, start=start)
    if json_:
        runs = [{**asdict(work), "shard_seconds": work.shard_seconds} for work in left]
        typer.echo(json.dumps({**asdict(workers), "seconds": seconds, "runs": runs}, indent=2))
    else:
        for note in workers.notes:
            opt.warn(note)
        typer.echo(workers.workers)
    if not workers.in_time:
        raise typer.Exit(_LATE)


def _class_of(name: str | None) -> DeviceClass | None:
    if name is not None and name not in get_args(DeviceClass):
        raise ConfigurationError(f"--device-class {name}: known are cpu and gpu")
    return cast("DeviceClass | None", name)


def _seconds_until(text: str, now: datetime) -> float:
    """The seconds to a length of time, a time of day or a moment; `now` says the time zone."""
    if match := _LENGTH.fullmatch(text):
        return timedelta(**{_UNITS[match[2]]: int(match[1])}).total_seconds()
    try:
        if match := _CLOCK.fullmatch(text):
            at = now.replace(hour=int(match[1]), minute=int(match[2]), second=0, microsecond=0)
            at += timedelta(days=at <= now)
        else:
            at = datetime.fromisoformat(text)
            at = at if at.tzinfo else at.replace(tzinfo=now.tzinfo)
    except ValueError:
        raise ConfigurationError(
            f"--by {text!r} is no time; write 2h, 90min, 06:00 or 2026-11-26T06:00"
        ) from None
    if at <= now:
        raise ConfigurationError(f"--by {text} is past; it is {now:%Y-%m-%dT%H:%M%z} now")
    return (at - now).total_seconds()


Priority = Annotated[
    int | None,
    typer.Option(
        "--priority", min=-1000, max=1000, help="among runs that wait for workers; higher first"
    ),
]
Share = Annotated[
    float | None,
    typer.Option(
        "--share", help="above 0: weight among runs of one priority, by which workers are divided"
    ),
]
MostWorkers = Annotated[
    int | None,
    typer.Option("--most-workers", min=0, help="shards in hand at once; 0: no cap"),
]


def settings_of(priority: int | None, share: float | None, most_workers: int | None) -> list[str]:
    """The options as `--set` texts."""
    values = {"priority": priority, "share": share, "most_workers": most_workers or None}
    overrides = [f"queue.{name}={value}" for name, value in values.items() if value is not None]
    return [*overrides, "queue.most_workers=null"] if most_workers == 0 else overrides


def pause(run_id: opt.RunId, *, db: opt.DatabaseUrl = None) -> None:
    """Hand out no more shards of a run; those in hand are finished."""
    from transexplain.store import queueing, runs

    with opt.open_store(opt.settings_with(db)) as store:
        run_id = runs.get(store, run_id).id
        done = queueing.pause(store, run_id)
        _refuse_over(runs.progress(store, run_id).state, run_id, "it cannot be paused")
        rest = f"`transexplain unpause {run_id}` lets it go on"
        typer.echo(f"run {run_id} {'paused' if done else 'was paused already'}; {rest}")


def unpause(run_id: opt.RunId, *, db: opt.DatabaseUrl = None) -> None:
    """Hand out shards of a paused run again."""
    from transexplain.store import queueing, runs

    with opt.open_store(opt.settings_with(db)) as store:
        run_id = runs.get(store, run_id).id
        done = queueing.unpause(store, run_id)
        _refuse_over(runs.progress(store, run_id).state, run_id, "it cannot be unpaused")
        typer.echo(f"run {run_id} {'goes on' if done else 'was not paused'}")


def queue(
    run_id: opt.RunId,
    *,
    priority: Priority = None,
    share: Share = None,
    most_workers: MostWorkers = None,
    json_: opt.AsJson = False,
    db: opt.DatabaseUrl = None,
) -> None:
    """Change or show the priority, the share and the cap of a run that works."""
    from transexplain.store import queueing, runs

    values: dict[str, Any] = {"priority": priority, "share": share, "most_workers": most_workers}
    values = {name: value for name, value in values.items() if value is not None}
    if share is not None and not 0 < share < float("inf"):
        raise ConfigurationError(f"--share {share}: give a number above 0, such as 2")
    if most_workers == 0:
        values["most_workers"] = None
    with opt.open_store(opt.settings_with(db)) as store:
        run = runs.get(store, run_id)
        place = queueing.change(store, run.id, **values)
        state = run.state if place else runs.progress(store, run.id).state
        _refuse_over(state, run.id, "it waits for no workers")
    if place is None:
        return
    if json_:
        typer.echo(json.dumps({"run_id": run.id, **asdict(place)}, indent=2))
    else:
        typer.echo(f"run {run.id}: {place_text(place)}")


def _refuse_over(state: str, run_id: str, what: str) -> None:
    if state != "running":
        raise ConfigurationError(f"run {run_id} is {state}; {what}")


def place_text(place: QueuePlace) -> str:
    """A place in the queue for people."""
    cap = "no cap" if place.most_workers is None else f"at most {place.most_workers} workers"
    return f"priority {place.priority}, share {place.share:g}, {cap}"


def metrics_server(
    *,
    host: Annotated[
        str, typer.Option("--host", help="address to listen on; 0.0.0.0: every one")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=1, max=65535)] = 9464,
    broker: Annotated[bool, typer.Option("--broker", help="/readyz asks the broker, too")] = False,
    db: opt.DatabaseUrl = None,
) -> None:
    """Answer Prometheus at /metrics with the fleet's state, until SIGTERM or Ctrl-C.

    /healthz says that the process lives, /readyz that the database answers and its tables fit.
    Messages that wait are counted where TRANSEXPLAIN_BROKER_URL names a broker.
    """
    from orchestrator.dispatch.queue import check_broker
    from orchestrator.dispatch.stopping import stopping
    from orchestrator.monitoring.fleet_metrics import FleetCollector
    from orchestrator.monitoring.metrics_http import monitoring_app, serve_metrics
    from orchestrator.monitoring.probes import BrokerQueues, Readiness, database_check
    from transexplain.settings import secret

    settings = opt.settings_with(db)
    with opt.open_store(settings) as store, stopping() as stop:
        checks = [database_check(store)]
        if broker:
            checks.append(lambda: check_broker(settings))
        queues = BrokerQueues(settings) if broker or secret("BROKER_URL") is not None else None
        collector = FleetCollector(store, settings.queue, queues)
        app = monitoring_app(collector, Readiness(checks))
        server = serve_metrics(app, host=host, port=port)
        typer.echo(f"metrics of {store.name} at http://{host}:{port}/metrics")
        stop.wait()
        server.shutdown()
        server.server_close()
