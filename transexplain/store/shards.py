"""Claims shards: leases by the database's clock, fenced by a token that every claim raises."""

from collections.abc import Collection
from contextlib import suppress
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    RowMapping,
    Update,
    or_,
    select,
    update,
)

from transexplain.errors import DatabaseError
from transexplain.store import shard_blocks, sink_files
from transexplain.store.columns import DatabaseTime
from transexplain.store.database import Database
from transexplain.store.leases import (
    cancel_shard,
    caution_of,
    expire,
    fail,
    give_back,
    hang,
    held,
    holders,
    learned,
    lease_expired,
    lease_void,
    note,
    renew,
)
from transexplain.store.queueing import room
from transexplain.store.result_rows import forget
from transexplain.store.runs import Claim, ShardStatus, finalise, require
from transexplain.store.schema import failure, run, shard
from transexplain.store.shard_digests import DamagedShard, damaged, write_file_again
from transexplain.types.plans import Shard

#: failures that lie in the circumstances rather than in the data; another try may pass
PASSING_KINDS = ("model-error", "out-of-memory", "quarantined")
_GIVEN_UP = shard.c.state.in_(("dead", "cancelled"))


def redrive(db: Database, run_id: str, *, files_lost: bool = False) -> int:
    """Queue the dead and the cancelled shards again, attempts forgotten; returns how many.

    So are those that are not as they were saved. The run is reopened. A cancelled run stays
    cancelled: 0. Files of a sink whose results are in the database, too, are written again.

    Raises ConfigurationError for an unknown run; ObjectStoreError, with nothing changed, where the
    run's sink is away or none of its files is there, unless `files_lost` says that they are lost.
    """
    return _again(db, run_id, _GIVEN_UP, files_lost)


def retry_failed(db: Database, run_id: str, *, files_lost: bool = False) -> int:
    """As `redrive`, and the saved shards, too, that hold failures of `PASSING_KINDS`.

    Their results stay readable until the new ones replace them as a whole.
    """
    holding = select(failure.c.shard).where(
        failure.c.run_id == run_id, failure.c.kind.in_(PASSING_KINDS)
    )
    failed = (shard.c.state == "done") & shard.c.index.in_(holding)
    return _again(db, run_id, or_(_GIVEN_UP, failed), files_lost)


def _broken(db: Database, run_id: str, files_lost: bool) -> list[DamagedShard]:
    """Shards that are not as they were saved; files whose results are there are written again."""
    lost, alone = sink_files.faults(db, run_id, lost=files_lost), sink_files.alone(db, run_id)
    damages = damaged(db, run_id, lost=lost if alone else {})
    if not alone:
        for index in lost.keys() - {damage.index for damage in damages}:
            write_file_again(db, run_id, index)
    return damages


def _again(db: Database, run_id: str, which: ColumnElement[bool], files_lost: bool) -> int:
    broken = _broken(db, run_id, files_lost)
    with db.begin() as connection:
        if require(connection, run_id, lock=True).state == "cancelled":
            return 0
        gone = [damage for damage in broken if damage.gone]
        shard_blocks.insert_shards(
            connection,
            run_id,
            [Shard(index=damage.index, start=damage.start, stop=damage.stop) for damage in gone],
            token=1,  # whatever is left of their results is deleted
        )
        indices = [damage.index for damage in broken]
        done = (shard.c.state == "done") & shard.c.index.in_(indices)
        again = connection.execute(
            update(shard)
            .where(shard.c.run_id == run_id, or_(which, done))
            .values(
                state="queued",
                attempt=0,
                fruitless=0,
                lease_until=None,
                breadcrumb=None,
                suspects=None,
                explained=0,  # queued again, so not done: progress counts this column
                failed=0,
            )
        )
        count = again.rowcount + len(gone)
        if count:
            connection.execute(
                update(run).where(run.c.id == run_id).values(state="running", finished=None)
            )
            forget(connection, run_id)  # what was said of it before
    if count:
        sink_files.reopen(db, run_id)
    return count


__all__ = [
    "cancel_shard",
    "claim",
    "expire",
    "fail",
    "give_back",
    "hang",
    "held",
    "holders",
    "list_shards",
    "note",
    "redrive",
    "renew",
    "retry_failed",
]


def claim(
    db: Database,
    run_id: str,
    worker: str,
    lease_seconds: float,
    shard_index: int | None = None,
) -> Claim | None:
    """Take a queued shard, or one whose lease ran out, for `lease_seconds`; None: none is free.

    With `shard_index` only that one. Shards with fewest attempts come first, so that a poisonous
    one holds up nothing. A shard that used all the plan's attempts is marked dead on the way,
    and the run closed if that was the last. A run that is paused hands out none, nor does one with
    as many shards in hand as it may have, but for those whose lease ran out. Raises
    ConfigurationError for an unknown run.
    """
    while True:
        taken, unmade = _claimed(db, run_id, worker, lease_seconds, shard_index)
        if taken is not None:
            if unmade is not None and taken.shard.index >= unmade - shard_blocks.LOW:
                with suppress(DatabaseError):  # who claims next makes them
                    shard_blocks.make(db, run_id, unmade)
            return taken
        if unmade is None or shard_index is not None:
            return None
        shard_blocks.make(db, run_id)


def _claimed(
    db: Database, run_id: str, worker: str, lease_seconds: float, shard_index: int | None
) -> tuple[Claim | None, int | None]:
    """The claim, and the index of the first shard to be made: None where it could not be had."""
    buried = False
    with db.begin() as connection:
        audit = require(connection, run_id)
        capped = audit.most_workers is not None
        if capped:  # whoever claims a shard of it waits here for the others to have theirs
            audit = require(connection, run_id, lock=True)
        if audit.state != "running" or audit.paused is not None:
            return None, None
        full = capped and room(connection, run_id) == 0
        while (free := _next(connection, run_id, shard_index, full=full)) is not None:
            known = _knowledge(free, audit.max_attempts)
            if known["state"] == "dead":
                connection.execute(_unchanged(free).values(known))
                buried = True
            elif _take(connection, free, known, worker, lease_seconds):
                claim = Claim(
                    run_id=run_id,
                    shard=_shard(free),
                    token=free["token"] + 1,
                    attempt=free["attempt"] + 1,
                    caution=caution_of(known["suspects"]),
                    capped=capped,
                )
                return claim, audit.unmade
    if buried:  # in a transaction of its own: it locks the run, which goes before any shard
        finalise(db, run_id)
    return None, None if full else audit.unmade


def list_shards(
    db: Database, run_id: str, *, states: Collection[str] | None = None
) -> list[ShardStatus]:
    """Every shard of the run (or those in `states`) as it stands, by index."""
    query = (
        select(shard, (shard.c.lease_until - DatabaseTime()).label("lease_left"))
        .where(shard.c.run_id == run_id)
        .order_by(shard.c.index)
    )
    if states is not None:
        query = query.where(shard.c.state.in_(states))
    with db.read() as connection:
        require(connection, run_id)
        return [
            ShardStatus(
                shard=_shard(row),
                state=row["state"],
                attempt=row["attempt"],
                worker=row["worker"],
                lease_left=row["lease_left"],
                error=row["error"],
                traceback=row["traceback"],
                seconds=row["seconds"],
                fruitless=row["fruitless"],
                breadcrumb=tuple(row["breadcrumb"] or ()),
                caution=caution_of(row["suspects"]),
            )
            for row in connection.execute(query).mappings()
        ]


def _shard(row: RowMapping) -> Shard:
    return Shard(index=row["index"], start=row["start"], stop=row["stop"])


def _next(
    connection: Connection, run_id: str, shard_index: int | None, *, full: bool
) -> RowMapping | None:
    """A free shard's row, locked; PostgreSQL passes over rows that another claim has locked."""
    query = select(shard, lease_void().label("void")).where(shard.c.run_id == run_id)
    if shard_index is not None:
        query = query.where(shard.c.index == shard_index)
    query = query.order_by(shard.c.attempt, shard.c.index).limit(1)
    looks = (lease_expired(),) if full else (shard.c.state == "queued", lease_expired())
    for free in looks:  # each follows the index
        row = (
            connection.execute(query.where(free).with_for_update(skip_locked=True))
            .mappings()
            .first()
        )
        if row is not None:
            return row
    return None


def _knowledge(free: RowMapping, limit: int) -> dict[str, Any]:
    """The columns with the knowledge about the shard, now that it is free."""
    if free["state"] == "queued" or free["void"]:  # a clock set back is no death
        return {"state": "queued", "suspects": free["suspects"]}
    died = (
        f"attempt {free['attempt']}: the lease of worker {free['worker']} ran out without a "
        "result (killed, crashed, out of memory or cut off)"
    )
    return learned(free, limit, free["breadcrumb"], died)


def _take(
    connection: Connection,
    free: RowMapping,
    known: dict[str, Any],
    worker: str,
    lease_seconds: float,
) -> bool:
    taken = connection.execute(
        _unchanged(free).values(
            known
            | {
                "state": "running",
                "token": shard.c.token + 1,
                "attempt": shard.c.attempt + 1,
                "lease_until": DatabaseTime() + lease_seconds,
                "heartbeat": DatabaseTime(),
                "worker": worker,
                "breadcrumb": None,
            }
        )
    )
    return taken.rowcount == 1


def _unchanged(free: RowMapping) -> Update:
    """An update of this row that has no effect if another process claimed it since it was read."""
    return update(shard).where(
        shard.c.run_id == free["run_id"],
        shard.c.index == free["index"],
        shard.c.token == free["token"],
    )
