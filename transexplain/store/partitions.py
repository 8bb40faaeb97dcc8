"""Monthly partitions of results on PostgreSQL: created ahead of time, dropped as a whole.

A run's rows lie in the partition of the month that its id begins with (`202611`). Rows of a month
that has none yet are taken by the default partition, so that a write is never refused.
"""

import random
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

from sqlalchemy import Connection, exc, text

from transexplain.errors import ConfigurationError, DatabaseError
from transexplain.store.columns import DatabaseTime
from transexplain.store.database import Database
from transexplain.store.schema import PARTITIONED

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
    found = connection.execute(
        text(
            "SELECT substr(relname, 6) FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid "
            "WHERE inhparent = CAST('item' AS regclass) AND relname ~ '^item_[0-9]{6}$'"
        )
    )
    return sorted(map(Month, found.scalars()))


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
    parts = [f"{table}_{month.name}" for table in PARTITIONED]
    size = sum(_size(connection, part) for part in parts)
    for part in parts[1:]:
        connection.execute(text(f"DROP TABLE {part}"))
    # the detached part is compared with the rows that could still refer to it: by index, where
    # the planner might read what all other months hold
    for setting in ("enable_hashjoin", "enable_mergejoin", "enable_seqscan"):
        connection.execute(text(f"SET LOCAL {setting} TO off"))
    connection.execute(text(f"ALTER TABLE item DETACH PARTITION {parts[0]}"))
    connection.execute(text(f"DROP TABLE {parts[0]}"))
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
    wanted = {*_ahead(this_month(connection), ahead), *_of_runs(connection)}
    return sorted(wanted - set(months(connection)))


def _ahead(month: Month, count: int) -> Iterator[Month]:
    for _ in range(count + 1):
        yield month
        month = month.next


def _of_runs(connection: Connection) -> Iterable[Month]:
    found = connection.execute(
        text(
            "SELECT DISTINCT substr(id, 1, 6) FROM run "
            "WHERE id ~ '^20[2-9][0-9](0[1-9]|1[0-2])[0-9]{2}-' AND id >= '2026'"
        )
    )
    return map(Month, found.scalars())


def _make(connection: Connection, month: Month) -> None:
    bounds = {"low": month.name, "high": month.next.name}

    def run(statement: str, values: dict[str, Any] | None = None) -> None:
        connection.execute(text(statement), values or {})

    # items last: deleting one deletes what belongs to it
    for table in reversed(PARTITIONED):
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
