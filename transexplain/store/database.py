"""One database, SQLite or PostgreSQL: its connections, its transactions and its errors."""

import re
import sqlite3
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import quote

from sqlalchemy import URL, Connection, Engine, NullPool, create_engine, event, exc, make_url

from transexplain.errors import ConfigurationError, DatabaseError
from transexplain.text.addresses import (
    Address,
    check_server,
    options_of,
    read_address,
    shown_url,
    without_secrets,
)

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
#: engine and connection of `reading_once`, in the thread that is in there
_HELD: ContextVar[tuple[Engine, Connection] | None] = ContextVar("held", default=None)
#: kinds of databases, and names of their drivers in a URL
_KINDS = {"sqlite": ("", "pysqlite"), "postgresql": ("", "psycopg"), "postgres": ("",)}
#: of the module sqlite3, and of SQLite's own `file:` URIs
_SQLITE_OPTIONS = frozenset(("uri", "mode", "cache", "immutable", "nolock", "psow", "vfs"))
#: what SQLite says of a file -> the remedy
_OF_FILES = {
    "is not a database": "Move the file away, or name another with --db",
    "malformed": "The file is damaged: put a backup in its place (`transexplain db backup` makes "
    "one), or name another with --db",
    "unable to open": "Its folder must be there, and you must be able to write to it; or name "
    "another file with --db",
    "readonly": "Its file and folder must be such that you can write to them; or name another "
    "file with --db",
    "is full": "Make room on its disk; what was saved before stays, and `transexplain resume` "
    "goes on",
    "disk I/O": "Look at its disk: it may be full or gone. What was saved before stays, and "
    "`transexplain resume` goes on",
    "already exists": "The file holds tables of another program, or is damaged; name another "
    "with --db",
}
_OF_FILE = "Name another file with --db, or by TRANSEXPLAIN_DATABASE_URL"
_TRUE = ("true", "yes", "on", "y", "t", "1")  #: what SQLAlchemy takes for yes
_NUMBERS = frozenset(
    (
        *("connect_timeout", "keepalives", "keepalives_idle", "keepalives_interval"),
        *("keepalives_count", "tcp_user_timeout"),
    )
)


class Database:
    """Connections to one store; one object per process, shared by its threads.

    `url` is an SQLAlchemy URL of SQLite (a file) or PostgreSQL. It connects at the
    first transaction. With `read_only` the server itself refuses to write whatever is asked, and
    an SQLite file is neither made nor changed. Raises ConfigurationError for a URL that names
    anything else.
    """

    def __init__(self, url: str, *, read_only: bool = False) -> None:
        self._url = _parse(url)
        self._given = url
        self.name = shown_url(url)  #: the URL without its password, for messages
        try:
            self.engine = _reading_engine(self._url) if read_only else _engine(self._url)
        except (exc.ArgumentError, ValueError):
            raise ConfigurationError(
                f"database URL {self.name}: its hosts cannot be read; write host=NAME:PORT for each"
            ) from None

    @property
    def url(self) -> str:
        """As it was given, password and all, for another process to open."""
        return self._given

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
    def begin_at_once(self) -> Iterator[Connection]:
        """As `begin`; where another writes to an SQLite file it raises and does not wait for it."""
        with self.translated(), self.engine.connect() as connection:
            if self.engine.name == "postgresql":
                with connection.begin():
                    yield connection
                return
            raw = raw_connection(connection)
            raw.execute("PRAGMA busy_timeout = 0")
            try:
                with connection.begin():
                    yield connection
            finally:
                raw.execute(f"PRAGMA busy_timeout = {1000 * _BUSY_SECONDS:.0f}")

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A reading transaction, which blocks no writer; raises as `begin` does."""
        held = _HELD.get()
        if held is not None and held[0] is self.engine:
            with self.translated():
                yield held[1]
            return
        with self.translated(), self.engine.connect() as connection:
            yield connection.execution_options(**{_READING: True})

    @contextmanager
    def reading_once(self) -> Iterator[None]:
        """Let every `read` of this thread in here share one connection and one transaction.

        Each costs a look at the connection, a beginning and an end otherwise: three ways to the
        server beside that of its statement. Raises as `begin` does.
        """
        with self.read() as connection:
            token = _HELD.set((self.engine, connection))
            try:
                yield
            finally:
                _HELD.reset(token)

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
            # without a statement it is the connection that is refused, whatever its error is called
            if isinstance(error, _ABOUT_ROWS) and error.statement is not None:
                raise
            raise self._refused(error.orig) from error
        except sqlite3.Error as error:  # while a connection was prepared
            raise self._refused(error) from error
        except exc.TimeoutError as error:
            raise DatabaseError(f"database {self.name}: no free connection in time") from error

    def _refused(self, error: object) -> DatabaseError:
        reason = without_secrets(" ".join(str(error).split()).rstrip("."), self._given)
        remedy = "Check that it is running and that TRANSEXPLAIN_DATABASE_URL names it."
        if self._url.get_backend_name() == "sqlite":
            remedy = next((hint for said, hint in _OF_FILES.items() if said in reason), _OF_FILE)
        return DatabaseError(f"database {self.name}: {reason}. {remedy}")

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
    """The URL of a database that this software works with, every option of it known."""
    what = f"database URL {shown_url(url)}"
    address = read_address(url)
    kind, _, driver = (address.scheme if address else "sqlite").partition("+")
    if kind not in _KINDS or driver not in _KINDS[kind]:
        raise ConfigurationError(
            f"{what}: {kind!r} is not supported; use sqlite:///FILE or postgresql://..."
        )
    unreadable = ConfigurationError(
        f"{what} cannot be read; write sqlite:///FILE or "
        "postgresql://USER:PASSWORD@HOST:PORT/NAME (special characters percent-encoded)"
    )
    if address is None or (kind == "sqlite" and _is_no_file(address)):
        raise unreadable
    if kind == "sqlite":
        known = _SQLITE_OPTIONS
    else:
        known = _libpq_options()
        check_server(address, what, needs_host=False)
    _check_options(address, known, what)
    try:
        parsed = make_url(url)
    except (exc.ArgumentError, ValueError):
        raise unreadable from None
    if kind != "sqlite":
        return parsed.set(drivername="postgresql+psycopg")
    if "\0" in url or (parsed.database or "") in ("", ":memory:", "/"):
        raise ConfigurationError(
            "an in-memory SQLite database is not shared between workers; use sqlite:///FILE"
        )
    if set(parsed.query) - _SQLITE_OPTIONS:  # behind a #, which SQLAlchemy takes for an option's
        raise unreadable
    if set(parsed.query) - {"uri"} and str(parsed.query.get("uri")).lower() not in _TRUE:
        raise ConfigurationError(f"{what}: options of SQLite's own need uri=true beside them")
    return parsed


def _is_no_file(address: Address) -> bool:
    """Whether a URL of SQLite has more than a path and options."""
    beside = address.place or address.user is not None
    fragment = address.fragment or ""
    return bool(beside) or "?" in fragment or bool(fragment and not address.path)


def _check_options(address: Address, known: Collection[str], what: str) -> None:
    if address.fragment is not None and address.place:
        raise ConfigurationError(f"{what}: write # as %23")
    for name, values in options_of(address).items():
        # an unknown name is not repeated: it may be a piece of a password with an & in it
        if name not in known:
            raise ConfigurationError(
                f"{what} has an option that is not known here; known: {', '.join(sorted(known))}"
            )
        if len(values) > 1 and name not in ("host", "port"):
            raise ConfigurationError(f"{what} gives {name} more than once")
        if name == "uri" and values[0] not in ("true", "false"):
            raise ConfigurationError(f"{what}: uri is true or false")
        if name in _NUMBERS and not re.fullmatch(r"-?\d{1,9}", values[0]):
            raise ConfigurationError(f"{what}: {name} is no whole number")


@lru_cache(maxsize=1)
def _libpq_options() -> frozenset[str]:
    """The options that the client library of this machine knows."""
    import psycopg  # SQLite works without it

    options = {option.keyword.decode() for option in psycopg.pq.Conninfo.get_defaults()}
    return frozenset(options)


def _engine(url: URL, *, foreign_keys: bool = True, **options: Any) -> Engine:
    if url.get_backend_name() == "postgresql":
        usual = {"connect_timeout": _CONNECT_SECONDS, "options": _SERVER_OPTIONS}
        arguments = {name: value for name, value in usual.items() if name not in url.query}
        engine = create_engine(url, connect_args=arguments, pool_pre_ping=True, **options)
        _plain_numbers(engine)
        return engine
    engine = create_engine(url, connect_args={"timeout": _BUSY_SECONDS}, **options)
    _sqlite_transactions(engine, foreign_keys)
    return engine


def _plain_numbers(engine: Engine) -> None:
    """Read sums of PostgreSQL, its `numeric`, as int or float: SQLite gives those, JSON takes them.

    No column is a `numeric`.
    """
    from psycopg.adapt import Loader

    class Plain(Loader):
        def load(self, data: Any) -> int | float:
            digits = bytes(data)
            return int(digits) if digits.lstrip(b"-").isdigit() else float(digits)

    @event.listens_for(engine, "connect")
    def register(connection: Any, _record: Any) -> None:
        connection.adapters.register_loader("numeric", Plain)


def _reading_engine(url: URL) -> Engine:
    """An engine whose connections the database lets read and nothing else."""
    if url.get_backend_name() == "postgresql":
        engine = _engine(url)

        @event.listens_for(engine, "connect")
        def prepare(connection: Any, _record: Any) -> None:
            connection.execute("SET default_transaction_read_only = on")
            connection.commit()

        return engine
    file = url.database or ""
    if not file.startswith("file:"):
        # SQLite opens what is there and makes no file
        file = f"file:{quote(str(Path(file).absolute()))}"
    reading = url.set(database=file).update_query_dict({"mode": "ro", "uri": "true"})
    # each reader opens the file anew, and so sees that it was moved, or put back
    engine = create_engine(reading, connect_args={"timeout": _BUSY_SECONDS}, poolclass=NullPool)

    @event.listens_for(engine, "connect")
    def prepare_file(connection: Any, _record: Any) -> None:
        connection.isolation_level = None
        connection.execute("PRAGMA query_only = ON")

    _begin_ourselves(engine)
    return engine


def _sqlite_transactions(engine: Engine, foreign_keys: bool) -> None:
    """Begin transactions ourselves: the driver's own would upgrade from reading to writing.

    A transaction that starts by reading and then writes fails at once when another wrote in
    between; one that takes the write lock at its beginning waits its turn.
    """

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, _record: Any) -> None:
        connection.isolation_level = None
        _write_ahead(connection)
        # a power cut may lose the last commits but corrupts nothing: leases redo the work
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(f"PRAGMA foreign_keys = {'ON' if foreign_keys else 'OFF'}")

    _begin_ourselves(engine)


def _write_ahead(connection: sqlite3.Connection) -> None:
    """Set the journal of a file, for which SQLite waits for nobody, whatever its timeout."""
    last = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > last:
                raise
            time.sleep(0.05)


def _begin_ourselves(engine: Engine) -> None:
    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        reading = connection.get_execution_options().get(_READING)
        connection.exec_driver_sql("BEGIN" if reading else "BEGIN IMMEDIATE")
