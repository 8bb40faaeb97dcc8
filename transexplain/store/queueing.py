"""The queue of runs: their places, pausing, who waits for workers, and shards that need a message.

A message may be lost and may be sent twice; neither changes a result. A shard's `hinted` remembers
when the last one was sent, so that a top-up begins with those that have waited longest.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, func, or_, select, update
from sqlalchemy.dialects import postgresql, sqlite

from transexplain.store.columns import DatabaseTime, is_due
from transexplain.store.database import Database
from transexplain.store.runs import holds_shard, require, unfinished
from transexplain.store.schema import duty, run, shard
from transexplain.store.shards import lease_expired, shards_in_hand
from transexplain.types.plans import QueuePlace

_UNPAUSED = run.c.paused.is_(None)
_QUEUED = shard.c.state == "queued"
_EXPIRED = lease_expired()
_FREE = or_(_QUEUED, _EXPIRED)


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
    in_hand = shards_in_hand(run.c.id)
    held = in_hand.where(shard.c.worker == worker)
    place = (run.c.priority, run.c.share, run.c.most_workers)
    query = (
        select(
            run.c.id,
            *place,
            in_hand.scalar_subquery().label("in_hand"),
            held.scalar_subquery().label("held"),
        )
        .where(run.c.state == "running", _UNPAUSED, holds_shard(run.c.id, _QUEUED, _EXPIRED))
        .order_by(run.c.priority.desc(), run.c.created, run.c.id)
    )
    with db.read() as connection:
        rows = connection.execute(query).all()
    return [
        Contender(
            run_id=row.id,
            place=QueuePlace(priority=row.priority, share=row.share, most_workers=row.most_workers),
            others=row.in_hand - row.held,
        )
        for row in rows
        if row.most_workers is None or row.in_hand < row.most_workers
    ]


def take_task(db: Database, name: str, seconds: float) -> bool:
    """Reserve a periodic task for `seconds`; False: another process took it less than that ago."""
    until = DatabaseTime() + seconds
    with db.begin() as connection:
        dialect = sqlite if connection.dialect.name == "sqlite" else postgresql
        taken = connection.execute(
            dialect.insert(duty)
            .values(name=name, until=until)
            .on_conflict_do_update(
                index_elements=[duty.c.name],
                set_={"until": until},
                where=is_due(duty.c.until, seconds),
            )
            .returning(duty.c.name)
        )
        return taken.first() is not None


def waiting(db: Database, caps: Mapping[str, int | None], at_most: int) -> int:
    """How many shards of these runs are free, counted up to `at_most`, and to the cap of each."""
    uncapped = [run_id for run_id, cap in caps.items() if cap is None]
    with db.read() as connection:
        freed = _free(connection, uncapped, at_most) if uncapped else 0
        for run_id, cap in caps.items():
            if cap is not None and freed < at_most:
                freed += _free(connection, [run_id], min(cap, at_most - freed))
    return freed


def _free(connection: Connection, run_ids: Sequence[str], at_most: int) -> int:
    free = select(shard.c.index).where(shard.c.run_id.in_(run_ids), _FREE).limit(at_most).subquery()
    return int(connection.execute(select(func.count()).select_from(free)).scalar_one())


def take(
    db: Database, caps: Mapping[str, int | None], at_most: int, patience: float
) -> Mapping[str, list[int]]:
    """Note up to `at_most` free shards of these runs as hinted now; run id -> shard indices.

    An equal part of each run first, and of none more than its cap; what some leave goes to the
    others, in their order. Of a run those queued that were never hinted come first, then those
    whose lease ran out, then those whose hint is oldest. A hint of the last `patience` seconds is
    trusted, unless a claim has used it up since.
    """
    part = max(1, at_most // len(caps))
    named: dict[str, list[int]] = {}
    for most in dict.fromkeys((part, at_most)):
        for run_id, cap in caps.items():
            left = at_most - sum(map(len, named.values()))
            room = most if cap is None else min(most, cap - len(named.get(run_id, ())))
            if min(left, room) > 0:
                with db.begin() as connection:
                    indices = _note(connection, run_id, min(left, room), patience)
                if indices:
                    named[run_id] = [*named.get(run_id, ()), *indices]
    return named


def exhausted(db: Database) -> list[str]:
    """Running runs that have no shard left to work on: ready to be closed."""
    query = select(run.c.id).where(run.c.state == "running", ~unfinished(run.c.id))
    with db.read() as connection:
        return list(connection.execute(query).scalars())


def _stale(patience: float) -> ColumnElement[bool]:
    return or_(
        shard.c.hinted.is_(None),
        shard.c.hinted <= DatabaseTime() - patience,
        shard.c.hinted > DatabaseTime(),  # the clock was set back
        shard.c.hinted < shard.c.lease_until,  # that hint led to the expired claim
    )


def _note(connection: Connection, run_id: str, at_most: int, patience: float) -> list[int]:
    indices: list[int] = []
    for condition, order in (
        # these two follow the index and end early; only the third has to sort what waits
        (and_(_QUEUED, shard.c.hinted.is_(None)), ()),
        (and_(_EXPIRED, _stale(patience)), (shard.c.hinted.asc().nulls_first(),)),
        (and_(_QUEUED, shard.c.hinted.is_not(None), _stale(patience)), (shard.c.hinted,)),
    ):
        if len(indices) < at_most:
            chosen = (
                select(shard.c.index)
                .where(shard.c.run_id == run_id, condition)
                .order_by(*order, shard.c.attempt, shard.c.index)
                .limit(at_most - len(indices))
                .with_for_update(skip_locked=True)
            )
            indices += connection.execute(chosen).scalars()
    if indices:
        connection.execute(
            update(shard)
            .where(shard.c.run_id == run_id, shard.c.index.in_(indices))
            .values(hinted=DatabaseTime())
        )
    return indices
