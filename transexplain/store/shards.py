"""Claims on shards: leases by the database's clock, fenced by a token that every claim raises.

A shard is delivered at least once; that its result is written exactly once is the business of
`results.save`, which compares the token. States: queued -> running -> done, or back to queued
(given back, failed), or dead (too many attempts), or cancelled.
"""

from collections.abc import Collection

from sqlalchemy import (
    ColumnElement,
    Connection,
    RowMapping,
    Update,
    and_,
    case,
    or_,
    select,
    update,
)

from transexplain.plans import Shard
from transexplain.store.columns import DatabaseTime
from transexplain.store.database import Database
from transexplain.store.records import Claim, ShardStatus
from transexplain.store.runs import require
from transexplain.store.schema import run, shard


def claim(
    db: Database,
    run_id: str,
    worker: str,
    lease_seconds: float,
    shard_index: int | None = None,
) -> Claim | None:
    """Take a queued shard, or one whose lease ran out, for `lease_seconds`; None: none is free.

    With `shard_index` only that one. Shards with fewest attempts come first, so that a poisonous
    one holds up nothing. A shard that used all the plan's attempts is marked dead on the way.
    Raises ConfigurationError for an unknown run.
    """
    with db.begin() as connection:
        audit = require(connection, run_id)
        if audit.state != "running":
            return None
        while (free := _next(connection, run_id, shard_index)) is not None:
            if free["attempt"] >= audit.max_attempts:
                _bury(connection, free)
            elif _take(connection, free, worker, lease_seconds):
                return Claim(
                    run_id=run_id,
                    shard=_shard(free),
                    token=free["token"] + 1,
                    attempt=free["attempt"] + 1,
                )
        return None


def renew(db: Database, claim: Claim, lease_seconds: float) -> bool:
    """Extend the lease from now; False: the shard went to another worker or was cancelled."""
    with db.begin() as connection:
        kept = connection.execute(
            held(claim).values(lease_until=DatabaseTime() + lease_seconds, heartbeat=DatabaseTime())
        )
        return kept.rowcount == 1


def give_back(db: Database, claim: Claim) -> bool:
    """Queue the shard again, as if it had not been claimed; False: it was not ours any more."""
    with db.begin() as connection:
        given = connection.execute(
            held(claim).values(state="queued", lease_until=None, attempt=shard.c.attempt - 1)
        )
        return given.rowcount == 1


def fail(db: Database, claim: Claim, message: str) -> str | None:
    """Record why the attempt failed; returns `queued`, `dead`, or None where it was not ours."""
    limit = select(run.c.max_attempts).where(run.c.id == claim.run_id).scalar_subquery()
    with db.begin() as connection:
        state: str | None = connection.execute(
            held(claim)
            .values(
                state=case((shard.c.attempt >= limit, "dead"), else_="queued"),
                lease_until=None,
                error=message,
            )
            .returning(shard.c.state)
        ).scalar_one_or_none()
        return state


def claimable(db: Database, run_id: str, limit: int | None = None) -> list[int]:
    """Indices of the shards that `claim` would look at now, those with fewest attempts first."""
    query = (
        select(shard.c.index)
        .where(shard.c.run_id == run_id, or_(_queued(), _expired()))
        .order_by(shard.c.attempt, shard.c.index)
        .limit(limit)
    )
    with db.read() as connection:
        if require(connection, run_id).state != "running":
            return []
        return list(connection.execute(query).scalars())


def redrive(db: Database, run_id: str) -> int:
    """Queue the dead shards again, attempts forgotten, and reopen the run; returns how many.

    A cancelled run stays cancelled: 0.
    """
    with db.begin() as connection:
        if require(connection, run_id, lock=True).state == "cancelled":
            return 0
        again = connection.execute(
            update(shard)
            .where(shard.c.run_id == run_id, shard.c.state == "dead")
            .values(state="queued", attempt=0, lease_until=None)
        )
        if again.rowcount:
            connection.execute(
                update(run).where(run.c.id == run_id).values(state="running", finished=None)
            )
        return again.rowcount


def list_shards(
    db: Database, run_id: str, *, states: Collection[str] | None = None
) -> list[ShardStatus]:
    """Every shard of the run (or those in `states`) as it stands, by index."""
    columns = [column for column in shard.c if column.name != "run_id"]
    query = (
        select(*columns, (shard.c.lease_until - DatabaseTime()).label("lease_left"))
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
                seconds=row["seconds"],
            )
            for row in connection.execute(query).mappings()
        ]


def held(claim: Claim) -> Update:
    """An update of the claim's shard that touches no row once the claim is void."""
    return update(shard).where(
        shard.c.run_id == claim.run_id,
        shard.c.index == claim.shard.index,
        shard.c.state == "running",
        shard.c.token == claim.token,
    )


def _shard(row: RowMapping) -> Shard:
    return Shard(index=row["index"], start=row["start"], stop=row["stop"])


def _queued() -> ColumnElement[bool]:
    return shard.c.state == "queued"


def _expired() -> ColumnElement[bool]:
    return and_(shard.c.state == "running", shard.c.lease_until < DatabaseTime())


def _next(connection: Connection, run_id: str, shard_index: int | None) -> RowMapping | None:
    """A free shard's row, locked; PostgreSQL passes over rows that another claim has locked."""
    query = select(shard).where(shard.c.run_id == run_id)
    if shard_index is not None:
        query = query.where(shard.c.index == shard_index)
    query = query.order_by(shard.c.attempt, shard.c.index).limit(1)
    for free in (_queued(), _expired()):  # one at a time: each follows the index
        row = (
            connection.execute(query.where(free).with_for_update(skip_locked=True))
            .mappings()
            .first()
        )
        if row is not None:
            return row
    return None


def _take(connection: Connection, free: RowMapping, worker: str, lease_seconds: float) -> bool:
    taken = connection.execute(
        _unchanged(free).values(
            state="running",
            token=shard.c.token + 1,
            attempt=shard.c.attempt + 1,
            lease_until=DatabaseTime() + lease_seconds,
            heartbeat=DatabaseTime(),
            worker=worker,
        )
    )
    return taken.rowcount == 1


def _bury(connection: Connection, free: RowMapping) -> None:
    reason = free["error"]
    if free["state"] == "running":
        reason = (
            f"attempt {free['attempt']}: the lease of worker {free['worker']} ran out without a "
            "result (killed, hung or cut off)"
        )
    connection.execute(_unchanged(free).values(state="dead", lease_until=None, error=reason))


def _unchanged(free: RowMapping) -> Update:
    return update(shard).where(
        shard.c.run_id == free["run_id"],
        shard.c.index == free["index"],
        shard.c.state == free["state"],
        shard.c.token == free["token"],
    )
