"""Selects shards that need a message, and reserves periodic tasks for one process at a time.

A message may be lost and may be sent twice; neither changes a result. A shard's `hinted` remembers
when the last one was sent, so that a top-up begins with those that have waited longest.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from sqlalchemy import ColumnElement, Connection, and_, func, or_, select, update
from sqlalchemy.dialects import postgresql, sqlite

from transexplain.store.columns import DatabaseTime, is_due
from transexplain.store.database import Database
from transexplain.store.leases import lease_expired
from transexplain.store.runs import unfinished
from transexplain.store.schema import duty, run, shard

_QUEUED = shard.c.state == "queued"
_EXPIRED = lease_expired()
_FREE = or_(_QUEUED, _EXPIRED)


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


def running(db: Database) -> list[str]:
    """Ids of the runs that are running, the oldest first."""
    query = select(run.c.id).where(run.c.state == "running").order_by(run.c.created, run.c.id)
    with db.read() as connection:
        return list(connection.execute(query).scalars())


def waiting(db: Database, run_ids: Sequence[str], at_most: int) -> int:
    """How many shards of these runs are free, counted up to `at_most`."""
    with db.read() as connection:
        return _free(connection, run_ids, at_most)


def waiting_of_each(db: Database, caps: Mapping[str, int | None], at_most: int) -> int:
    """As `waiting`, with no more of each run than its cap."""
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


def take_of_each(
    db: Database, caps: Mapping[str, int | None], at_most: int, patience: float
) -> Mapping[str, list[int]]:
    """As `take`, an equal part of each run first, and of none more than its cap.

    What some leave goes to the others, in their order.
    """
    part = max(1, at_most // len(caps))
    named: dict[str, list[int]] = defaultdict(list)
    for most in (part, at_most):
        for run_id, cap in caps.items():
            left = at_most - sum(map(len, named.values()))
            room = most if cap is None else min(most, cap - len(named.get(run_id, ())))
            if (wanted := min(left, room)) > 0:
                for name, indices in take(db, [run_id], wanted, patience).items():
                    named[name] += indices
    return named


def take(
    db: Database, run_ids: Sequence[str], at_most: int, patience: float
) -> Mapping[str, list[int]]:
    """Note up to `at_most` free shards of these runs as hinted now; run id -> shard indices.

    The first run first; in it those queued that were never hinted, then those whose lease ran out,
    then those whose hint is oldest. A hint of the last `patience` seconds is trusted, unless a
    claim has used it up since.
    """
    named: dict[str, list[int]] = defaultdict(list)
    with db.begin() as connection:
        for run_id in run_ids:
            left = at_most - sum(map(len, named.values()))
            if left <= 0:
                break
            if indices := _note(connection, run_id, left, patience):
                named[run_id] = indices
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
