"""Reads what pages show of workers and schedules, without the columns that are kept secret."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Subquery, and_, case, func, or_, select

from transexplain.store.columns import DatabaseTime
from transexplain.store.database import Database
from transexplain.store.result_tables import run_result
from transexplain.store.schema import (
    fire_delivery,
    run,
    schedule,
    schedule_fire,
    schedule_receiver,
    shard,
)
from transexplain.store.shard_blocks import pending


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerRate:
    """What one worker saved in runs that run, or ended a short time ago."""

    worker: str
    shards: int
    items: int
    seconds: float  #: computing

    @property
    def rate(self) -> float | None:
        """Items a second, of its own computing time."""
        return self.items / self.seconds if self.seconds else None


def worker_rates(db: Database, recent: float) -> list[WorkerRate]:
    """Of each worker by name; `recent` in seconds."""
    current = or_(run.c.state == "running", run.c.finished > DatabaseTime() - recent)
    query = (
        select(
            shard.c.worker,
            func.count(),
            func.sum(shard.c.explained + shard.c.failed),
            func.coalesce(func.sum(shard.c.seconds), 0.0),
        )
        .join(run, run.c.id == shard.c.run_id)
        .where(current, shard.c.state == "done", shard.c.worker.is_not(None))
        .group_by(shard.c.worker)
        .order_by(shard.c.worker)
    )
    with db.read() as connection:
        return [
            WorkerRate(worker=str(name), shards=count, items=int(items), seconds=float(seconds))
            for name, count, items, seconds in connection.execute(query)
        ]


#: in the queue, and since when a run is paused
_PLACE = ("priority", "share", "most_workers", "paused")
_STATES = {"queued": "queued", "in_work": "running"}


def running_runs(db: Database, limit: int) -> list[dict[str, Any]]:
    """Runs that are not over, with their shards and items, the newest first."""
    done = func.sum(shard.c.explained + shard.c.failed)
    query = (
        select(
            run.c.id,
            run.c.name,
            run.c.created,
            func.count().label("shards"),
            *(
                func.sum(case((shard.c.state == state, 1), else_=0)).label(name)
                for name, state in _STATES.items()
            ),
            func.sum(shard.c.stop - shard.c.start).label("items"),
            done.label("items_done"),
            func.max(shard.c.heartbeat).label("last_sign"),
            *(run.c[column] for column in _PLACE),
        )
        .join(shard, shard.c.run_id == run.c.id)
        .where(run.c.state == "running")
        .group_by(run.c.id, run.c.name, run.c.created, *(run.c[column] for column in _PLACE))
        .order_by(run.c.created.desc(), run.c.id.desc())
        .limit(limit)
    )
    with db.read() as connection:
        places = [dict(row) for row in connection.execute(query).mappings()]
        left = pending(connection, [row["id"] for row in places])
    for row in places:
        if (more := left.get(row["id"])) is not None:
            row["shards"] += more.shards
            row["items"] += more.rows
    return places


_SCHEDULE = ("name", "cron", "time_zone", "state", "on_change", "created", "since", "retry_at")
_UNDELIVERED = ("waiting", "failed")
_FIRE = ("schedule", "at", "created", "run_id", "previous")


def schedule_rows(db: Database, *, errors: bool) -> list[dict[str, Any]]:
    """Every schedule by name, without its specification and receivers.

    `errors`: with why an audit could not be prepared, which may quote the data.
    """
    names = (*_SCHEDULE, "error") if errors else _SCHEDULE
    query = select(*(schedule.c[name] for name in names)).order_by(schedule.c.name)
    with db.read() as connection:
        return [dict(row) for row in connection.execute(query).mappings()]


def receiver_rows(db: Database, name: str) -> list[dict[str, Any]]:
    """The receivers of a schedule without their addresses, each with its last delivery.

    `state` is None where nothing was to be delivered yet.
    """
    whose, made = schedule_receiver.c, fire_delivery.c
    last = (
        select(func.max(made.at))
        .where(made.schedule == whose.schedule, made.number == whose.number)
        .correlate(schedule_receiver)
        .scalar_subquery()
    )
    query = (
        select(
            *(whose.number, whose.kind, made.at, made.state, made.attempts),
            *(made.delivered, made.next_at),
        )
        .join_from(
            schedule_receiver,
            fire_delivery,
            and_(made.schedule == whose.schedule, made.number == whose.number, made.at == last),
            isouter=True,
        )
        .where(whose.schedule == name)
        .order_by(whose.number)
    )
    with db.read() as connection:
        return [dict(row) for row in connection.execute(query).mappings()]


def _deliveries() -> Subquery:
    """Of each fire the state of its deliveries together, the most attempts and the last success."""
    at = fire_delivery.c
    waiting, failed = (func.sum(case((at.state == state, 1), else_=0)) for state in _UNDELIVERED)
    return (
        select(
            at.schedule,
            at.at,
            case((waiting > 0, "waiting"), (failed > 0, "failed"), else_="posted").label("post"),
            func.max(at.attempts).label("post_attempts"),
            func.max(at.delivered).label("posted"),
        )
        .group_by(at.schedule, at.at)
        .subquery()
    )


def fire_rows(db: Database, name: str, limit: int) -> list[dict[str, Any]]:
    """The newest fires of a schedule first, with the state and the verdict of their runs."""
    made = _deliveries()
    query = (
        select(
            *(schedule_fire.c[column] for column in _FIRE),
            made.c.post,
            func.coalesce(made.c.post_attempts, 0).label("post_attempts"),
            made.c.posted,
            run.c.state,
            run.c.paused,
            run_result.c.verdict_kind,
            run_result.c.verdict,
        )
        .join_from(schedule_fire, run, run.c.id == schedule_fire.c.run_id, isouter=True)
        .join(run_result, run_result.c.run_id == schedule_fire.c.run_id, isouter=True)
        .join(
            made,
            and_(made.c.schedule == schedule_fire.c.schedule, made.c.at == schedule_fire.c.at),
            isouter=True,
        )
        .where(schedule_fire.c.schedule == name)
        .order_by(schedule_fire.c.at.desc())
        .limit(limit)
    )
    with db.read() as connection:
        return [dict(row) for row in connection.execute(query).mappings()]
