"""Maintains a database: its size, its vacuum, backups of SQLite files, and the deletion of old
runs.
"""

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy import (
    Column,
    Connection,
    Select,
    Table,
    delete,
    exists,
    func,
    select,
    text,
    union,
    update,
)

from transexplain.atomic_write import atomic_file
from transexplain.errors import ConfigurationError, DatabaseError, ObjectStoreError
from transexplain.store import partitions, sink_folders
from transexplain.store.columns import DatabaseTime
from transexplain.store.database import Database, plan_for_any_run, raw_connection
from transexplain.store.partitions import Month
from transexplain.store.schema import (
    fire_delivery,
    item,
    result_part,
    run,
    schedule,
    schedule_fire,
    shard,
)
from transexplain.store.sink_files import sink_of
from transexplain.types.plans import Sink

_ROWS = 5_000  # items of one transaction: SQLite has one writer, and workers wait for it
_SHARDS = 20  # whose parts one transaction deletes
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
        return sum(one.items for one in self.runs)


def old_runs(db: Database, older_than: float, keep_last: int = 0) -> list[OldRun]:
    """Runs that are over for `older_than` seconds or more and that nothing needs, oldest first.

    Kept are the newest `keep_last` of each audit's name, and what schedules compare with or still
    have to post. A running one is never old.
    """
    with db.read() as connection:
        return _old(connection, older_than, keep_last)


def prune(db: Database, older_than: float, keep_last: int = 0) -> PruneResult:
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
    if partitions.supported(db):
        with db.read() as connection:
            partitions.require_owner(connection)
        _delete_each(db, old_runs(db, older_than, keep_last), gone, kept, with_sinks=True)
        with db.read() as connection:
            past = _past(connection)
            full = {one.id for one in _old(connection, older_than, keep_last)}
            empty = [month for month in past if _ids(connection, month) <= full]
        for month in empty:
            done = _drop_month(db, month, older_than, keep_last)
            if done is not None:
                gone += done.runs
                dropped.append(month)
                freed += done.freed
    left = [one for one in old_runs(db, older_than, keep_last) if one.id not in kept]
    _delete_each(db, left, gone, kept)
    files, away = _of_sinks(db, sink_folders.tidy)
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
    for one in old:
        with db.read() as connection:
            sink = sink_of(connection, one.id)
        if with_sinks and sink is None:
            continue
        try:
            if _delete(db, one, sink):
                gone.append(one)
        except (ObjectStoreError, ConfigurationError) as error:
            kept[one.id] = str(error)


def stray_files(db: Database) -> tuple[list[str], dict[str, str]]:
    """URLs of files of sinks that no run refers to; run -> why its folder cannot be looked into."""
    return _of_sinks(db, sink_folders.garbage)


def _of_sinks(
    db: Database, work: Callable[[Database, str], list[str]]
) -> tuple[list[str], dict[str, str]]:
    query = select(run.c.id).where(run.c.sink.is_not(None)).order_by(run.c.id)
    with db.read() as connection:
        names = connection.execute(query).scalars().all()
    found: list[str] = []
    away = {}
    for name in names:
        try:
            found += work(db, name)
        except (ObjectStoreError, ConfigurationError) as error:
            away[name] = str(error)
    return found, away


def _old(connection: Connection, older_than: float, keep_last: int) -> list[OldRun]:
    rank = func.row_number().over(
        partition_by=run.c.name, order_by=(run.c.created.desc(), run.c.id.desc())
    )
    over = select(run.c.id, run.c.name, run.c.state, run.c.finished, rank.label("rank")).subquery()
    query = (
        select(over.c.id, over.c.name, over.c.finished)
        .where(
            over.c.state.in_(("done", "cancelled")),
            over.c.finished <= DatabaseTime() - older_than,
            over.c.rank > keep_last,
            over.c.id.not_in(_needed()),
        )
        .order_by(over.c.finished, over.c.id)
    )
    found = connection.execute(query).all()
    items = _items(connection, [row.id for row in found])
    return [
        OldRun(id=row.id, name=row.name, finished=row.finished, items=items.get(row.id, 0))
        for row in found
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
    found: dict[str, int] = {}
    for start in range(0, len(ids), _IDS):
        query = (
            select(shard.c.run_id, func.sum(shard.c.explained + shard.c.failed))
            .where(shard.c.run_id.in_(ids[start : start + _IDS]))
            .group_by(shard.c.run_id)
        )
        found |= {run_id: int(count) for run_id, count in connection.execute(query)}
    return found


def _past(connection: Connection) -> list[Month]:
    """Months with partitions that no new run's id begins with any more."""
    now = partitions.this_month(connection)
    return [month for month in partitions.months(connection) if month < now]


def _ids(connection: Connection, month: Month) -> set[str]:
    inside = (run.c.id >= month.name, run.c.id < month.next.name)
    return set(connection.execute(select(run.c.id).where(*inside)).scalars())


def _drop_month(
    db: Database, month: Month, older_than: float, keep_last: int
) -> PruneResult | None:
    """Drop a month's partitions and runs; None where one of its runs is needed by now."""

    def work(connection: Connection) -> PruneResult | None:
        if month not in partitions.months(connection):  # another call was faster
            return None
        old = {one.id: one for one in _old(connection, older_than, keep_last)}
        ids = _ids(connection, month)
        sinks = select(run.c.id).where(run.c.id.in_(ids), run.c.sink.is_not(None)).limit(1)
        if not ids <= old.keys() or connection.execute(sinks).first() is not None:
            return None
        freed = partitions.drop(connection, month)
        inside = (run.c.id >= month.name, run.c.id < month.next.name)
        plan_for_any_run(connection)
        connection.execute(delete(run).where(*inside))
        return PruneResult(runs=[old[one] for one in sorted(ids)], months=[month], freed=freed)

    return partitions.exclusively(db, work)


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
        last = select(func.max(shard.c.stop), func.max(shard.c.index) + 1).where(
            shard.c.run_id == old.id
        )
        stop, shards = connection.execute(last).one()
    if sink is not None:
        sink_folders.delete(sink, old.id)
    # by their key: following the shards' keys would search all of the run's items for each
    _delete_by(db, old.id, item, item.c.index, range(0, stop or 0, _ROWS))
    _delete_by(db, old.id, result_part, result_part.c.shard, range(0, shards or 0, _SHARDS))
    with db.begin() as connection:
        plan_for_any_run(connection)
        return connection.execute(delete(run).where(run.c.id == old.id)).rowcount == 1


def _delete_by(db: Database, run_id: str, table: Table, column: Column[int], starts: range) -> None:
    """Delete a run's rows of a table, a step of `starts` at a time."""
    for start in starts:
        with db.begin() as connection:
            plan_for_any_run(connection)
            inside = (column >= start) & (column < start + starts.step)
            connection.execute(delete(table).where(table.c.run_id == run_id, inside))


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
        if partitions.supported(db):
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
    if not partitions.supported(db):
        _vacuum_sqlite(db)
        return
    with db.read() as connection:
        partitions.require_owner(connection)
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
    if partitions.supported(db):
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
                [(found,)] = copy.execute("PRAGMA quick_check(1)").fetchall()
                copy.execute("PRAGMA journal_mode = DELETE")  # one file, nothing beside it
            if found != "ok":
                raise DatabaseError(f"database {db.name} is damaged: {found}; no backup was made")
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
