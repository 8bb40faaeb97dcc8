"""Leases on shards: renewed, given back, expired, and the result of an attempt that failed or
died.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, RowMapping, Select, Update, and_, or_, select, text, update

from transexplain.store.columns import DatabaseTime
from transexplain.store.database import Database
from transexplain.store.runs import Claim, finalise, require
from transexplain.store.schema import run, shard
from transexplain.types.observer import Caution

Document = Mapping[str, Mapping[str, Any]]


def after_death(
    document: Document | None,
    breadcrumb: Sequence[str] | None,
    cause: str,
    traceback: str = "",
    *,
    convicted: bool = False,
) -> Document | None:
    """The knowledge after an attempt died with the items `breadcrumb`.

    A death alone is no proof: whatever ends processes from outside ends them in some item. It is
    counted, and the item is put in quarantine where a trial has `convicted` it.
    """
    if not breadcrumb:
        return document
    known: dict[str, Any] = dict(document or {"deaths": {}, "quarantined": {}, "tracebacks": {}})
    deaths = dict.fromkeys(breadcrumb, 0) | dict(known["deaths"])
    if len(breadcrumb) == 1:
        deaths[breadcrumb[0]] += 1
    known |= {"deaths": deaths}
    if convicted:
        known |= {"quarantined": {**known["quarantined"], **dict.fromkeys(breadcrumb, cause)}}
        if traceback:
            known |= {"tracebacks": {**known["tracebacks"], **dict.fromkeys(breadcrumb, traceback)}}
    return known


def caution_of(document: Document | None) -> Caution:
    """The caution for the shard's next attempt, from that knowledge."""
    if not document:
        return Caution()
    quarantined = dict(document["quarantined"])
    suspects = {
        name: times for name, times in document["deaths"].items() if name not in quarantined
    }
    return Caution(
        alone=frozenset(suspects),
        accused=frozenset(name for name, times in suspects.items() if times),
        quarantined=quarantined,
        tracebacks=dict(document["tracebacks"]),
    )


def lease_expired() -> ColumnElement[bool]:
    """Whether a shard is `running` with no valid lease."""
    return and_(shard.c.state == "running", or_(shard.c.lease_until < DatabaseTime(), lease_void()))


def lease_void() -> ColumnElement[bool]:
    """Whether the database's clock was set back by more than the lease's length since its renewal.

    Its length is what lies between the renewal and the end. A smaller step is not worth the work
    that would be done twice: the lease ends that much later.
    """
    now, length = DatabaseTime(), shard.c.lease_until - shard.c.heartbeat
    return and_(shard.c.lease_until >= now, shard.c.heartbeat > now + length)


def renew(
    db: Database, claim: Claim, lease_seconds: float, breadcrumb: Sequence[str] | None = None
) -> bool:
    """Extend the lease from now; False: the shard went to another worker or was cancelled.

    `breadcrumb`, where given, is noted as by `note`.
    """
    values: dict[str, Any] = {
        "lease_until": DatabaseTime() + lease_seconds,
        "heartbeat": DatabaseTime(),
    }
    if breadcrumb is not None:
        values["breadcrumb"] = list(breadcrumb)
    with db.begin() as connection:
        return connection.execute(held(claim).values(values)).rowcount == 1


def note(db: Database, claim: Claim, breadcrumb: Sequence[str], *, wait: bool = True) -> bool:
    """Record the ids of the items being computed, in case they end the process.

    False: the claim is void. PostgreSQL need not wait for its disk: where the server fails, too,
    only the breadcrumb is lost. Without `wait` DatabaseError is raised where it would have to wait
    until another has written to SQLite's file.
    """
    with db.begin() if wait else db.begin_at_once() as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(text("SET LOCAL synchronous_commit TO OFF"))
        noted = connection.execute(held(claim).values(breadcrumb=list(breadcrumb)))
        return noted.rowcount == 1


def give_back(db: Database, claim: Claim) -> bool:
    """Queue the shard again, as if it had not been claimed; False: the claim was void."""
    with db.begin() as connection:
        given = connection.execute(
            held(claim).values(
                state="queued", lease_until=None, breadcrumb=None, attempt=shard.c.attempt - 1
            )
        )
        return given.rowcount == 1


def cancel_shard(db: Database, run_id: str, shard_index: int, reason: str) -> bool:
    """End one shard as cancelled, fencing whoever works on it; False: it was over already.

    `reason` is kept as its error. The run goes on without it and ends once the others are over;
    `redrive` queues it again.
    """
    with db.begin() as connection:
        cancelled = connection.execute(
            update(shard)
            .where(
                shard.c.run_id == run_id,
                shard.c.index == shard_index,
                shard.c.state.in_(("queued", "running")),
            )
            .values(
                state="cancelled", lease_until=None, breadcrumb=None, error=reason, traceback=None
            )
        )
        if cancelled.rowcount == 0:
            return False
    finalise(db, run_id)  # in a transaction of its own: it locks the run before any shard
    return True


def fail(db: Database, claim: Claim, message: str, traceback: str = "") -> str | None:
    """Record why the attempt failed; returns `queued`, `dead`, or None where it was not ours.

    It counts as one without progress: an error that no single item is to blame for.
    """
    return _end(db, claim, (), message, traceback)


def hang(
    db: Database,
    claim: Claim,
    breadcrumb: Sequence[str],
    cause: str,
    traceback: str = "",
    *,
    convicted: bool = False,
) -> str | None:
    """Record that the attempt hung or died while computing the items `breadcrumb`.

    `convicted`: a trial has shown that it is theirs. Returns as `fail`.
    """
    return _end(db, claim, breadcrumb, cause, traceback, convicted=convicted)


def expire(db: Database, run_id: str | None, worker_prefix: str) -> int:
    """End the leases of workers that are known to be dead, by how their names begin; how many.

    Those of one run, or, None, of every run that is running.
    """
    with db.begin() as connection:
        ended = connection.execute(
            update(shard)
            .where(
                shard.c.run_id.in_(_runs(run_id)),
                shard.c.state == "running",
                shard.c.worker.startswith(worker_prefix, autoescape=True),
            )
            .values(lease_until=DatabaseTime() - 1.0)
        )
        return ended.rowcount


def holders(db: Database, run_id: str | None) -> list[str]:
    """Names of the workers that hold shards of a run, or, None, of any run that is running."""
    query = (
        select(shard.c.worker)
        .where(shard.c.run_id.in_(_runs(run_id)), shard.c.state == "running", ~lease_expired())
        .distinct()
        .order_by(shard.c.worker)
    )
    with db.read() as connection:
        return [str(name) for name in connection.execute(query).scalars()]


def held(claim: Claim) -> Update:
    """An update of the claim's shard that touches no row once the claim is void."""
    return update(shard).where(*_ours(claim))


def _runs(run_id: str | None) -> Sequence[str] | Select[tuple[str]]:
    return select(run.c.id).where(run.c.state == "running") if run_id is None else (run_id,)


def _ours(claim: Claim) -> tuple[ColumnElement[bool], ...]:
    return (
        shard.c.run_id == claim.run_id,
        shard.c.index == claim.shard.index,
        shard.c.state == "running",
        shard.c.token == claim.token,
    )


def learned(
    row: RowMapping,
    limit: int,
    breadcrumb: Sequence[str] | None,
    cause: str,
    traceback: str = "",
    *,
    convicted: bool = False,
) -> dict[str, Any]:
    """The columns of a shard whose attempt ended so; after `limit` without progress it is dead.

    Only to know the culprit is progress, so that a shard cannot go on for ever by dying
    differently.
    """
    suspects = after_death(row["suspects"], breadcrumb, cause, traceback, convicted=convicted)
    fruitless = 0 if convicted else row["fruitless"] + 1
    known = {
        "state": "queued",
        "lease_until": None,
        "breadcrumb": None,
        "fruitless": fruitless,
        "suspects": suspects,
        "error": cause,
        "traceback": traceback or None,
    }
    if fruitless < limit:
        return known
    return known | {"state": "dead", "error": cause + _named(caution_of(suspects))}


def _named(caution: Caution) -> str:
    """Whom a dead shard suspects, for the end of its error."""
    names = sorted(caution.accused) or sorted(caution.alone)
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"; suspects: {', '.join(map(repr, names[:_NAMED]))}{more}" if names else ""


_NAMED = 3  #: items


def _end(
    db: Database,
    claim: Claim,
    breadcrumb: Sequence[str],
    cause: str,
    traceback: str,
    *,
    convicted: bool = False,
) -> str | None:
    with db.begin() as connection:
        limit = require(connection, claim.run_id).max_attempts
        query = select(shard).where(*_ours(claim)).with_for_update()
        row = connection.execute(query).mappings().one_or_none()
        if row is None:
            return None
        known = learned(row, limit, breadcrumb, cause, traceback, convicted=convicted)
        connection.execute(held(claim).values(known))
    if known["state"] == "dead":
        finalise(db, claim.run_id)
    return str(known["state"])
