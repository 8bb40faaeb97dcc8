"""Verbs for those who size a fleet: fleet waiting, fleet size."""

import json
import re
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from orchestrator.cli import options as opt
from transexplain.errors import ConfigurationError

if TYPE_CHECKING:
    from transexplain.types.plans import DeviceClass

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
    from transexplain.store import fleet_demand

    known, modalities = _class_of(device), opt.modalities_of(modality) if modality else ()
    if sql:
        typer.echo(fleet_demand.demand_sql(known, modalities))
        return
    with opt.open_store(opt.settings_with(db)) as store:
        typer.echo(fleet_demand.demand(store, known, modalities))


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
    found = fleet_size.fleet_size(left, seconds, start=start)
    if json_:
        runs = [{**asdict(one), "shard_seconds": one.shard_seconds} for one in left]
        typer.echo(json.dumps({**asdict(found), "seconds": seconds, "runs": runs}, indent=2))
    else:
        for note in found.notes:
            opt.warn(note)
        typer.echo(found.workers)
    if not found.in_time:
        raise typer.Exit(_LATE)


def _class_of(given: str | None) -> "DeviceClass | None":
    from transexplain.types.plans import DeviceClass

    for one in get_args(DeviceClass):
        if one == given:
            return one  # type: ignore[no-any-return]
    if given is None:
        return None
    raise ConfigurationError(f"--device-class {given}: known are cpu and gpu")


def _seconds_until(given: str, now: datetime) -> float:
    """The seconds to a length of time, a time of day or a moment; `now` says the time zone."""
    if found := _LENGTH.fullmatch(given):
        return timedelta(**{_UNITS[found[2]]: int(found[1])}).total_seconds()
    try:
        if found := _CLOCK.fullmatch(given):
            at = now.replace(hour=int(found[1]), minute=int(found[2]), second=0, microsecond=0)
            at += timedelta(days=at <= now)
        else:
            at = datetime.fromisoformat(given)
            at = at if at.tzinfo else at.replace(tzinfo=now.tzinfo)
    except ValueError:
        raise ConfigurationError(
            f"--by {given!r} is no time; write 2h, 90min, 06:00 or 2026-11-26T06:00"
        ) from None
    if at <= now:
        raise ConfigurationError(f"--by {given} is past; it is {now:%Y-%m-%dT%H:%M%z} now")
    return (at - now).total_seconds()
