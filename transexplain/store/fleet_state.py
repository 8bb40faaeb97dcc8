"""The state of a fleet in SQL: runs, shards, workers and their devices, failures, messages.

For monitors one transaction reads a row for each shard of the newest runs, and nothing of their
items but why some failed. Histograms are of saved shards, but for that of leases, which is of those
held now.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import (
    CTE,
    ColumnElement,
    Connection,
    RowMapping,
    Text,
    case,
    func,
    or_,
    select,
    text,
    type_coerce,
)
from sqlalchemy.dialects import postgresql, sqlite

from transexplain.store.columns import DatabaseTime, json_of
from transexplain.store.database import Database
from transexplain.store.runs import failed_items, states_of
from transexplain.store.schema import dead_letter, failure, run, shard
from transexplain.store.shard_blocks import Pending, pending
from transexplain.store.shards import lease_expired
from transexplain.text.parsing import UnreadableError, read_json
from transexplain.types.device_time import BUSY, NO_WORK, STAGES, DeviceTime
from transexplain.types.plans import DeviceClass, Modality

RECENT = 24 * 3600.0
RUN_STATES = ("running", "done", "cancelled")
_TIMES = (BUSY, *STAGES, NO_WORK)


def _current(recent: float) -> ColumnElement[bool]:
    """Whether a run runs, or ended within so many seconds."""
    return or_(run.c.state == "running", run.c.finished > DatabaseTime() - recent)


def device_times(db: Database, run_id: str) -> list[DeviceTime]:
    """Each worker's time on the saved shards of one run, by name.

    Raises DatabaseError as `Database.read`.
    """
    with db.read() as connection:
        return _times(connection, run.c.id == run_id)


def _times(connection: Connection, which: ColumnElement[bool]) -> list[DeviceTime]:
    document = json_of(connection, shard.c.environment)
    has_times = type_coerce(shard.c.environment, Text).contains('"device"')
    sums = [func.sum(document[("device", name)].as_float()).label(name) for name in _TIMES]
    query = (
        select(shard.c.worker, *sums)
        .join(run, run.c.id == shard.c.run_id)
        .where(which, shard.c.state == "done", has_times)
        .group_by(shard.c.worker)
        .order_by(shard.c.worker)
    )
    return [
        DeviceTime(
            worker=str(row["worker"]),
            seconds={name: float(row[name] or 0.0) for name in _TIMES},
        )
        for row in connection.execute(query).mappings()
    ]


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
    current = _current(recent)
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
        left = pending(connection, connection.execute(running).scalars().all())
        return FleetStatus(
            runs={**dict.fromkeys(RUN_STATES, 0), **runs},
            shards=states_of(
                "running",
                {state: count for state, count, _, _ in shards},
                sum(work.shards for work in left.values()),
            ),
            explained=sum(int(explained) for _, _, explained, _ in shards),
            failed=failed_items(connection, select(run.c.id).where(current)) if items else {},
            claims=sum(int(tokens) for _, _, _, tokens in shards),
            expired=connection.execute(expired).scalar_one(),
            workers=_workers(connection),
            devices=tuple(_times(connection, current)),
            refused=counts(connection) if items else {},
        )


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


def worker_rates(db: Database, recent: float) -> list[dict[str, Any]]:
    """What each worker saved in current runs, by its name; `recent` in seconds.

    `seconds`: computing; `rate`: items a second of these, or None.
    """
    query = (
        select(
            shard.c.worker,
            func.count().label("shards"),
            func.sum(shard.c.explained + shard.c.failed).label("items"),
            func.coalesce(func.sum(shard.c.seconds), 0.0).label("seconds"),
        )
        .join(run, run.c.id == shard.c.run_id)
        .where(_current(recent), shard.c.state == "done", shard.c.worker.is_not(None))
        .group_by(shard.c.worker)
        .order_by(shard.c.worker)
    )
    with db.read() as connection:
        return [
            {**row, "rate": row["items"] / row["seconds"] if row["seconds"] else None}
            for row in connection.execute(query).mappings()
        ]


#: in the queue, and since when a run is paused
_PLACE = ("priority", "share", "most_workers", "paused")
_STATES = {"queued": "queued", "in_work": "running"}


def running_runs(db: Database, limit: int) -> list[dict[str, Any]]:
    """Runs that are not over, with their shards and items, the newest first."""
    done = func.sum(shard.c.explained + shard.c.failed)
    query = (
        select(
            run.c.id,
            run.c.name,
            run.c.created,
            func.count().label("shards"),
            *(
                func.sum(case((shard.c.state == state, 1), else_=0)).label(name)
                for name, state in _STATES.items()
            ),
            func.sum(shard.c.stop - shard.c.start).label("items"),
            done.label("items_done"),
            func.max(shard.c.heartbeat).label("last_sign"),
            *(run.c[column] for column in _PLACE),
        )
        .join(shard, shard.c.run_id == run.c.id)
        .where(run.c.state == "running")
        .group_by(run.c.id, run.c.name, run.c.created, *(run.c[column] for column in _PLACE))
        .order_by(run.c.created.desc(), run.c.id.desc())
        .limit(limit)
    )
    with db.read() as connection:
        places = [dict(row) for row in connection.execute(query).mappings()]
        left = pending(connection, [row["id"] for row in places])
    for row in places:
        if (more := left.get(row["id"])) is not None:
            row["shards"] += more.shards
            row["items"] += more.rows
    return places


#: upper bounds of buckets: seconds of a shard, its items a second, seconds that its device waited
#: for one stage, seconds since a lease was renewed
SHARD_SECONDS = (0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0, 2500.0)
ITEMS_PER_SECOND = (0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1e3, 2.5e3, 1e4)
WAIT_SECONDS = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 50.0, 100.0)
LEASE_AGE = (1.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Histogram:
    """How many values are at most each bound, how many there are, and their sum."""

    counts: tuple[int, ...]  #: cumulative, one for each bound; the last is that of all
    total: float  #: the sum of the values

    def __add__(self, other: "Histogram") -> "Histogram":
        counts = tuple(a + b for a, b in zip(self.counts, other.counts, strict=True))
        return Histogram(counts=counts, total=self.total + other.total)


@dataclass(frozen=True, kw_only=True, slots=True)
class RunFigures:
    """One run that runs, or ended a short time ago."""

    id: str
    name: str
    state: str
    paused: bool  #: it hands out no shard
    task: str
    modality: str
    device: str  #: as the plan names it
    age: float  #: seconds since it was created
    idle: float  #: seconds since a worker claimed a shard or renewed its lease, or since `age`
    shards: Mapping[str, int]  #: shard state -> count, every state named
    explained: int  #: items
    failed: int  #: items
    pending: int  #: items of shards that are not over
    claims: int
    kinds: Mapping[str, int]  #: kind of failure -> items; empty without the right to read them
    leases: Histogram  #: seconds since leases of the run were renewed


@dataclass(frozen=True, kw_only=True, slots=True)
class SavedShards:
    """What one worker saved of one run."""

    run_id: str
    worker: str
    hardware: str  #: name of the GPU, or `cpu`
    heard: float  #: seconds since the worker was last heard of there
    shards: int
    items: int
    seconds: Mapping[str, float]  #: of the device, by `BUSY`, `STAGES` and `NO_WORK`
    shard_seconds: Histogram
    rates: Histogram  #: items a second
    waits: Mapping[str, Histogram]  #: stage -> seconds


@dataclass(frozen=True, kw_only=True, slots=True)
class FleetFigures:
    """The newest runs first, those that run before those that are over."""

    runs: tuple[RunFigures, ...]
    saved: tuple[SavedShards, ...]
    left_out: int  #: runs beyond the most that were asked for


@dataclass(slots=True)
class FigureReader:
    """Reads the figures again and again; what the plan of a run says is read once."""

    db: Database
    recent: float  #: seconds since the end of a run in which it is still counted
    most: int  #: runs
    _plans: dict[str, dict[str, str]] = field(default_factory=dict)

    def read(self, *, items: bool = True) -> FleetFigures:
        """The figures as they stand; `items`: with failures by kind.

        Raises DatabaseError as `Database.read`.
        """
        current = _current(self.recent)
        newest = (
            select(
                *(run.c.id, run.c.name, run.c.state, run.c.paused),
                (DatabaseTime() - run.c.created).label("age"),
            )
            .where(current)
            .order_by(case((run.c.state == "running", 0), else_=1), run.c.created.desc(), run.c.id)
            .limit(self.most)
        )
        with self.db.read() as connection:
            rows = connection.execute(newest).mappings().all()
            many = connection.execute(select(func.count()).where(current)).scalar_one()
            ids = [row["id"] for row in rows]
            plans = self._facts(connection, ids)
            states = _states(connection, ids)
            kinds = _kinds(connection, ids) if items else {}
            leases = _leases(connection, ids)
            saved = _saved(connection, ids)
            left = pending(connection, ids)
        return FleetFigures(
            runs=tuple(
                _figures(
                    *(row, plans[row["id"]], states, kinds, leases),
                    left.get(row["id"], Pending()),
                )
                for row in rows
            ),
            saved=tuple(saved),
            left_out=max(0, many - len(rows)),
        )

    def _facts(self, connection: Connection, ids: Sequence[str]) -> dict[str, dict[str, str]]:
        """What these plans say; only those are read that the last call did not know."""
        known = self._plans  # another thread may read, too
        query = select(run.c.id, type_coerce(run.c.plan, Text)).where(
            run.c.id.in_([one for one in ids if one not in known])
        )
        # not by SQL: PostgreSQL refuses a document with NUL in any name or word
        found = {run_id: _facts(plan) for run_id, plan in connection.execute(query)}
        self._plans = plans = {one: known.get(one) or found[one] for one in ids}
        return plans


def _facts(plan: str) -> dict[str, str]:
    """Task, modality and device of a stored plan; "" where it is damaged."""
    document: Any = {}
    with suppress(UnreadableError):
        document = read_json(plan)
    found = document if isinstance(document, dict) else {}
    model = found.get("model")
    of_model = model if isinstance(model, dict) else {}
    return {
        "task": str(found.get("task", "")),
        "modality": str(of_model.get("modality", "")),
        "device": str(of_model.get("device", "")),
    }


def _figures(
    row: RowMapping,
    plan: Mapping[str, str],
    states: Mapping[str, Sequence[RowMapping]],
    kinds: Mapping[str, Mapping[str, int]],
    leases: Mapping[str, Histogram],
    left: Pending,
) -> RunFigures:
    mine = states.get(row["id"], ())
    heard = [float(one["heard"]) for one in mine if one["heard"] is not None]
    open_ = (one for one in mine if one["state"] in ("queued", "running"))
    return RunFigures(
        id=row["id"],
        name=row["name"],
        state=row["state"],
        paused=row["paused"] is not None,
        **plan,
        age=max(0.0, float(row["age"])),
        idle=max(0.0, min([float(row["age"]), *heard])),
        shards=states_of(
            row["state"], {one["state"]: int(one["shards"]) for one in mine}, left.shards
        ),
        explained=sum(int(one["explained"]) for one in mine),
        failed=sum(int(one["failed"]) for one in mine),
        pending=sum(int(one["items"]) for one in open_)
        + (left.rows if row["state"] == "running" else 0),
        claims=sum(int(one["claims"]) for one in mine),
        kinds=kinds.get(row["id"], {}),
        leases=leases.get(row["id"], Histogram(counts=(0,) * (len(LEASE_AGE) + 1), total=0.0)),
    )


def _states(connection: Connection, ids: Collection[str]) -> dict[str, list[RowMapping]]:
    query = (
        select(
            shard.c.run_id,
            shard.c.state,
            func.count().label("shards"),
            func.sum(shard.c.explained).label("explained"),
            func.sum(shard.c.failed).label("failed"),
            func.sum(shard.c.stop - shard.c.start).label("items"),
            func.sum(shard.c.token).label("claims"),
            (DatabaseTime() - func.max(shard.c.heartbeat)).label("heard"),
        )
        .where(shard.c.run_id.in_(ids))
        .group_by(shard.c.run_id, shard.c.state)
    )
    found: dict[str, list[RowMapping]] = {}
    for row in connection.execute(query).mappings():
        found.setdefault(row["run_id"], []).append(row)
    return found


def _kinds(connection: Connection, ids: Collection[str]) -> dict[str, dict[str, int]]:
    query = (
        select(failure.c.run_id, failure.c.kind, func.count())
        .where(failure.c.run_id.in_(ids))
        .group_by(failure.c.run_id, failure.c.kind)
        .order_by(failure.c.run_id, func.count().desc(), failure.c.kind)
    )
    found: dict[str, dict[str, int]] = {}
    for run_id, kind, count in connection.execute(query):
        found.setdefault(run_id, {})[str(kind)] = int(count)
    return found


def _buckets(
    value: ColumnElement[float], bounds: Sequence[float], name: str
) -> list[ColumnElement[Any]]:
    """The columns of a histogram; `_histogram` reads them."""
    at_most: list[ColumnElement[Any]] = [func.count(case((value <= one, 1))) for one in bounds]
    columns = [*at_most, func.count(value), func.coalesce(func.sum(value), 0.0)]
    return [column.label(f"{name}_{place}") for place, column in enumerate(columns)]


def _histogram(row: RowMapping, bounds: Sequence[float], name: str) -> Histogram:
    *counts, total = (row[f"{name}_{place}"] for place in range(len(bounds) + 2))
    return Histogram(counts=tuple(map(int, counts)), total=float(total))


def _leases(connection: Connection, ids: Collection[str]) -> dict[str, Histogram]:
    age = DatabaseTime() - shard.c.heartbeat
    query = (
        select(shard.c.run_id, *_buckets(age, LEASE_AGE, "age"))
        .where(shard.c.run_id.in_(ids), shard.c.state == "running", ~lease_expired())
        .group_by(shard.c.run_id)
    )
    rows = connection.execute(query).mappings()
    return {row["run_id"]: _histogram(row, LEASE_AGE, "age") for row in rows}


def _saved(connection: Connection, ids: Collection[str]) -> list[SavedShards]:
    one = _saved_shards(connection, ids)
    rate = case((one.c.seconds > 0, one.c.rows / one.c.seconds))
    query = (
        select(
            one.c.run_id,
            one.c.worker,
            one.c.gpus,
            func.min(one.c.heard).label("heard"),
            func.count().label("shards"),
            func.sum(one.c.rows).label("items"),
            *(func.coalesce(func.sum(one.c[name]), 0.0).label(name) for name in _TIMES),
            *_buckets(one.c.seconds, SHARD_SECONDS, "seconds"),
            *_buckets(rate, ITEMS_PER_SECOND, "rate"),
            *(
                column
                for stage in STAGES
                for column in _buckets(one.c[stage], WAIT_SECONDS, f"wait_{stage}")
            ),
        )
        .group_by(one.c.run_id, one.c.worker, one.c.gpus)
        .order_by(func.min(one.c.heard), one.c.run_id, one.c.worker)
    )
    return [_saved_of(row) for row in connection.execute(query).mappings()]


def _saved_shards(connection: Connection, ids: Collection[str]) -> CTE:
    """A row for each saved shard, its document read once and not once for each bucket."""
    document = json_of(connection, shard.c.environment)
    return (
        select(
            shard.c.run_id,
            func.coalesce(shard.c.worker, "").label("worker"),
            document[("hardware", "gpus")].as_string().label("gpus"),
            (DatabaseTime() - shard.c.heartbeat).label("heard"),
            shard.c.seconds,
            (shard.c.explained + shard.c.failed).label("rows"),
            *(document[("device", name)].as_float().label(name) for name in _TIMES),
        )
        .where(shard.c.run_id.in_(ids), shard.c.state == "done")
        .cte("saved")
        .prefix_with("MATERIALIZED")
    )


def _saved_of(row: RowMapping) -> SavedShards:
    return SavedShards(
        run_id=row["run_id"],
        worker=str(row["worker"]),
        hardware=_hardware(row["gpus"]),
        heard=float(row["heard"] or 0.0),
        shards=int(row["shards"]),
        items=int(row["items"]),
        seconds={name: float(row[name]) for name in _TIMES},
        shard_seconds=_histogram(row, SHARD_SECONDS, "seconds"),
        rates=_histogram(row, ITEMS_PER_SECOND, "rate"),
        waits={stage: _histogram(row, WAIT_SECONDS, f"wait_{stage}") for stage in STAGES},
    )


def _hardware(gpus: str | None) -> str:
    """The different names in a JSON list of GPUs; `cpu` where there is none."""
    names = json.loads(gpus) if gpus else []
    return " + ".join(sorted({str(name) for name in names})) or "cpu"


# A plan is searched as text, for PostgreSQL refuses to read a document with NUL in any word, and
# one such run would stop the scaling of all. Quotes within its words are escaped, so that they
# match nothing; of a model's keys the one stands behind the other in every plan.
_ON_CPU = """run.plan LIKE '%"dtype":"%","device":"cpu%'"""
#: shards of a large run that wait without a row, see `shard_blocks`
_NOT_MADE = (
    "CASE WHEN run.paused IS NULL THEN COALESCE(MAX((pending_shards.stop - pending_shards.start"
    " + pending_shards.size - 1) / pending_shards.size), 0) ELSE 0 END"
)
_PLANS_FOR = {"cpu": _ON_CPU, "gpu": _ON_CPU.replace(" LIKE ", " NOT LIKE ")}


def demand_sql(device: DeviceClass | None = None, modalities: Collection[Modality] = ()) -> str:
    """A query whose one value is the number of shards that need a worker now.

    Of plans for one class of device or for both (None), and of these modalities, or of all. It
    reads `run`, `shard` and `pending_shards`, which every role of `upkeep` may, and is for both
    databases.
    """
    conditions = ["run.state = 'running'"]
    if device is not None:
        conditions.append(_PLANS_FOR[device])
    if modalities:
        of = (f"""run.plan LIKE '%"modality":"{one}","classes":%'""" for one in sorted(modalities))
        conditions.append(f"({' OR '.join(of)})")
    return (
        "SELECT COALESCE(SUM(CASE WHEN most_workers < shards THEN most_workers ELSE shards END), 0)"
        f" AS shards FROM (SELECT run.most_workers, COUNT(shard.run_id) + {_NOT_MADE} AS shards"
        " FROM run LEFT JOIN shard ON shard.run_id = run.id"
        " AND shard.state IN ('queued', 'running')"
        " AND (run.paused IS NULL OR shard.state = 'running')"
        " LEFT JOIN pending_shards ON pending_shards.run_id = run.id"
        f" WHERE {' AND '.join(conditions)}"
        " GROUP BY run.id, run.most_workers, run.paused) AS need"
    )


def demand(
    db: Database, device: DeviceClass | None = None, modalities: Collection[Modality] = ()
) -> int:
    """The value of `demand_sql`; raises DatabaseError as `Database.read`."""
    with db.read() as connection:
        return int(connection.execute(text(demand_sql(device, modalities))).scalar_one())
