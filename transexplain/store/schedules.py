"""Schedules: what is audited again and when, the run of each fire, and the verdicts to post."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from sqlalchemy import (
    ColumnElement,
    Connection,
    RowMapping,
    Subquery,
    and_,
    case,
    delete,
    exc,
    func,
    insert,
    literal,
    or_,
    select,
    update,
)
from sqlalchemy.sql import Select, Update

from transexplain.errors import ConfigurationError
from transexplain.store import runs
from transexplain.store.columns import DatabaseTime, is_due
from transexplain.store.database import Database
from transexplain.store.result_tables import run_metric, run_result
from transexplain.store.schema import fire_delivery, run, schedule, schedule_fire, schedule_receiver
from transexplain.types.plans import NO_PREFERENCE, AuditPlan, QueuePlace, Shard

#: how a verdict is written for a receiver
ReceiverKind = Literal["json", "slack", "teams", "email"]
DeliveryState = Literal["waiting", "posted", "failed"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Receiver:
    """Where the verdicts of a schedule go."""

    kind: ReceiverKind
    address: str  #: http(s) URL, its path may be a password; of an e-mail: name@host
    #: as its schedule counts it, from 1; 0: it is not written yet
    number: int = field(default=0, compare=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class FireDelivery:
    """What became of one verdict at one receiver."""

    number: int  #: of the receiver, from 1
    state: DeliveryState
    attempts: int
    next_at: float | None  #: not tried before; seconds since the epoch, database time
    delivered: float | None
    error: str | None  #: of the last attempt


@dataclass(frozen=True, kw_only=True, slots=True)
class Delivery:
    """The right to deliver one verdict to one receiver, until its time is up."""

    schedule: str
    at: float  #: of the fire
    run_id: str
    number: int
    receiver: Receiver
    attempts: int  #: this one counted


def write_receivers(connection: Connection, name: str, receivers: Sequence[Receiver]) -> None:
    """Write receivers of a schedule, counted on from the highest number that it has."""
    highest = select(func.coalesce(func.max(schedule_receiver.c.number), 0)).where(
        schedule_receiver.c.schedule == name
    )
    for number, receiver in enumerate(receivers, int(connection.execute(highest).scalar_one()) + 1):
        connection.execute(
            insert(schedule_receiver).values(
                schedule=name, number=number, kind=receiver.kind, address=receiver.address
            )
        )


def receivers_of(connection: Connection, names: Iterable[str]) -> dict[str, tuple[Receiver, ...]]:
    """The receivers of schedules, by name and in order; a schedule without any is left out."""
    query = (
        select(schedule_receiver)
        .where(schedule_receiver.c.schedule.in_(list(names)))
        .order_by(schedule_receiver.c.schedule, schedule_receiver.c.number)
    )
    receivers: dict[str, tuple[Receiver, ...]] = {}
    for row in connection.execute(query):
        receiver = Receiver(kind=row.kind, address=row.address, number=row.number)
        receivers[row.schedule] = (*receivers.get(row.schedule, ()), receiver)
    return receivers


def deliveries_of(
    connection: Connection, name: str, fires: Iterable[float]
) -> dict[float, tuple[FireDelivery, ...]]:
    """The deliveries of a schedule's fires, by the time of the fire and in order of receivers."""
    query = (
        select(fire_delivery)
        .where(fire_delivery.c.schedule == name, fire_delivery.c.at.in_(list(fires)))
        .order_by(fire_delivery.c.at, fire_delivery.c.number)
    )
    deliveries: dict[float, tuple[FireDelivery, ...]] = {}
    for row in connection.execute(query).mappings():
        delivery = FireDelivery(**{field.name: row[field.name] for field in fields(FireDelivery)})
        deliveries[row["at"]] = (*deliveries.get(row["at"], ()), delivery)
    return deliveries


_LONGEST_BETWEEN_POSTS = 24 * 3600.0  # seconds; no attempt is put off further


def claim(db: Database, seconds: float) -> Delivery | None:
    """Take a delivery for `seconds`, so that no other process makes it; None: no more to do.

    Only of runs that are over. A process that dies leaves it to the next after that time.
    """
    with db.begin() as connection:
        row = connection.execute(_next_due()).first()
        if row is None:
            return None
        taken = Delivery(
            schedule=row.schedule,
            at=row.at,
            run_id=row.run_id,
            number=row.number,
            receiver=Receiver(kind=row.kind, address=row.address, number=row.number),
            attempts=row.attempts + 1,
        )
        connection.execute(
            update(fire_delivery)
            .where(_at(taken))
            .values(attempts=taken.attempts, next_at=DatabaseTime() + seconds)
        )
    return taken


def posted(db: Database, delivery: Delivery) -> bool:
    """Record that the receiver took it; False: it took too long and another may post it, too."""
    with db.begin() as connection:
        done = connection.execute(
            _ours(delivery).values(
                state="posted", delivered=DatabaseTime(), next_at=None, error=None
            )
        )
        return done.rowcount == 1


def not_posted(db: Database, delivery: Delivery, error: str, retry_seconds: float | None) -> None:
    """Record why not; tried again after `retry_seconds`, or never more where that is None."""
    values = (
        {"state": "failed", "next_at": None}
        if retry_seconds is None
        else {"next_at": DatabaseTime() + retry_seconds}
    )
    with db.begin() as connection:
        connection.execute(_ours(delivery).values(**values, error=error))


def _at(delivery: Delivery) -> ColumnElement[bool]:
    return and_(
        fire_delivery.c.schedule == delivery.schedule,
        fire_delivery.c.at == delivery.at,
        fire_delivery.c.number == delivery.number,
    )


def _ours(delivery: Delivery) -> Update:
    """The delivery, unless another attempt has begun since."""
    return update(fire_delivery).where(
        _at(delivery),
        fire_delivery.c.state == "waiting",
        fire_delivery.c.attempts == delivery.attempts,
    )


def _next_due() -> Select[Any]:
    """The oldest delivery that is due, locked for this transaction."""
    return (
        select(
            fire_delivery,
            schedule_fire.c.run_id,
            schedule_receiver.c.kind,
            schedule_receiver.c.address,
        )
        .join(
            schedule_fire,
            and_(
                schedule_fire.c.schedule == fire_delivery.c.schedule,
                schedule_fire.c.at == fire_delivery.c.at,
            ),
        )
        .join(run, run.c.id == schedule_fire.c.run_id)
        .join(
            schedule_receiver,
            and_(
                schedule_receiver.c.schedule == fire_delivery.c.schedule,
                schedule_receiver.c.number == fire_delivery.c.number,
            ),
        )
        .where(
            fire_delivery.c.state == "waiting",
            or_(
                fire_delivery.c.next_at.is_(None),
                is_due(fire_delivery.c.next_at, _LONGEST_BETWEEN_POSTS),
            ),
            run.c.state != "running",
        )
        .order_by(schedule_fire.c.created, fire_delivery.c.schedule, fire_delivery.c.number)
        .limit(1)
        .with_for_update(skip_locked=True, of=fire_delivery)
    )


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
        states_now = {delivery.state for delivery in self.deliveries}
        states: tuple[DeliveryState, ...] = ("waiting", "failed", "posted")
        return next((state for state in states if state in states_now), None)


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
        rows = connection.execute(select(schedule).order_by(schedule.c.name)).mappings()
        return _schedules(connection, rows.all())


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
        known = {receiver.number for receiver in receivers_of(connection, [name]).get(name, ())}
        if missing := sorted(set(removed) - known):
            there = f"there are: {', '.join(map(str, sorted(known)))}" if known else "it has none"
            raise ConfigurationError(f"schedule {name!r} has no receiver {missing[0]}; {there}")
        gone = (fire_delivery.c.schedule == name) & fire_delivery.c.number.in_(removed)
        waiting = select(func.count()).where(gone, fire_delivery.c.state == "waiting")
        dropped = int(connection.execute(waiting).scalar_one())
        whose = schedule_receiver.c
        connection.execute(
            delete(schedule_receiver).where(whose.schedule == name, whose.number.in_(removed))
        )
        write_receivers(connection, name, added)
    return dropped


def remove(db: Database, name: str) -> None:
    """Delete a schedule and the record of its fires; its runs stay."""
    with db.begin() as connection:
        _require(connection, name)
        connection.execute(delete(schedule).where(schedule.c.name == name))


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
        other: str | None = connection.execute(query).scalar_one_or_none()
        return other


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
    if run_id:  # its verdict waits for every receiver that the schedule has
        whose = schedule_receiver.c
        moment = literal(at, schedule_fire.c.at.type)
        waiting = select(whose.schedule, moment, whose.number, literal("waiting"), literal(0))
        connection.execute(
            insert(fire_delivery).from_select(
                ["schedule", "at", "number", "state", "attempts"],
                waiting.where(whose.schedule == due.name),
            )
        )


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


#: names of `run_metric`: what of a run is compared with the run before
NEWLY, GONE = "groups_newly_flagged", "groups_no_longer_flagged"
CHANGED = "changed_predictions"


@dataclass(frozen=True, kw_only=True, slots=True)
class LastFound:
    """The newest run of a schedule that is over and has its rows for SQL."""

    schedule: str
    run_id: str
    finished: float  #: seconds since the epoch
    verdict: str  #: kind: flagged, clear, problem, unknown or fact
    #: groups whose mention newly changes the prediction or whose outcome newly differs; None: there
    #: is no run before
    newly: int | None
    gone: int | None  #: groups of which either was so before and is not now
    changed: float | None  #: share of common items that are predicted otherwise, 0 to 1


def last_found(db: Database) -> list[LastFound]:
    """By name of the schedule; raises DatabaseError as `Database.read`."""
    newest = (
        select(schedule_fire.c.schedule, func.max(schedule_fire.c.at).label("at"))
        .join(run, run.c.id == schedule_fire.c.run_id)
        .join(run_result, run_result.c.run_id == run.c.id)
        .where(run.c.state == "done")
        .group_by(schedule_fire.c.schedule)
        .subquery()
    )
    query = (
        select(schedule_fire.c.schedule, run.c.id, run.c.finished, run_result.c.verdict_kind)
        .join_from(
            schedule_fire,
            newest,
            (schedule_fire.c.schedule == newest.c.schedule) & (schedule_fire.c.at == newest.c.at),
        )
        .join(run, run.c.id == schedule_fire.c.run_id)
        .join(run_result, run_result.c.run_id == run.c.id)
        .order_by(schedule_fire.c.schedule)
    )
    with db.read() as connection:
        rows = connection.execute(query).all()
        wanted = select(run_metric.c.run_id, run_metric.c.name, run_metric.c.value).where(
            run_metric.c.run_id.in_([row.id for row in rows]),
            run_metric.c.name.in_((NEWLY, GONE, CHANGED)),
        )
        values = {
            (metric.run_id, metric.name): metric.value for metric in connection.execute(wanted)
        }
    return [
        LastFound(
            schedule=row.schedule,
            run_id=row.id,
            finished=float(row.finished or 0.0),
            verdict=row.verdict_kind,
            newly=_count(values.get((row.id, NEWLY))),
            gone=_count(values.get((row.id, GONE))),
            changed=values.get((row.id, CHANGED)),
        )
        for row in rows
    ]


def _count(value: float | None) -> int | None:
    return None if value is None else round(value)


_SHOWN = ("name", "cron", "time_zone", "state", "on_change", "created", "since", "retry_at")
_UNDELIVERED = ("waiting", "failed")
_FIRED = ("schedule", "at", "created", "run_id", "previous")


def schedule_rows(db: Database, *, errors: bool) -> list[dict[str, Any]]:
    """Every schedule by name, without its specification and receivers.

    `errors`: with why an audit could not be prepared, which may quote the data.
    """
    names = (*_SHOWN, "error") if errors else _SHOWN
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
            *(schedule_fire.c[column] for column in _FIRED),
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
