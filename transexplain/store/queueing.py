"""The queue of runs: their places, pausing, and who waits for workers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, func, or_, select, update

from transexplain.store.columns import DatabaseTime
from transexplain.store.database import Database
from transexplain.store.leases import lease_expired
from transexplain.store.runs import require
from transexplain.store.schema import run, shard
from transexplain.store.shard_blocks import first_pending
from transexplain.types.plans import QueuePlace

_UNPAUSED = run.c.paused.is_(None)


@dataclass(frozen=True, kw_only=True, slots=True)
class Contender:
    """A run that has shards for workers now."""

    run_id: str
    place: QueuePlace
    others: int  #: shards that other workers hold


def change(db: Database, run_id: str, **values: Any) -> QueuePlace | None:
    """Set `priority`, `share` or `most_workers` of a run that is running; its place now.

    What is not given stays. None, with nothing changed: the run is over.
    """
    with db.begin() as connection:
        require(connection, run_id, lock=True)
        if values:
            connection.execute(update(run).where(_running(run_id)).values(**values))
        row = connection.execute(
            select(run.c.priority, run.c.share, run.c.most_workers).where(_running(run_id))
        ).one_or_none()
    return None if row is None else QueuePlace(**row._mapping)


def pause(db: Database, run_id: str) -> bool:
    """Hand out no shard of this run from now on; False: it was paused, or is over.

    Shards in hand, and those of claims under way, are finished.
    """
    return _set_paused(db, run_id, DatabaseTime(), run.c.paused.is_(None))


def unpause(db: Database, run_id: str) -> bool:
    """Hand out shards of this run again; False: it was not paused, or is over."""
    return _set_paused(db, run_id, None, run.c.paused.is_not(None))


def _set_paused(db: Database, run_id: str, value: Any, where: ColumnElement[bool]) -> bool:
    with db.begin() as connection:
        require(connection, run_id, lock=True)
        changed = connection.execute(
            update(run).where(_running(run_id), where).values(paused=value)
        )
        return changed.rowcount == 1


def _running(run_id: str) -> ColumnElement[bool]:
    return and_(run.c.id == run_id, run.c.state == "running")


def choice(db: Database, run_id: str) -> bool:
    """Whether who has a message about this run may take another shard than it names.

    Not where no other run hands out shards, unless the run has a cap: messages that came while it
    was reached are gone. Nor for a run that is not there.
    """
    query = select(run.c.id, run.c.most_workers).where(run.c.state == "running", _UNPAUSED)
    there = select(run.c.id, run.c.most_workers).where(run.c.id == run_id)
    with db.read() as connection:
        found = connection.execute(query.limit(2)).all()
        if [row.id for row in found] == [run_id]:
            return found[0].most_workers is not None
        return connection.execute(there).first() is not None


def handing_out(db: Database) -> dict[str, int | None]:
    """Ids of the runs that hand out shards, with their caps; those to be served first come first.

    Of the same priority the oldest comes first.
    """
    query = (
        select(run.c.id, run.c.most_workers)
        .where(run.c.state == "running", _UNPAUSED)
        .order_by(run.c.priority.desc(), run.c.created, run.c.id)
    )
    with db.read() as connection:
        return {row.id: row.most_workers for row in connection.execute(query)}


def contenders(db: Database, worker: str) -> list[Contender]:
    """Runs with free shards and room below their cap, those of the highest priority first."""
    in_hand = _in_hand(run.c.id).scalar_subquery()
    own = _in_hand(run.c.id).where(shard.c.worker == worker).scalar_subquery()
    query = (
        select(
            run.c.id,
            run.c.priority,
            run.c.share,
            run.c.most_workers,
            in_hand.label("in_hand"),
            own.label("own"),
        )
        .where(run.c.state == "running", _UNPAUSED, _has_free(run.c.id))
        .order_by(run.c.priority.desc(), run.c.created, run.c.id)
    )
    with db.read() as connection:
        found = connection.execute(query).all()
    return [_contender(row) for row in found if _room(row) > 0]


def room(connection: Connection, run_id: str) -> int | None:
    """How many more shards of a run may be in hand; None: no cap. An expired lease counts, too."""
    query = select(run.c.most_workers, _in_hand(run_id).scalar_subquery().label("in_hand"))
    row = connection.execute(query.where(run.c.id == run_id)).one()
    return None if row.most_workers is None else max(0, row.most_workers - row.in_hand)


def _contender(row: Any) -> Contender:
    place = QueuePlace(priority=row.priority, share=row.share, most_workers=row.most_workers)
    return Contender(run_id=row.id, place=place, others=row.in_hand - row.own)


def _room(row: Any) -> float:
    return float("inf") if row.most_workers is None else row.most_workers - row.in_hand


def _in_hand(run_id: str | ColumnElement[str]) -> Any:
    return (
        select(func.count())
        .select_from(shard)
        .where(shard.c.run_id == run_id, shard.c.state == "running")
    )


def _has_free(run_id: ColumnElement[str]) -> ColumnElement[bool]:
    """Whether a shard is queued, not made yet, or its lease has run out; by the index."""
    looks: Sequence[ColumnElement[bool]] = (shard.c.state == "queued", lease_expired())
    return or_(
        first_pending(run_id).is_not(None),
        *(
            select(shard.c.index)
            .where(shard.c.run_id == run_id, free)
            .order_by(shard.c.attempt, shard.c.index)
            .limit(1)
            .scalar_subquery()
            .is_not(None)
            for free in looks
        ),
    )
