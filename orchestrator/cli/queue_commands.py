"""Verbs for runs that wait for workers: pause, unpause, queue."""

import json
from dataclasses import asdict
from typing import Annotated, Any

import typer

from orchestrator.cli import options as opt
from transexplain.errors import ConfigurationError
from transexplain.types.queue_place import QueuePlace

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
    found = [f"queue.{name}={value}" for name, value in values.items() if value is not None]
    return [*found, "queue.most_workers=null"] if most_workers == 0 else found


def pause(run_id: opt.RunId, *, db: opt.DatabaseUrl = None) -> None:
    """Hand out no more shards of a run; those in hand are finished."""
    from transexplain.store import queueing, runs

    with opt.open_store(opt.settings_with(db)) as store:
        found = runs.get(store, run_id).id
        done = queueing.pause(store, found)
        _refuse_over(runs.progress(store, found).state, found, "paused")
        rest = f"`transexplain unpause {found}` lets it go on"
        typer.echo(f"run {found} {'paused' if done else 'was paused already'}; {rest}")


def unpause(run_id: opt.RunId, *, db: opt.DatabaseUrl = None) -> None:
    """Hand out shards of a paused run again."""
    from transexplain.store import queueing, runs

    with opt.open_store(opt.settings_with(db)) as store:
        found = runs.get(store, run_id).id
        done = queueing.unpause(store, found)
        _refuse_over(runs.progress(store, found).state, found, "unpaused")
        typer.echo(f"run {found} {'goes on' if done else 'was not paused'}")


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

    values = _values(priority, share, most_workers)
    with opt.open_store(opt.settings_with(db)) as store:
        found = runs.get(store, run_id)
        place = queueing.change(store, found.id, **values)
        _refuse_over(found.state if place else runs.progress(store, found.id).state, found.id, "")
    if place is None:
        return
    if json_:
        typer.echo(json.dumps({"run_id": found.id, **asdict(place)}, indent=2))
    else:
        typer.echo(f"run {found.id}: {place_text(place)}")


def _values(priority: int | None, share: float | None, most_workers: int | None) -> dict[str, Any]:
    values: dict[str, Any] = {"priority": priority, "share": share, "most_workers": most_workers}
    values = {name: value for name, value in values.items() if value is not None}
    if share is not None and not 0 < share < float("inf"):
        raise ConfigurationError(f"--share {share}: give a number above 0, such as 2")
    if most_workers == 0:
        values["most_workers"] = None
    return values


def _refuse_over(state: str, run_id: str, what: str) -> None:
    if state != "running":
        can = f"it cannot be {what}" if what else "it waits for no workers"
        raise ConfigurationError(f"run {run_id} is {state}; {can}")


def place_text(place: QueuePlace) -> str:
    """A place in the queue for people."""
    cap = "no cap" if place.most_workers is None else f"at most {place.most_workers} workers"
    return f"priority {place.priority}, share {place.share:g}, {cap}"
