"""The state of a fleet in SQL: runs, shards, workers, failures by kind, refused messages."""

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, Text, func, or_, select, type_coerce
from sqlalchemy.dialects import postgresql, sqlite

from transexplain.store import shard_blocks
from transexplain.store.columns import DatabaseTime, json_of
from transexplain.store.database import Database
from transexplain.store.runs import states_of
from transexplain.store.schema import dead_letter, failure, run, shard
from transexplain.store.shards import lease_expired
from transexplain.types.device_time import BUSY, NO_WORK, STAGES, DeviceTime

_NAMES = (BUSY, *STAGES, NO_WORK)


def device_times(db: Database, run_id: str) -> list[DeviceTime]:
    """Each worker's time on the saved shards of one run, by name.

    Raises DatabaseError as `Database.read`.
    """
    with db.read() as connection:
        return _times(connection, shard.c.run_id == run_id)


def recent_device_times(connection: Connection, recent: float) -> list[DeviceTime]:
    """The same of all runs that run, or ended within so many seconds."""
    current = or_(run.c.state == "running", run.c.finished > DatabaseTime() - recent)
    return _times(connection, shard.c.run_id.in_(select(run.c.id).where(current)))


def _times(connection: Connection, which: ColumnElement[bool]) -> list[DeviceTime]:
    document = json_of(connection, shard.c.environment)
    has_times = type_coerce(shard.c.environment, Text).contains('"device"')
    sums = [func.sum(document[("device", name)].as_float()).label(name) for name in _NAMES]
    query = (
        select(shard.c.worker, *sums)
        .where(which, shard.c.state == "done", has_times)
        .group_by(shard.c.worker)
        .order_by(shard.c.worker)
    )
    return [
        DeviceTime(
            worker=str(row["worker"]),
            seconds={name: float(row[name] or 0.0) for name in _NAMES},
        )
        for row in connection.execute(query).mappings()
    ]


def add(db: Database, counts: Mapping[str, int]) -> None:
    """Add to the counts, reason -> messages, in one transaction.

    Raises DatabaseError as `Database.begin`.
    """
    with db.begin() as connection:
        dialect = sqlite if connection.dialect.name == "sqlite" else postgresql
        for reason in sorted(counts):  # in one order, or two workers would deadlock
            insert = dialect.insert(dead_letter).values(
                reason=reason, messages=counts[reason], latest=DatabaseTime()
            )
            connection.execute(
                insert.on_conflict_do_update(
                    index_elements=[dead_letter.c.reason],
                    set_={
                        "messages": dead_letter.c.messages + insert.excluded.messages,
                        "latest": insert.excluded.latest,
                    },
                )
            )


def counts(connection: Connection) -> dict[str, int]:
    """Messages refused since the tables were made, by reason."""
    query = select(dead_letter.c.reason, dead_letter.c.messages).order_by(dead_letter.c.reason)
    return {reason: int(messages) for reason, messages in connection.execute(query)}


RECENT = 24 * 3600.0
RUN_STATES = ("running", "done", "cancelled")


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerStatus:
    """One worker that holds shards of a run now."""

    name: str
    run_id: str
    shards: int
    heartbeat_age: float  #: seconds since it was last heard of
    lease_left: float  #: seconds; negative: it lost the shard it is silent about


@dataclass(frozen=True, kw_only=True, slots=True)
class FleetStatus:
    """Counts over all runs (by state) and over the current ones (everything else)."""

    runs: Mapping[str, int]  #: run state -> count, every state named
    shards: Mapping[str, int]  #: shard state -> count, every state named
    explained: int  #: items
    failed: Mapping[str, int]  #: kind of failure -> items
    claims: int  #: of shards, so far
    expired: int  #: shards whose lease ran out and that nobody took over yet
    workers: tuple[WorkerStatus, ...]
    devices: tuple[DeviceTime, ...]  #: of each worker that saved a shard, by name
    refused: Mapping[str, int]  #: reason -> messages on the queue that were none of ours, ever


def status(db: Database, *, recent: float = RECENT, items: bool = True) -> FleetStatus:
    """The fleet as it stands; `recent` in seconds. Raises DatabaseError as `Database.read`.

    Without `items` nothing is read that a role of `upkeep` has no right to: no failures by kind
    and no refused messages.
    """
    current = or_(run.c.state == "running", run.c.finished > DatabaseTime() - recent)
    by_state = select(run.c.state, func.count().label("runs")).group_by(run.c.state)
    by_shard = (
        select(shard.c.state, func.count(), func.sum(shard.c.explained), func.sum(shard.c.token))
        .join(run, run.c.id == shard.c.run_id)
        .where(current)
        .group_by(shard.c.state)
    )
    expired = select(func.count()).where(lease_expired())
    running = select(run.c.id).where(run.c.state == "running")
    with db.read() as connection:
        runs = {row.state: row.runs for row in connection.execute(by_state)}
        shards = connection.execute(by_shard).all()
        left = shard_blocks.pending(connection, connection.execute(running).scalars().all())
        return FleetStatus(
            runs={**dict.fromkeys(RUN_STATES, 0), **runs},
            shards=states_of(
                "running",
                {state: count for state, count, _, _ in shards},
                sum(work.shards for work in left.values()),
            ),
            explained=sum(int(explained) for _, _, explained, _ in shards),
            failed=_failed(connection, current) if items else {},
            claims=sum(int(tokens) for _, _, _, tokens in shards),
            expired=connection.execute(expired).scalar_one(),
            workers=_workers(connection),
            devices=tuple(recent_device_times(connection, recent)),
            refused=counts(connection) if items else {},
        )


def failures(db: Database, run_id: str) -> dict[str, int]:
    """Failed items of one run by kind, sorted by it."""
    with db.read() as connection:
        return _failed(connection, run.c.id == run_id)


def _failed(connection: Connection, which: ColumnElement[bool]) -> dict[str, int]:
    query = (
        select(failure.c.kind, func.count())
        .join(run, run.c.id == failure.c.run_id)
        .where(which)
        .group_by(failure.c.kind)
    )
    return dict(sorted((str(kind), int(count)) for kind, count in connection.execute(query)))


def _workers(connection: Connection) -> tuple[WorkerStatus, ...]:
    query = (
        select(
            shard.c.worker,
            shard.c.run_id,
            func.count(),
            DatabaseTime() - func.max(shard.c.heartbeat),
            func.min(shard.c.lease_until) - DatabaseTime(),
        )
        .where(shard.c.state == "running", shard.c.lease_until.is_not(None))
        .group_by(shard.c.worker, shard.c.run_id)
    )
    workers = (
        WorkerStatus(
            name=str(name),
            run_id=run_id,
            shards=count,
            heartbeat_age=max(0.0, float(age)),
            lease_left=float(left),
        )
        for name, run_id, count, age, left in connection.execute(query)
    )
    return tuple(sorted(workers, key=lambda worker: (worker.name, worker.run_id)))
