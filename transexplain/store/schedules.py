"""Schedules: what is audited again and when, the run of each fire, and the verdicts to post."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

from sqlalchemy import Connection, RowMapping, exc, insert, or_, select, update
from sqlalchemy import delete as delete_rows

from transexplain.errors import ConfigurationError
from transexplain.store import runs
from transexplain.store.columns import DatabaseTime, is_due
from transexplain.store.database import Database
from transexplain.store.deliveries import (
    DeliveryState,
    FireDelivery,
    Receiver,
    deliveries_of,
    drop_receivers,
    expect,
    receivers_of,
    write_receivers,
)
from transexplain.store.schema import run, schedule, schedule_fire
from transexplain.types.plans import AuditPlan, Shard
from transexplain.types.queue_place import NO_PREFERENCE, QueuePlace

ScheduleState = Literal["active", "paused"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Planned:
    """A schedule as a person requests it."""

    name: str
    cron: str  #: minute hour day month weekday
    time_zone: str  #: of the cron expression, e.g. Europe/Berlin
    spec: Mapping[str, Any]  #: the resolved audit specification, paths absolute
    on_change: bool = False  #: no run where model and data are those of the run before
    receivers: tuple[Receiver, ...] = ()  #: who gets the verdict of a finished run


@dataclass(frozen=True, kw_only=True, slots=True)
class Schedule(Planned):
    """A schedule as it stands; times are seconds since the epoch, database time."""

    state: ScheduleState
    created: float
    since: float  #: fires until then are settled
    error: str | None  #: why the audit could not be prepared the last time
    retry_at: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Fire:
    """One fire of a schedule."""

    schedule: str
    at: float  #: what the cron expression named, or the moment of `run-now`
    created: float
    run_id: str | None  #: None: nothing had changed, or the run was deleted
    previous: str | None  #: the run to compare with
    deliveries: tuple[FireDelivery, ...] = ()  #: of the verdict, one for each receiver

    @property
    def post(self) -> DeliveryState | None:
        """Of all deliveries: `waiting` while one waits, else `failed` where one has failed.

        None: there was no receiver, or there is no run.
        """
        found = {one.state for one in self.deliveries}
        states: tuple[DeliveryState, ...] = ("waiting", "failed", "posted")
        return next((one for one in states if one in found), None)


#: a plan and its shards
Drawn = tuple[AuditPlan, Sequence[Shard]]
_LONGEST_BETWEEN_TRIES = 24 * 3600.0  # seconds; no preparation is put off further


def now(db: Database) -> float:
    """Seconds since the epoch by the database's clock."""
    with db.read() as connection:
        return float(connection.execute(select(DatabaseTime())).scalar_one())


def add(db: Database, planned: Planned) -> None:
    """Write a new active schedule; raises ConfigurationError where its name is taken."""
    values = {name: getattr(planned, name) for name in _PLANNED}
    moment = DatabaseTime()
    with db.begin() as connection:
        try:
            connection.execute(
                insert(schedule).values(**values, state="active", created=moment, since=moment)
            )
        except exc.IntegrityError:
            raise ConfigurationError(
                f"there is a schedule {planned.name!r} already; choose another name or remove it"
            ) from None
        write_receivers(connection, planned.name, planned.receivers)


def get(db: Database, name: str) -> Schedule:
    """The schedule of this name; raises ConfigurationError, naming those there are."""
    with db.read() as connection:
        row = connection.execute(select(schedule).where(schedule.c.name == name)).mappings().first()
        if row is None:
            raise _unknown(connection, name)
        return _schedules(connection, [row])[0]


def list_schedules(db: Database) -> list[Schedule]:
    """Every schedule, by name."""
    with db.read() as connection:
        found = connection.execute(select(schedule).order_by(schedule.c.name)).mappings()
        return _schedules(connection, found.all())


def ready(db: Database) -> list[Schedule]:
    """Active schedules whose preparation did not fail just now, longest unfired first.

    One that is settled until a moment ahead, which the clock was set back from, fires from now on.
    """
    _rewind(db)
    query = (
        select(schedule)
        .where(
            schedule.c.state == "active",
            or_(schedule.c.retry_at.is_(None), is_due(schedule.c.retry_at, _LONGEST_BETWEEN_TRIES)),
        )
        .order_by(schedule.c.since, schedule.c.name)
    )
    with db.read() as connection:
        return _schedules(connection, connection.execute(query).mappings().all())


def set_state(db: Database, name: str, state: ScheduleState) -> bool:
    """Pause or resume; False: it was so already. What fell into a pause is not caught up."""
    values: dict[str, Any] = {"state": state, "error": None, "retry_at": None}
    if state == "active":
        values["since"] = DatabaseTime()
    with db.begin() as connection:
        changed = connection.execute(
            update(schedule)
            .where(schedule.c.name == name, schedule.c.state != state)
            .values(**values)
        )
        if changed.rowcount == 0:
            _require(connection, name)
        return changed.rowcount == 1


def change_receivers(
    db: Database, name: str, *, added: Sequence[Receiver] = (), removed: Sequence[int] = ()
) -> int:
    """Remove receivers of a schedule by their numbers and add others, all or nothing.

    A number stays with its receiver; new ones get verdicts of runs that are made from now on.
    Returns how many deliveries waited for those that were removed, and are dropped with them.
    Raises ConfigurationError where there is no such schedule, or no receiver of such a number.
    """
    with db.begin() as connection:
        # held until the end: two that add at once would take the same number
        held = select(schedule.c.name).where(schedule.c.name == name).with_for_update()
        if connection.execute(held).first() is None:
            raise _unknown(connection, name)
        known = {one.number for one in receivers_of(connection, [name]).get(name, ())}
        if missing := sorted(set(removed) - known):
            there = f"there are: {', '.join(map(str, sorted(known)))}" if known else "it has none"
            raise ConfigurationError(f"schedule {name!r} has no receiver {missing[0]}; {there}")
        dropped = drop_receivers(connection, name, removed)
        write_receivers(connection, name, added)
    return dropped


def remove(db: Database, name: str) -> None:
    """Delete a schedule and the record of its fires; its runs stay."""
    with db.begin() as connection:
        _require(connection, name)
        connection.execute(delete_rows(schedule).where(schedule.c.name == name))


def fires(db: Database, name: str, limit: int = 20) -> list[Fire]:
    """The newest fires of a schedule first."""
    query = (
        select(schedule_fire)
        .where(schedule_fire.c.schedule == name)
        .order_by(schedule_fire.c.at.desc())
        .limit(limit)
    )
    with db.read() as connection:
        rows = connection.execute(query).mappings().all()
        made = deliveries_of(connection, name, [row["at"] for row in rows])
        return [_fire(row, made.get(row["at"], ())) for row in rows]


def last_run(db: Database, name: str) -> str | None:
    """The run of the newest fire that made one; cancelled ones do not count."""
    query = (
        select(run.c.id)
        .join(schedule_fire, schedule_fire.c.run_id == run.c.id)
        .where(schedule_fire.c.schedule == name, run.c.state != "cancelled")
        .order_by(schedule_fire.c.at.desc())
        .limit(1)
    )
    with db.read() as connection:
        found: str | None = connection.execute(query).scalar_one_or_none()
        return found


def fire(
    db: Database,
    due: Schedule,
    at: float,
    audit: Drawn,
    previous: str | None,
    place: QueuePlace = NO_PREFERENCE,
) -> str | None:
    """Create the run of a fire, in one transaction with its record; returns the run's id.

    None, with nothing written: the fire was made, superseded, paused or removed meanwhile.
    """
    with db.begin() as connection:
        if not _take_fire(connection, due.name, at):
            return None
        run_id = runs.write(connection, *audit, previous, place)
        _record(connection, due, at, run_id, previous)
        return run_id


def fire_now(
    db: Database,
    due: Schedule,
    audit: Drawn,
    previous: str | None,
    place: QueuePlace = NO_PREFERENCE,
) -> str:
    """Create a run outside the cadence, which does not change; paused schedules may, too."""
    with db.begin() as connection:
        _require(connection, due.name)
        at = float(connection.execute(select(DatabaseTime())).scalar_one())
        run_id = runs.write(connection, *audit, previous, place)
        _record(connection, due, at, run_id, previous)
        return run_id


def skip(db: Database, due: Schedule, at: float, previous: str) -> bool:
    """Record a fire that makes no run, because nothing changed; False: it was settled before."""
    with db.begin() as connection:
        if not _take_fire(connection, due.name, at):
            return False
        _record(connection, due, at, None, previous)
        return True


def fail(db: Database, name: str, error: str, retry_seconds: float) -> None:
    """Record why the audit could not be prepared; it is tried again after `retry_seconds`."""
    with db.begin() as connection:
        connection.execute(
            update(schedule)
            .where(schedule.c.name == name)
            .values(error=error, retry_at=DatabaseTime() + retry_seconds)
        )


def _rewind(db: Database) -> None:
    ahead = schedule.c.since > DatabaseTime()
    with db.read() as connection:
        if connection.execute(select(schedule.c.name).where(ahead).limit(1)).first() is None:
            return
    with db.begin() as connection:
        connection.execute(update(schedule).where(ahead).values(since=DatabaseTime()))


def _take_fire(connection: Connection, name: str, at: float) -> bool:
    """Take the fire; a second caller waits for the first one's commit and gets False.

    So does who asks for one that was made before the clock was set back.
    """
    taken = connection.execute(
        update(schedule)
        .where(schedule.c.name == name, schedule.c.state == "active", schedule.c.since < at)
        .values(since=at, error=None, retry_at=None)
    )
    made = select(schedule_fire.c.at).where(
        schedule_fire.c.schedule == name, schedule_fire.c.at == at
    )
    return taken.rowcount == 1 and connection.execute(made).first() is None


def _record(
    connection: Connection, due: Schedule, at: float, run_id: str | None, previous: str | None
) -> None:
    connection.execute(
        insert(schedule_fire).values(
            schedule=due.name,
            at=at,
            created=DatabaseTime(),
            run_id=run_id,
            previous=previous,
        )
    )
    if run_id:
        expect(connection, due.name, at)


def _require(connection: Connection, name: str) -> None:
    if connection.execute(select(schedule.c.name).where(schedule.c.name == name)).first() is None:
        raise _unknown(connection, name)


def _unknown(connection: Connection, name: str) -> ConfigurationError:
    names = list(connection.execute(select(schedule.c.name).order_by(schedule.c.name)).scalars())
    there = f"there are: {', '.join(names)}" if names else "there is none yet"
    return ConfigurationError(f"no schedule {name!r}; {there}")


#: columns of the table that are fields, too
_PLANNED = tuple(field.name for field in fields(Planned) if field.name in schedule.c)
_SCHEDULE = tuple(field.name for field in fields(Schedule) if field.name in schedule.c)
_FIRE = tuple(field.name for field in fields(Fire) if field.name in schedule_fire.c)


def _schedules(connection: Connection, rows: Sequence[RowMapping]) -> list[Schedule]:
    receivers = receivers_of(connection, [row["name"] for row in rows])
    return [
        Schedule(
            **{name: row[name] for name in _SCHEDULE}, receivers=receivers.get(row["name"], ())
        )
        for row in rows
    ]


def _fire(row: RowMapping, deliveries: tuple[FireDelivery, ...]) -> Fire:
    return Fire(**{name: row[name] for name in _FIRE}, deliveries=deliveries)
