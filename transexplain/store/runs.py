"""Runs: a plan and its shards, from creation to the one transition that closes it."""

import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Select,
    exc,
    func,
    insert,
    or_,
    select,
    update,
)

from transexplain.environment import planned_here
from transexplain.errors import ConfigurationError
from transexplain.store import shard_blocks, sink_files
from transexplain.store.columns import DatabaseTime
from transexplain.store.database import Database
from transexplain.store.schema import failure, run, shard
from transexplain.types.observer import Caution
from transexplain.types.plans import NO_PREFERENCE, AuditPlan, AuditRun, QueuePlace, RunState, Shard

if TYPE_CHECKING:
    from pydantic import TypeAdapter

SHARD_STATES = ("queued", "running", "done", "dead", "cancelled")


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """The right to save one shard's result, until another claim of it raises the token."""

    run_id: str
    shard: Shard
    token: int
    attempt: int  #: 1 for the first
    caution: Caution = field(default_factory=Caution)  #: what attempts that died have taught
    capped: bool = False  #: only so many shards of the run may be in hand


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardStatus:
    """One shard as it stands."""

    shard: Shard
    state: str  #: queued | running | done | dead | cancelled
    attempt: int
    worker: str | None  #: the last that claimed it
    lease_left: float | None  #: seconds; negative: expired; None: nobody holds it
    error: str | None  #: of the last attempt that failed
    traceback: str | None  #: of that error, see `error_frames`
    seconds: float | None  #: computing, of the attempt that was saved
    fruitless: int = 0  #: attempts that ended without progress, since the last that made any
    breadcrumb: tuple[str, ...] = ()  #: ids of the items in hand, or that a dead attempt had
    caution: Caution = field(default_factory=Caution)  #: for the next attempt


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordedRun:
    """A run's row; the plan as the document that was stored, not as this version reads it."""

    id: str
    state: str
    created: float  #: seconds since the epoch
    finished: float | None
    plan: Mapping[str, Any]
    plan_digest: str
    environment: Mapping[str, Any]  #: of who planned it


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordedShard:
    """A shard's row."""

    index: int
    start: int
    stop: int
    state: str
    attempt: int
    worker: str | None
    seconds: float | None
    explained: int
    failed: int
    digest: str | None  #: of what was saved; None: nothing was
    environment: Mapping[str, Any] | None  #: of who saved it


@dataclass(frozen=True, kw_only=True, slots=True)
class RunProgress:
    """How far a run is."""

    run_id: str
    name: str
    state: RunState
    states: Mapping[str, int]  #: shard state -> count, every state named
    items_done: int  #: explained and saved; failed ones not among them
    items_failed: int  #: saved as failures
    items_total: int  #: rows of the dataset
    seconds: float  #: computing, summed over the saved shards
    elapsed: float  #: seconds since the run was created, until it finished
    workers: int  #: distinct holders of shards now
    paused: bool = False  #: it hands out no shard
    place: QueuePlace = NO_PREFERENCE

    @property
    def items_finished(self) -> int:
        """Items that are done or failed."""
        return self.items_done + self.items_failed


@dataclass(frozen=True, kw_only=True, slots=True)
class ConservationSummary:
    """How well the ledgers of a run close, over all attributions that have one."""

    n: int
    max_relative_gap: float  #: largest |gap| / magnitude
    mean_relative_gap: float
    above: (
        int  #: ledgers whose relative gap is above the requested tolerance; 0: none was requested
    )
    worst_item: str  #: id of the item with the largest
    sums: Mapping[str, float]  #: ledger entry (inputs ... gap, magnitude) -> sum, in logits
    absolute: Mapping[str, float]  #: the same of absolute values


def plan_of(document: Any) -> AuditPlan:
    """The plan of a JSON document; raises ConfigurationError where it is not one."""
    from pydantic import ValidationError

    try:
        return _adapter().validate_python(document)
    except ValidationError as error:
        wrong = ", ".join(".".join(map(str, problem["loc"])) for problem in error.errors())
        raise ConfigurationError(
            f"the stored plan is not one that this version reads; wrong or missing: {wrong}"
        ) from error


@lru_cache(maxsize=1)
def _adapter() -> "TypeAdapter[AuditPlan]":
    from pydantic import TypeAdapter

    return TypeAdapter(AuditPlan)


_RECENT = 5


def id_of(db: Database, run_id: str) -> str:
    """The id of the run that `runs.get` gives, also where its plan cannot be read.

    Raises ConfigurationError as `runs.get`.
    """
    with db.read() as connection:
        return named_run(connection, run_id)


def named_run(connection: Connection, run_id: str) -> str:
    """As `id_of`."""
    query = select(run.c.id)
    if run_id == "latest":
        query = query.order_by(run.c.created.desc(), run.c.id.desc()).limit(1)
    else:
        begins = run.c.id.startswith(run_id, autoescape=True)
        tail = run.c.id.contains(f"-{run_id}", autoescape=True)
        query = query.where(or_(begins, tail)).limit(_RECENT)
    ids = connection.execute(query).scalars().all()
    exact = [name for name in ids if name == run_id] or ids
    if not run_id or not exact:
        raise unknown_run(connection, run_id)
    if len(exact) > 1:
        raise ConfigurationError(
            f"run {run_id!r} could be any of {', '.join(exact)}; write more of it"
        )
    return str(exact[0])


def unknown_run(connection: Connection, run_id: str) -> ConfigurationError:
    """The error for a run that is not there, with those that are."""
    newest = select(run.c.id, run.c.name).order_by(run.c.created.desc()).limit(_RECENT)
    recent = [f"{row.id} ({row.name})" for row in connection.execute(newest)]
    listed = f"recent runs: {', '.join(recent)}" if recent else "this database holds no runs yet"
    return ConfigurationError(f"no run {run_id!r}; {listed}")


def create(
    db: Database,
    plan: AuditPlan,
    shards: Sequence[Shard],
    previous: str | None = None,
    place: QueuePlace = NO_PREFERENCE,
) -> str:
    """Write a run and its queued shards in one transaction; returns the new run's id.

    Of very many shards the first block, see `shard_blocks`.

    `previous` is the id of the run that its report compares it with.
    """
    with db.begin() as connection:
        return write(connection, plan, shards, previous, place)


def write(
    connection: Connection,
    plan: AuditPlan,
    shards: Sequence[Shard],
    previous: str | None = None,
    place: QueuePlace = NO_PREFERENCE,
) -> str:
    """As `create`, but as part of a transaction."""
    values = {
        **asdict(place),
        "previous": previous,
        "name": plan.name,
        "plan": plan.document(),
        "plan_digest": plan.digest,
        "max_attempts": plan.max_attempts,
        "sink": None if plan.sink is None else asdict(plan.sink),
        "state": "running",
        "environment": planned_here(),
    }
    while True:
        created = float(connection.execute(select(DatabaseTime())).scalar_one())
        run_id = _new_id(created)
        try:
            with connection.begin_nested():
                connection.execute(insert(run).values(id=run_id, created=created, **values))
        except exc.IntegrityError:
            if connection.execute(select(run.c.id).where(run.c.id == run_id)).first() is None:
                raise
            continue  # taken by another run of the day: draw again
        shard_blocks.begin(connection, run_id, shards)
        return run_id


def _new_id(created: float) -> str:
    """`YYYYMMDD-xxxxxxxx`: the day in UTC, by which PostgreSQL's partitions are cut, and chance."""
    return f"{datetime.fromtimestamp(created, UTC):%Y%m%d}-{secrets.token_hex(4)}"


def get(db: Database, run_id: str) -> AuditRun:
    """The run with this id, with the only id or second part of one that begins so, or `latest`.

    Raises ConfigurationError, naming the recent runs, where there is none or more than one.
    """
    with db.read() as connection:
        name = named_run(connection, run_id)
        return _audit_run(connection, connection.execute(select(run).where(run.c.id == name)).one())


def list_runs(db: Database, limit: int = 50) -> list[AuditRun]:
    """The newest runs first."""
    query = select(run).order_by(run.c.created.desc(), run.c.id.desc()).limit(limit)
    with db.read() as connection:
        return [_audit_run(connection, row) for row in connection.execute(query).all()]


def progress(db: Database, run_id: str) -> RunProgress:
    """How far the run with exactly this id is; reads one row per shard state, however large."""
    count, total = func.count(), func.sum
    query = (
        select(
            shard.c.state,
            count.label("shards"),
            total(shard.c.explained).label("explained"),
            total(shard.c.failed).label("failed"),
            total(shard.c.stop - shard.c.start).label("items"),
            func.coalesce(total(shard.c.seconds), 0.0).label("seconds"),
        )
        .where(shard.c.run_id == run_id)
        .group_by(shard.c.state)
    )
    holders = select(func.count(shard.c.worker.distinct())).where(
        shard.c.run_id == run_id, shard.c.state == "running"
    )
    with db.read() as connection:
        row = require(connection, run_id)
        parts = connection.execute(query).all()
        left = shard_blocks.pending(connection, [run_id]).get(run_id, shard_blocks.Pending())
        workers = connection.execute(holders).scalar_one()
        now = connection.execute(select(DatabaseTime())).scalar_one()
    return RunProgress(
        run_id=row.id,
        name=row.name,
        state=row.state,
        states=states_of(row.state, {part.state: part.shards for part in parts}, left.shards),
        items_done=sum(int(part.explained) for part in parts),
        items_failed=sum(int(part.failed) for part in parts),
        items_total=sum(int(part.items) for part in parts) + left.rows,
        seconds=float(sum(part.seconds for part in parts)),
        elapsed=(row.finished or now) - row.created,
        workers=workers,
        paused=row.paused is not None and row.state == "running",
        place=QueuePlace(priority=row.priority, share=row.share, most_workers=row.most_workers),
    )


def states_of(run_state: str, made: Mapping[str, int], pending: int) -> dict[str, int]:
    """Shard state -> count, every state named; shards that are not made are queued.

    Where the run is cancelled they are, too.
    """
    states = {**dict.fromkeys(SHARD_STATES, 0), **made}
    states["cancelled" if run_state == "cancelled" else "queued"] += pending
    return states


def claims(db: Database, run_id: str) -> int:
    """How often shards of the run were claimed so far; it never falls."""
    query = select(func.coalesce(func.sum(shard.c.token), 0)).where(shard.c.run_id == run_id)
    with db.read() as connection:
        return int(connection.execute(query).scalar_one())


def finalise(db: Database, run_id: str) -> bool:
    """Close the run where no shard is queued or running; True for the one caller that did it."""
    # who commits a run's last shard sees none left: the others need not queue for the run's row
    with db.read() as connection:
        if connection.execute(select(unfinished(run_id))).scalar_one():
            return False
    with db.begin() as connection:
        require(connection, run_id, lock=True)
        done = connection.execute(
            update(run)
            .where(run.c.id == run_id, run.c.state == "running", ~unfinished(run_id))
            .values(state="done", finished=DatabaseTime())
        )
    if done.rowcount == 1:
        sink_files.close(db, run_id)
    return done.rowcount == 1


def unfinished(run_id: str | ColumnElement[str]) -> ColumnElement[bool]:
    """Whether a shard of the run is queued or running, or not made yet."""
    return holds_shard(run_id, shard.c.state == "queued", shard.c.state == "running")


def holds_shard(
    run_id: str | ColumnElement[str], *conditions: ColumnElement[bool]
) -> ColumnElement[bool]:
    """Whether a run has shards that are not made yet, or a shard of which any condition holds.

    It runs at every commit: one look into the index per condition, because PostgreSQL would answer
    `NOT EXISTS (... state NOT IN ...)` by reading the table from its beginning.
    """
    return or_(
        shard_blocks.first_pending(run_id).is_not(None),
        *(
            select(shard.c.index)
            .where(shard.c.run_id == run_id, condition)
            .order_by(shard.c.attempt, shard.c.index)
            .limit(1)
            .scalar_subquery()
            .is_not(None)
            for condition in conditions
        ),
    )


def cancel(db: Database, run_id: str) -> bool:
    """Cancel a running run and its unfinished shards, fencing their workers; True if it ran."""
    with db.begin() as connection:
        require(connection, run_id, lock=True)
        stopped = connection.execute(
            update(run)
            .where(run.c.id == run_id, run.c.state == "running")
            .values(state="cancelled", finished=DatabaseTime())
        )
        if stopped.rowcount == 0:
            return False
        connection.execute(
            update(shard)
            .where(shard.c.run_id == run_id, shard.c.state.in_(("queued", "running")))
            .values(state="cancelled", lease_until=None)
        )
    sink_files.close(db, run_id)
    return True


def require(connection: Connection, run_id: str, *, lock: bool = False) -> Row[Any]:
    """The row of the run with exactly this id; ConfigurationError where there is none.

    `lock` holds it until the transaction ends: transitions of one run follow each other, and
    what a later statement reads of its shards is what the earlier transition left. `unmade` is as
    `shard_blocks.first_pending`.
    """
    columns: list[ColumnElement[Any]] = [run.c[name] for name in _LIGHT]
    columns.append(shard_blocks.first_pending(run.c.id).label("unmade"))
    query = select(*columns).where(run.c.id == run_id)
    row = connection.execute(query.with_for_update(key_share=True) if lock else query).one_or_none()
    if row is None:
        raise unknown_run(connection, run_id)
    return row


_LIGHT = (
    *("id", "name", "state", "max_attempts", "created", "finished"),
    *("priority", "share", "most_workers", "paused", "sink"),
)


def _audit_run(connection: Connection, row: Row[Any]) -> AuditRun:
    counts = connection.execute(
        select(shard.c.state, func.count().label("shards"))
        .where(shard.c.run_id == row.id)
        .group_by(shard.c.state)
    )
    left = shard_blocks.pending(connection, [row.id]).get(row.id, shard_blocks.Pending())
    return AuditRun(
        id=row.id,
        plan=plan_of(row.plan),
        state=row.state,
        created=row.created,
        finished=row.finished,
        previous=row.previous,
        shards=states_of(row.state, {part.state: part.shards for part in counts}, left.shards),
    )


def recorded_run(db: Database, run_id: str) -> RecordedRun:
    """The run with exactly this id; raises ConfigurationError where there is none."""
    names = RecordedRun.__dataclass_fields__
    with db.read() as connection:
        require(connection, run_id)
        query = select(*(run.c[name].label(name) for name in names)).where(run.c.id == run_id)
        return RecordedRun(**connection.execute(query).mappings().one())


def recorded_shards(
    db: Database, run_id: str, only: Collection[int] | None = None
) -> list[RecordedShard]:
    """The shards of a run, or `only` some of them, by index."""
    columns = [shard.c[name].label(name) for name in RecordedShard.__dataclass_fields__]
    query = select(*columns).where(shard.c.run_id == run_id).order_by(shard.c.index)
    if only is not None:
        query = query.where(shard.c.index.in_(sorted(only)))
    with db.read() as connection:
        return [RecordedShard(**row) for row in connection.execute(query).mappings()]


def workers_of(shards: Collection[RecordedShard]) -> int:
    """How many processes worked on the shards last."""
    return len({status.worker for status in shards if status.worker is not None})


def failures(db: Database, run_id: str) -> dict[str, int]:
    """Failed items of one run by kind, sorted by it."""
    with db.read() as connection:
        return failed_items(connection, [run_id])


def failed_items(
    connection: Connection, run_ids: Sequence[str] | Select[tuple[str]]
) -> dict[str, int]:
    """Failed items of these runs by kind, sorted by it."""
    query = (
        select(failure.c.kind, func.count())
        .where(failure.c.run_id.in_(run_ids))
        .group_by(failure.c.kind)
    )
    return dict(sorted((str(kind), int(count)) for kind, count in connection.execute(query)))


def places_of(connection: Connection, run_id: str) -> dict[str, int]:
    """The index of the logit of every class of a run's model, by its name; no run: none."""
    return {name: index for index, name in enumerate(_model_of(connection, run_id)["classes"])}


def gives_several(connection: Connection, run_id: str) -> bool:
    """Whether a run's model may give an item several labels, each with a sigmoid of its own."""
    return bool(_model_of(connection, run_id).get("head") == "labels")


def _model_of(connection: Connection, run_id: str) -> Mapping[str, Any]:
    """What the plan of a run says of its model; no run: no classes."""
    plan = connection.execute(select(run.c.plan).where(run.c.id == run_id)).scalar_one_or_none()
    model: Mapping[str, Any] = plan["model"] if plan else {"classes": ()}
    return model
