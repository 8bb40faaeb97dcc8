"""Maintains a database: its size, its vacuum, backups of SQLite files, and the deletion of old
runs.
"""

import random
import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import (
    Connection,
    Select,
    Table,
    bindparam,
    delete,
    exc,
    exists,
    func,
    literal,
    or_,
    select,
    text,
    union,
    update,
)

from transexplain.errors import ConfigurationError, DatabaseError, ObjectStoreError
from transexplain.files.atomic_write import atomic_file
from transexplain.store import sink_files
from transexplain.store.columns import DatabaseTime, json_of
from transexplain.store.database import Database, plan_for_any_run, raw_connection
from transexplain.store.result_tables import RESULT_TABLES
from transexplain.store.schema import (
    OF_ITEMS,
    PARTITIONED,
    attribution,
    failure,
    fire_delivery,
    form_key,
    item,
    mention,
    metadata,
    pending_shards,
    result_file,
    run,
    schedule,
    schedule_fire,
    schedule_receiver,
    score,
    shard,
)
from transexplain.store.sink_files import sink_of
from transexplain.store.views import VIEWS
from transexplain.types.plans import Sink

#: less than the second after which PostgreSQL looks for a deadlock: it is ours to give way
_LOCK_MILLISECONDS = 500
_LOCK_TRIES = 60
_MAINTENANCE_LOCK = 7_283_469_120_452  # any fixed number other than that of upgrades
Value = TypeVar("Value")


@dataclass(frozen=True, order=True, slots=True)
class Month:
    """A month of run ids: `YYYYMM`, which is also the lower bound of its partitions."""

    name: str

    @property
    def next(self) -> "Month":
        """The month after, whose name is the (exclusive) upper bound."""
        year, month = int(self.name[:4]), int(self.name[4:])
        return Month(f"{year + month // 12:04d}{month % 12 + 1:02d}")


def this_month(connection: Connection) -> Month:
    """The month that it is by the database's clock, in UTC."""
    now = connection.execute(DatabaseTime().select()).scalar_one()
    return Month(f"{datetime.fromtimestamp(now, UTC):%Y%m}")


def supported(db: Database) -> bool:
    """Whether the database has partitions: PostgreSQL has, SQLite has not."""
    return db.engine.name == "postgresql"


def months(connection: Connection) -> list[Month]:
    """Months that have partitions, oldest first."""
    names = connection.execute(
        text(
            "SELECT substr(relname, 6) FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid "
            "WHERE inhparent = CAST('item' AS regclass) AND relname ~ '^item_[0-9]{6}$'"
        )
    )
    return sorted(map(Month, names.scalars()))


def maintain(db: Database, ahead: int = 3) -> list[Month]:
    """Make the partitions that are missing of this month, the next `ahead`, and of every run.

    Rows that the default partition took meanwhile are moved, all in one transaction; concurrent
    callers queue up, the later ones find nothing to do. Returns the months made, none on SQLite.
    Raises ConfigurationError where the role does not own the tables, DatabaseError where workers
    keep them busy all the time.
    """
    if not supported(db):
        return []
    with db.read() as connection:
        if not _missing(connection, ahead):
            return []
        require_owner(connection)

    def make(connection: Connection) -> list[Month]:
        missing = _missing(connection, ahead)
        for month in missing:
            _make(connection, month)
        return missing

    return exclusively(db, make)


def exclusively(db: Database, work: Callable[[Connection], Value]) -> Value:
    """What `work` returns in a transaction that has the tables of results for itself.

    Each attempt to lock waits only briefly and is repeated: a waiting lock blocks every worker
    behind it. Raises DatabaseError where no attempt succeeds.
    """
    from psycopg.errors import DeadlockDetected, LockNotAvailable

    for _ in range(_LOCK_TRIES):
        try:
            with db.translated(), db.engine.begin() as connection:
                _lock(connection)
                return work(connection)
        except DatabaseError as error:
            cause = error.__cause__
            busy = isinstance(cause, exc.DBAPIError) and isinstance(
                cause.orig, (LockNotAvailable, DeadlockDetected)
            )
            if not busy:
                raise
        time.sleep(random.uniform(0.05, 0.5))
    raise DatabaseError(
        f"database {db.name}: its tables of results were busy the whole time; nothing was changed. "
        "Call again when fewer workers write."
    )


def drop(connection: Connection, month: Month) -> int:
    """Drop the month's partitions with all that is in them; returns their size in bytes.

    Call it inside `exclusively`, and only where no run of the month is to stay.
    """
    names = [f"{table}_{month.name}" for table in PARTITIONED]
    size = sum(_size(connection, name) for name in names)
    for name in names:
        connection.execute(text(f"DROP TABLE {name}"))
    return size


def require_owner(connection: Connection) -> None:
    """Raise ConfigurationError unless the role may change the tables (PostgreSQL)."""
    owner, ours = connection.execute(
        text(
            "SELECT pg_get_userbyid(relowner), pg_has_role(relowner, 'USAGE') "
            "FROM pg_class WHERE oid = CAST('item' AS regclass)"
        )
    ).one()
    if not ours:
        raise ConfigurationError(
            f"the tables belong to the role {owner!r}, and only it may do this: "
            "set TRANSEXPLAIN_DATABASE_URL or --db to a URL with that role"
        )


def _lock(connection: Connection) -> None:
    """In the order in which `results.save` takes them; keys of new partitions lock `shard`, too."""
    connection.execute(text("SELECT pg_advisory_xact_lock(:key)").bindparams(key=_MAINTENANCE_LOCK))
    connection.execute(text(f"SET LOCAL lock_timeout TO {_LOCK_MILLISECONDS}"))
    connection.execute(text("LOCK TABLE run, shard IN SHARE ROW EXCLUSIVE MODE"))
    connection.execute(text(f"LOCK TABLE {', '.join(PARTITIONED)} IN ACCESS EXCLUSIVE MODE"))
    connection.execute(text("SET LOCAL lock_timeout TO 0"))


def _missing(connection: Connection, ahead: int) -> list[Month]:
    month = this_month(connection)
    needed = {month, *_of_runs(connection)}
    for _ in range(ahead):
        month = month.next
        needed.add(month)
    return sorted(needed - set(months(connection)))


def _of_runs(connection: Connection) -> Iterable[Month]:
    rows = connection.execute(
        text(
            "SELECT DISTINCT substr(id, 1, 6) FROM run "
            "WHERE id ~ '^20[2-9][0-9](0[1-9]|1[0-2])[0-9]{2}-' AND id >= '2026'"
        )
    )
    return map(Month, rows.scalars())


def _make(connection: Connection, month: Month) -> None:
    bounds = {"low": month.name, "high": month.next.name}

    def run(statement: str, values: dict[str, Any] | None = None) -> None:
        connection.execute(text(statement), values or {})

    for table in PARTITIONED:
        part = f"{table}_{month.name}"
        run(f"CREATE TABLE {part} (LIKE {table} INCLUDING ALL)")
        run(
            f"WITH moved AS (DELETE FROM {table}_default WHERE run_id >= :low AND run_id < :high "
            f"RETURNING *) INSERT INTO {part} SELECT * FROM moved",
            bounds,
        )
    for table in PARTITIONED:
        run(
            f"ALTER TABLE {table} ATTACH PARTITION {table}_{month.name} "
            f"FOR VALUES FROM ('{month.name}') TO ('{month.next.name}')"
        )


def _size(connection: Connection, table: str) -> int:
    query = text("SELECT pg_total_relation_size(CAST(:name AS regclass))").bindparams(name=table)
    return int(connection.execute(query).scalar_one())


_ROWS = 5_000  # items of one transaction: SQLite has one writer, and workers wait for it
_IDS = 500  # of one statement: databases limit its parameters


@dataclass(frozen=True, kw_only=True, slots=True)
class OldRun:
    """A run that may be deleted."""

    id: str
    name: str
    finished: float  #: seconds since the epoch
    items: int


@dataclass(frozen=True, kw_only=True, slots=True)
class PruneResult:
    """The deleted runs, months and bytes."""

    runs: Sequence[OldRun] = field(default=())
    months: Sequence[Month] = field(default=())  #: whose partitions were dropped
    freed: int = 0  #: bytes that the dropped partitions had
    files: int = 0  #: of sinks, deleted because no run refers to them
    kept: Sequence[str] = field(default=())  #: why a run stays, or files do

    @property
    def items(self) -> int:
        """Items of the runs."""
        return sum(pruned.items for pruned in self.runs)


@dataclass(frozen=True, slots=True)
class Age:
    """Which runs are old: those over for so many seconds, but for some."""

    seconds: float
    keep_last: int = 0  #: of each audit's name
    hold: frozenset[str] = frozenset()  #: ids of runs that stay


def old_runs(db: Database, age: Age) -> list[OldRun]:
    """Runs that are old and that nothing needs, oldest first.

    What schedules compare with or still have to post is kept. A running one is never old.
    """
    with db.read() as connection:
        return _old(connection, age)


def prune(db: Database, age: Age) -> PruneResult:
    """Delete the `old_runs`, and with PostgreSQL the partitions of months that become empty.

    What was interrupted goes on at the next call; a run is deleted as a whole or shows as
    cancelled. The Parquet files of its sink go first; where they cannot, it stays. Files that no
    run refers to go, too, and manifests of sinks that are missing are written. Raises
    ConfigurationError where PostgreSQL's role does not own the tables.
    """
    gone: list[OldRun] = []
    kept: dict[str, str] = {}
    dropped: list[Month] = []
    freed = 0
    if supported(db):
        with db.read() as connection:
            require_owner(connection)
        _delete_each(db, old_runs(db, age), gone, kept, with_sinks=True)
        with db.read() as connection:
            past = _past(connection)
            full = {old_run.id for old_run in _old(connection, age)}
            empty = [month for month in past if _ids(connection, month) <= full]
        for month in empty:
            done = _drop_month(db, month, age)
            if done is not None:
                gone += done.runs
                dropped.append(month)
                freed += done.freed
    left = [old_run for old_run in old_runs(db, age) if old_run.id not in kept]
    _delete_each(db, left, gone, kept)
    files, away = _of_sinks(db, sink_files.tidy)
    reasons = [f"run {run_id}: {reason}" for run_id, reason in (away | kept).items()]
    return PruneResult(runs=gone, months=dropped, freed=freed, files=len(files), kept=reasons)


def _delete_each(
    db: Database,
    old: Sequence[OldRun],
    gone: list[OldRun],
    kept: dict[str, str],
    *,
    with_sinks: bool = False,
) -> None:
    """Delete runs, or only those `with_sinks`; `kept` gets those whose files cannot be deleted."""
    for old_run in old:
        with db.read() as connection:
            sink = sink_of(connection, old_run.id)
        if with_sinks and sink is None:
            continue
        try:
            if _delete(db, old_run, sink):
                gone.append(old_run)
        except (ObjectStoreError, ConfigurationError) as error:
            kept[old_run.id] = str(error)


def stray_files(db: Database) -> tuple[list[str], dict[str, str]]:
    """URLs of files of sinks that no run refers to; run -> why its folder cannot be looked into."""
    return _of_sinks(db, sink_files.garbage)


def _of_sinks(
    db: Database, work: Callable[[Database, str], list[str]]
) -> tuple[list[str], dict[str, str]]:
    query = select(run.c.id).where(run.c.sink.is_not(None)).order_by(run.c.id)
    with db.read() as connection:
        names = connection.execute(query).scalars().all()
    removed: list[str] = []
    away = {}
    for name in names:
        try:
            removed += work(db, name)
        except (ObjectStoreError, ConfigurationError) as error:
            away[name] = str(error)
    return removed, away


def delete_run(db: Database, run_id: str, age: float = 0.0) -> OldRun:
    """Delete a run that is over, with the files of its sink.

    Raises ConfigurationError for a run that goes on, or is over for less than `age` seconds;
    ObjectStoreError where its sink is away.
    """
    columns = (run.c.id, run.c.name, run.c.finished)
    young = run.c.finished > DatabaseTime() - age
    with db.read() as connection:
        row = connection.execute(select(*columns, young.label("young")).filter_by(id=run_id)).one()
        sink, items = sink_of(connection, run_id), _items(connection, [run_id])
    if row.finished is None:
        raise ConfigurationError(f"run {run_id} goes on: end it by `transexplain cancel {run_id}`")
    if row.young:
        raise ConfigurationError(
            f"run {run_id} is kept: runs stay for {age / 86_400:g} days (TRANSEXPLAIN_RETENTION)"
        )
    old = OldRun(id=row.id, name=row.name, finished=row.finished, items=items.get(run_id, 0))
    if not _delete(db, old, sink):
        raise ConfigurationError(f"run {run_id} was resumed or deleted meanwhile")
    return old


def data_of_runs(db: Database) -> dict[str, set[str]]:
    """Run -> paths or URLs of its data: what the audit names, and the snapshot of it."""
    with db.read() as connection:
        dataset = json_of(connection, run.c.plan)["dataset"]
        places = (dataset["source"].as_string(), dataset["snapshot"].as_string())
        return {run_id: {*some} for run_id, *some in connection.execute(select(run.c.id, *places))}


def _old(connection: Connection, age: Age) -> list[OldRun]:
    rank = func.row_number().over(
        partition_by=run.c.name, order_by=(run.c.created.desc(), run.c.id.desc())
    )
    over = select(run.c.id, run.c.name, run.c.state, run.c.finished, rank.label("rank")).subquery()
    query = (
        select(over.c.id, over.c.name, over.c.finished)
        .where(
            over.c.state.in_(("done", "cancelled")),
            over.c.finished <= DatabaseTime() - age.seconds,
            over.c.rank > age.keep_last,
            over.c.id.not_in(age.hold),
            over.c.id.not_in(_needed()),
        )
        .order_by(over.c.finished, over.c.id)
    )
    old = connection.execute(query).all()
    items = _items(connection, [row.id for row in old])
    return [
        OldRun(id=row.id, name=row.name, finished=row.finished, items=items.get(row.id, 0))
        for row in old
    ]


def _needed() -> Select[tuple[str]]:
    """Ids that schedules need: of a verdict to be posted, of the runs that will be compared."""
    fired = schedule_fire.alias()
    made = select(fired.c.schedule, fired.c.at).join(run, run.c.id == fired.c.run_id)
    last = (
        made.with_only_columns(fired.c.schedule, func.max(fired.c.at).label("at"))
        .where(run.c.state != "cancelled")
        .group_by(fired.c.schedule)
        .subquery()
    )
    newest = select(schedule_fire.c.run_id).join(
        last,
        (last.c.schedule == schedule_fire.c.schedule) & (last.c.at == schedule_fire.c.at),
    )
    going = schedule_fire.join(run, run.c.id == schedule_fire.c.run_id)
    unposted = exists().where(
        fire_delivery.c.schedule == schedule_fire.c.schedule,
        fire_delivery.c.at == schedule_fire.c.at,
        fire_delivery.c.state == "waiting",
    )
    parts = union(
        newest,
        select(schedule_fire.c.run_id).where(unposted),
        select(schedule_fire.c.previous).where(unposted),
        select(schedule_fire.c.previous).select_from(going).where(run.c.state == "running"),
    ).subquery()
    return select(parts.c.run_id).where(parts.c.run_id.is_not(None))


def _items(connection: Connection, ids: Sequence[str]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for start in range(0, len(ids), _IDS):
        query = (
            select(shard.c.run_id, func.sum(shard.c.explained + shard.c.failed))
            .where(shard.c.run_id.in_(ids[start : start + _IDS]))
            .group_by(shard.c.run_id)
        )
        counts |= {run_id: int(count) for run_id, count in connection.execute(query)}
    return counts


def _past(connection: Connection) -> list[Month]:
    """Months with partitions that no new run's id begins with any more."""
    now = this_month(connection)
    return [month for month in months(connection) if month < now]


def _ids(connection: Connection, month: Month) -> set[str]:
    inside = (run.c.id >= month.name, run.c.id < month.next.name)
    return set(connection.execute(select(run.c.id).where(*inside)).scalars())


def _drop_month(db: Database, month: Month, age: Age) -> PruneResult | None:
    """Drop a month's partitions and runs; None where one of its runs is needed by now."""

    def work(connection: Connection) -> PruneResult | None:
        if month not in months(connection):  # another call was faster
            return None
        old = {old_run.id: old_run for old_run in _old(connection, age)}
        ids = _ids(connection, month)
        sinks = select(run.c.id).where(run.c.id.in_(ids), run.c.sink.is_not(None)).limit(1)
        if not ids <= old.keys() or connection.execute(sinks).first() is not None:
            return None
        freed = drop(connection, month)
        inside = (run.c.id >= month.name, run.c.id < month.next.name)
        plan_for_any_run(connection)
        connection.execute(delete(run).where(*inside))
        return PruneResult(runs=[old[name] for name in sorted(ids)], months=[month], freed=freed)

    return exclusively(db, work)


def _delete(db: Database, old: OldRun, sink: Sink | None = None) -> bool:
    """Delete one run, its items in transactions of bounded size; False: it goes on or is gone.

    The files of its `sink` go before its rows, which say where they are.
    """
    with db.begin() as connection:
        taken = connection.execute(
            update(run)
            .where(run.c.id == old.id, run.c.state != "running", run.c.finished == old.finished)
            .values(state="cancelled")  # so that nobody resumes or reads it as done meanwhile
        )
        if taken.rowcount == 0:
            return False
        last = select(func.max(shard.c.stop)).where(shard.c.run_id == old.id)
        stop = connection.execute(last).scalar_one()
    if sink is not None:
        sink_files.delete(sink, old.id)
    for table in OF_ITEMS:
        for start in range(0, stop or 0, _ROWS):
            with db.begin() as connection:
                plan_for_any_run(connection)
                inside = (table.c.idx >= start) & (table.c.idx < start + _ROWS)
                connection.execute(delete(table).where(table.c.run_id == old.id, inside))
    with db.begin() as connection:
        plan_for_any_run(connection)
        return connection.execute(delete(run).where(run.c.id == old.id)).rowcount == 1


_TABLES = tuple(schedule.metadata.tables)  # those of `schema`, too
_EMPTY_LOG = "PRAGMA wal_checkpoint(TRUNCATE)"
_POSTGRESQL_SIZE = """
SELECT sum(pg_total_relation_size(to_regclass(quote_ident(name))))
       + sum((SELECT coalesce(sum(pg_total_relation_size(relid)), 0)
              FROM pg_partition_tree(to_regclass(quote_ident(name)))))
FROM unnest(CAST(:names AS text[])) AS name
"""


def size(db: Database) -> int:
    """Bytes that the store takes: SQLite's file and its log, PostgreSQL's tables with indices."""
    if db.path is not None:
        log = db.path.with_name(db.path.name + "-wal")
        return sum(file.stat().st_size for file in (db.path, log) if file.exists())
    with db.read() as connection:
        if supported(db):
            query = text(_POSTGRESQL_SIZE).bindparams(names=list(_TABLES))
            return int(connection.execute(query).scalar_one())
        pages = connection.execute(text("PRAGMA page_count")).scalar_one()
        return int(pages * connection.execute(text("PRAGMA page_size")).scalar_one())


def vacuum(db: Database) -> None:
    """Give back the room of what was deleted, and renew what queries are planned by.

    SQLite rewrites its file, which takes the same room once more and locks writers out; PostgreSQL
    makes room for new rows and blocks nobody. Raises DatabaseError where SQLite stays locked,
    ConfigurationError where PostgreSQL's role does not own the tables.
    """
    if not supported(db):
        _vacuum_sqlite(db)
        return
    with db.read() as connection:
        require_owner(connection)
    alone = db.engine.execution_options(isolation_level="AUTOCOMMIT")
    with db.translated(), alone.connect() as connection:
        for name in _TABLES:
            connection.execute(text(f'VACUUM (ANALYZE) "{name}"'))


def backup(db: Database, file: Path) -> int:
    """Copy an SQLite database into the new `file` while others read and write; returns its bytes.

    The copy is one moment's state, and complete once it has its name. Raises ConfigurationError
    where the file exists or the database is PostgreSQL, which has `pg_dump`; DatabaseError where
    the copy cannot be written or is damaged.
    """
    if supported(db):
        raise ConfigurationError(
            "db backup copies SQLite files; of PostgreSQL make one by "
            "`pg_dump --format=custom --file=FILE DATABASE`"
        )
    if file.exists():
        raise ConfigurationError(f"{file} exists already; choose another name")
    try:
        with atomic_file(file) as part:
            with db.engine.connect() as connection, closing(sqlite3.connect(part)) as copy:
                # all pages at once: between two steps a writer would make it begin again
                raw_connection(connection).backup(copy)
                [(verdict,)] = copy.execute("PRAGMA quick_check(1)").fetchall()
                copy.execute("PRAGMA journal_mode = DELETE")  # one file, nothing beside it
            if verdict != "ok":
                raise DatabaseError(f"database {db.name} is damaged: {verdict}; no backup was made")
    except (sqlite3.Error, OSError) as error:
        raise DatabaseError(f"backup {file}: {error}") from error
    return file.stat().st_size


def _vacuum_sqlite(db: Database) -> None:
    with db.translated(), db.engine.connect() as connection:
        raw = raw_connection(connection)
        try:
            # the log again at the end: VACUUM writes through it
            for statement in (_EMPTY_LOG, "VACUUM", "ANALYZE", _EMPTY_LOG):
                raw.execute(statement).fetchall()
        except sqlite3.OperationalError as error:
            raise DatabaseError(
                f"database {db.name}: {error}; vacuum it when nobody writes"
            ) from error


#: table -> columns that are left out; they may quote items, or hold what is secret
WITHOUT: Mapping[Table, frozenset[str]] = {
    **{table: frozenset() for table in RESULT_TABLES},
    run: frozenset(),
    item: frozenset(("text", "meta", "source")),
    attribution: frozenset(("pieces",)),
    mention: frozenset(("surface",)),
    score: frozenset(("reason", "detail")),
    failure: frozenset(("error", "traceback")),
    pending_shards: frozenset(),
    shard: frozenset(("error", "traceback", "breadcrumb", "suspects")),
    result_file: frozenset(),
    schedule: frozenset(("spec", "error")),
    schedule_fire: frozenset(),
    schedule_receiver: frozenset(("address",)),
    fire_delivery: frozenset(("error",)),
    form_key: frozenset(),
}
_SECRET: Mapping[Table, frozenset[str]] = {
    schedule: frozenset(("spec",)),
    schedule_receiver: frozenset(("address",)),
}
_VERSION = "alembic_version"  #: what revision the tables are at: `transexplain report` asks


def grant_read(db: Database, role: str, *, texts: bool = False) -> None:
    """Let a PostgreSQL role read the results, and with `texts` every item, too; nothing else.

    What the role itself could read before and these do not name is taken away. Without `texts` the
    columns of `WITHOUT` are left out; with them what schedules keep secret. Raises
    ConfigurationError: SQLite, which has no roles; a role that is not there or may write; tables
    that are another role's.
    """
    if not supported(db):
        raise ConfigurationError(
            "SQLite has no roles: who may read the file reads all of it. Open it by "
            "`sqlite3 'file:PATH?mode=ro'`, and keep texts out by privacy.store_text"
        )
    with db.begin() as connection:
        require_owner(connection)
        _refuse(connection, role)
        _grant(connection, role, texts=texts)


def _refuse(connection: Connection, role: str) -> None:
    """Raise ConfigurationError for a role that is not there, or that may write."""
    known = text("SELECT 1 FROM pg_roles WHERE rolname = :role").bindparams(role=role)
    if connection.execute(known).first() is None:
        raise ConfigurationError(
            f"no role {role!r}; make it first: CREATE ROLE {role} LOGIN PASSWORD '...'"
        )
    may = func.has_table_privilege
    name = connection.dialect.identifier_preparer.quote_identifier
    writes = [
        may(bindparam("role", role), literal(name(table)), "INSERT, UPDATE, DELETE, TRUNCATE")
        for table in metadata.tables
    ]
    if connection.execute(select(or_(*writes))).scalar_one():
        raise ConfigurationError(
            f"the role {role!r} may write to the tables, because it owns them, is a superuser or "
            "was given the right; make one that only reads"
        )


def _grant(connection: Connection, role: str, *, texts: bool) -> None:
    quoted = connection.dialect.identifier_preparer.quote_identifier
    to = quoted(role)
    schema = quoted(str(connection.execute(text("SELECT current_schema()")).scalar_one()))
    every = ", ".join(map(quoted, (*metadata.tables, *VIEWS, _VERSION)))
    statements = [
        f"REVOKE SELECT ON {every} FROM {to}",
        f"GRANT USAGE ON SCHEMA {schema} TO {to}",
        f"GRANT SELECT ON {quoted(_VERSION)} TO {to}",
    ]
    for table in metadata.tables.values() if texts else WITHOUT:
        hidden = (_SECRET if texts else WITHOUT).get(table, frozenset())
        columns = [column.name for column in table.c if column.name not in hidden]
        some = f" ({', '.join(map(quoted, columns))})" if hidden else ""
        statements.append(f"GRANT SELECT{some} ON {quoted(table.name)} TO {to}")
    shown = [name for name, view in VIEWS.items() if texts or not view.texts]
    statements.append(f"GRANT SELECT ON {', '.join(shown)} TO {to}")
    for statement in statements:
        connection.exec_driver_sql(statement)
