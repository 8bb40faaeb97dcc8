"""One database, SQLite or PostgreSQL: its engine, its transactions and its errors."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from sqlalchemy import URL, Connection, Engine, NullPool, create_engine, event, exc, make_url

from transexplain.errors import ConfigurationError, DatabaseError

_SECRET_PARAMETERS = ("password", "sslpassword", "passfile")
_BUSY_SECONDS = 30.0  # SQLite: how long a writer waits for another
_CONNECT_SECONDS = 10  # PostgreSQL: how long an unreachable host is waited for
#: PostgreSQL lets go of what a client locked whose host lost power or froze amid a transaction; it
#: would wait for two hours, and a claim passes over locked shards
_SERVER_OPTIONS = " ".join(
    f"-c {name}={value}"
    for name, value in {
        "tcp_keepalives_idle": 30,
        "tcp_keepalives_interval": 10,
        "tcp_keepalives_count": 3,
        "idle_in_transaction_session_timeout": "5min",
    }.items()
)
_READING = "transexplain_reading"


class Database:
    """Connections to one store; one object per process, shared by its threads.

    `url` is an SQLAlchemy URL of SQLite (a file) or PostgreSQL. Nothing is opened before the
    first transaction. Raises ConfigurationError for a URL that names anything else.
    """

    def __init__(self, url: str) -> None:
        self._url = _parse(url)
        self.name = _shown(self._url)  #: the URL without its password, for messages
        self.engine = _engine(self._url)

    @property
    def path(self) -> Path | None:
        """The file of an SQLite database; None for PostgreSQL and SQLite's own `file:` URIs."""
        file = self._url.database or ""
        if self._url.get_backend_name() != "sqlite" or file.startswith("file:"):
            return None
        return Path(file)

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        """A writing transaction: committed at the end, rolled back by an exception.

        Raises DatabaseError where the server is unreachable, went away or stayed locked.
        """
        with self.translated(), self.engine.begin() as connection:
            yield connection

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A reading transaction, which blocks no writer; raises as `begin` does."""
        with self.translated(), self.engine.connect() as connection:
            yield connection.execution_options(**{_READING: True})

    @contextmanager
    def migrating(self) -> Iterator[Connection]:
        """A transaction for migrations, on a connection of its own.

        SQLite alters a table by copying and dropping it, and dropping a parent with foreign keys
        on would delete its children; the keys are checked at the end instead.
        """
        engine = _engine(self._url, foreign_keys=False, poolclass=NullPool)
        try:
            with self.translated(), engine.begin() as connection:
                yield connection
        finally:
            engine.dispose()

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Turn the driver's complaints about the database itself into DatabaseError."""
        try:
            yield
        except exc.DBAPIError as error:
            if isinstance(error, _ABOUT_ROWS):
                raise
            reason = " ".join(str(error.orig).split())
            raise DatabaseError(
                f"database {self.name}: {reason}. Check that it is running and that "
                "TRANSEXPLAIN_DATABASE_URL names it."
            ) from error
        except exc.TimeoutError as error:
            raise DatabaseError(f"database {self.name}: no free connection in time") from error

    def close(self) -> None:
        """Close every pooled connection; the object may be used again and opens new ones."""
        self.engine.dispose()

    def __enter__(self) -> "Database":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Database({self.name!r})"


#: errors about what was written, not about the database: those are faults of this program
_ABOUT_ROWS = (exc.IntegrityError, exc.ProgrammingError, exc.DataError, exc.NotSupportedError)


def open_database(url: str, *, upgrade: bool = False) -> Database:
    """A database that is reachable and at the revision of this package's tables.

    With `upgrade` an absent or older one is brought there first (safe to call concurrently).
    Raises DatabaseError where it is unreachable or, without `upgrade`, at another revision.
    """
    from transexplain.store import revisions  # alembic takes a quarter of a second to import

    database = Database(url)
    try:
        if upgrade:
            revisions.bring_to_head(database)
        else:
            revisions.require_head(database)
    except BaseException:
        database.close()
        raise
    return database


def raw_connection(connection: Connection) -> Any:
    """The driver's own connection below `connection`, for what SQLAlchemy has no words for."""
    return connection.connection.driver_connection


def plan_for_any_run(connection: Connection) -> None:
    """Have PostgreSQL plan the transaction's statements, and its key checks, without the run's id.

    A new run's id is in no statistics. Planned for that very id, one row is expected whatever the
    condition, any index that begins with the id seems as good as the right one, and every check of
    a key may read all the run's items.
    """
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql("SET LOCAL plan_cache_mode TO force_generic_plan")


def _parse(url: str) -> URL:
    try:
        parsed = make_url(url)
    except (exc.ArgumentError, ValueError):
        # the text is not repeated: where it cannot be parsed its password cannot be found
        raise ConfigurationError(
            "the database URL cannot be read; write sqlite:///FILE or "
            "postgresql://USER:PASSWORD@HOST:PORT/NAME (special characters percent-encoded)"
        ) from None
    if parsed.drivername in ("postgres", "postgresql"):
        parsed = parsed.set(drivername="postgresql+psycopg")
    if parsed.drivername not in ("sqlite", "sqlite+pysqlite", "postgresql+psycopg"):
        raise ConfigurationError(
            f"database URL {_shown(parsed)}: {parsed.drivername!r} is not supported; "
            "use sqlite:///FILE or postgresql://..."
        )
    if parsed.get_backend_name() == "sqlite" and parsed.database in (None, "", ":memory:"):
        raise ConfigurationError(
            "an in-memory SQLite database is not shared between workers; use sqlite:///FILE"
        )
    return parsed


def _shown(url: URL) -> str:
    hidden = {name: "***" for name in url.query if name.lower() in _SECRET_PARAMETERS}
    return url.update_query_dict(hidden).render_as_string(hide_password=True)


def _engine(url: URL, *, foreign_keys: bool = True, **options: Any) -> Engine:
    if url.get_backend_name() == "postgresql":
        usual = {"connect_timeout": _CONNECT_SECONDS, "options": _SERVER_OPTIONS}
        arguments = {name: value for name, value in usual.items() if name not in url.query}
        return create_engine(url, connect_args=arguments, pool_pre_ping=True, **options)
    engine = create_engine(url, connect_args={"timeout": _BUSY_SECONDS}, **options)
    _sqlite_transactions(engine, foreign_keys)
    return engine


def _sqlite_transactions(engine: Engine, foreign_keys: bool) -> None:
    """Begin transactions ourselves: the driver's own would upgrade from reading to writing.

    A transaction that starts by reading and then writes fails at once when another wrote in
    between; one that takes the write lock at its beginning waits its turn.
    """

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, _record: Any) -> None:
        connection.isolation_level = None
        connection.execute("PRAGMA journal_mode = WAL")
        # a power cut may lose the last commits but corrupts nothing: leases redo the work
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(f"PRAGMA foreign_keys = {'ON' if foreign_keys else 'OFF'}")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        reading = connection.get_execution_options().get(_READING)
        connection.exec_driver_sql("BEGIN" if reading else "BEGIN IMMEDIATE")
