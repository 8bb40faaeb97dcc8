"""Claims shards: leases by the database's clock, fenced by a token that every claim raises.

Leases are renewed, given back or expire; an attempt that failed or died leaves what it has taught.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    RowMapping,
    Select,
    Update,
    and_,
    func,
    or_,
    select,
    text,
    update,
)

from transexplain.errors import DatabaseError
from transexplain.store import shard_blocks, sink_files
from transexplain.store.columns import DatabaseTime
from transexplain.store.database import Database
from transexplain.store.result_rows import forget
from transexplain.store.runs import Claim, ShardStatus, finalise, require
from transexplain.store.schema import failure, run, shard
from transexplain.store.shard_digests import DamagedShard, damaged, write_file_again
from transexplain.types.observer import Caution
from transexplain.types.plans import Shard

#: failures that lie in the circumstances rather than in the data; another try may pass
PASSING_KINDS = ("model-error", "out-of-memory", "quarantined")
_GIVEN_UP = shard.c.state.in_(("dead", "cancelled"))


def redrive(db: Database, run_id: str, *, files_lost: bool = False) -> int:
    """Queue the dead and the cancelled shards again, attempts forgotten; returns how many.

    So are those that are not as they were saved. The run is reopened. A cancelled run stays
    cancelled: 0. Files of a sink whose results are in the database, too, are written again, and so
    is its manifest.

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
    else:  # a sink whose files were written again lacks its manifest
        sink_files.close(db, run_id)
    return count


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


def room(connection: Connection, run_id: str) -> int | None:
    """How many more shards of a run may be in hand; None: no cap. An expired lease counts, too."""
    query = select(run.c.most_workers, shards_in_hand(run_id).scalar_subquery().label("in_hand"))
    row = connection.execute(query.where(run.c.id == run_id)).one()
    return None if row.most_workers is None else max(0, row.most_workers - row.in_hand)


def shards_in_hand(run_id: str | ColumnElement[str]) -> Any:
    """A query: how many shards of a run are claimed. An expired lease counts, too."""
    return (
        select(func.count())
        .select_from(shard)
        .where(shard.c.run_id == run_id, shard.c.state == "running")
    )


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
    return hang(db, claim, (), message, traceback)


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
    with db.begin() as connection:
        limit = require(connection, claim.run_id).max_attempts
        query = select(shard).where(held_by(claim)).with_for_update()
        row = connection.execute(query).mappings().one_or_none()
        if row is None:
            return None
        known = learned(row, limit, breadcrumb, cause, traceback, convicted=convicted)
        connection.execute(held(claim).values(known))
    if known["state"] == "dead":
        finalise(db, claim.run_id)
    return str(known["state"])


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
    return update(shard).where(held_by(claim))


def _runs(run_id: str | None) -> Sequence[str] | Select[tuple[str]]:
    return select(run.c.id).where(run.c.state == "running") if run_id is None else (run_id,)


def held_by(claim: Claim) -> ColumnElement[bool]:
    """Whether a shard is still the one of this claim."""
    return and_(
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
