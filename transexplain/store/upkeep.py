"""Upkeep of a database: its size, its vacuum, and the backup of an SQLite file."""

import sqlite3
from contextlib import closing
from pathlib import Path

from sqlalchemy import text

from transexplain.atomic_write import atomic_file
from transexplain.errors import ConfigurationError, DatabaseError
from transexplain.store import partitions
from transexplain.store.database import Database, raw_connection
from transexplain.store.schedule_tables import schedule

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
                # all pages at once: between two steps a writer would make it begin anew
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
