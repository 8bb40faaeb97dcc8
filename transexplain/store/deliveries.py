"""Receivers of schedules, and the delivery of each verdict to each of them, apart from the rest."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from sqlalchemy import (
    ColumnElement,
    Connection,
    and_,
    delete,
    func,
    insert,
    literal,
    or_,
    select,
    update,
)
from sqlalchemy.sql import Select, Update

from transexplain.store.columns import DatabaseTime, is_due
from transexplain.store.database import Database
from transexplain.store.schema import fire_delivery, run, schedule_fire, schedule_receiver

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
    for number, one in enumerate(receivers, int(connection.execute(highest).scalar_one()) + 1):
        connection.execute(
            insert(schedule_receiver).values(
                schedule=name, number=number, kind=one.kind, address=one.address
            )
        )


def drop_receivers(connection: Connection, name: str, numbers: Sequence[int]) -> int:
    """Delete receivers of a schedule with their deliveries; how many of these still waited."""
    made = fire_delivery.c
    waiting = select(func.count()).where(
        made.schedule == name, made.number.in_(numbers), made.state == "waiting"
    )
    found = int(connection.execute(waiting).scalar_one())
    whose = schedule_receiver.c
    connection.execute(
        delete(schedule_receiver).where(whose.schedule == name, whose.number.in_(numbers))
    )
    return found


def receivers_of(connection: Connection, names: Iterable[str]) -> dict[str, tuple[Receiver, ...]]:
    """The receivers of schedules, by name and in order; a schedule without any is left out."""
    query = (
        select(schedule_receiver)
        .where(schedule_receiver.c.schedule.in_(list(names)))
        .order_by(schedule_receiver.c.schedule, schedule_receiver.c.number)
    )
    found: dict[str, tuple[Receiver, ...]] = {}
    for row in connection.execute(query):
        one = Receiver(kind=row.kind, address=row.address, number=row.number)
        found[row.schedule] = (*found.get(row.schedule, ()), one)
    return found


def expect(connection: Connection, name: str, at: float) -> None:
    """Let the verdict of a fire wait for every receiver that the schedule has."""
    waiting = select(
        schedule_receiver.c.schedule,
        literal(at, schedule_fire.c.at.type),
        schedule_receiver.c.number,
        literal("waiting"),
        literal(0),
    ).where(schedule_receiver.c.schedule == name)
    columns = ["schedule", "at", "number", "state", "attempts"]
    connection.execute(insert(fire_delivery).from_select(columns, waiting))


def deliveries_of(
    connection: Connection, name: str, fires: Iterable[float]
) -> dict[float, tuple[FireDelivery, ...]]:
    """The deliveries of a schedule's fires, by the time of the fire and in order of receivers."""
    query = (
        select(fire_delivery)
        .where(fire_delivery.c.schedule == name, fire_delivery.c.at.in_(list(fires)))
        .order_by(fire_delivery.c.at, fire_delivery.c.number)
    )
    found: dict[float, tuple[FireDelivery, ...]] = {}
    for row in connection.execute(query).mappings():
        one = FireDelivery(**{field.name: row[field.name] for field in fields(FireDelivery)})
        found[row["at"]] = (*found.get(row["at"], ()), one)
    return found


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
