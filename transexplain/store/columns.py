"""Column types that hold the same Python values in SQLite and PostgreSQL, and database time."""

import json
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
from sqlalchemy import (
    JSON,
    Column,
    ColumnElement,
    Connection,
    Dialect,
    Double,
    LargeBinary,
    Text,
    cast,
    or_,
    type_coerce,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import TypeDecorator

from transexplain.errors import DamagedRowError
from transexplain.text.parsing import refuse_depth


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Turn Python's errors about `what` into a DamagedRowError: the row is damaged, or not ours."""
    try:
        yield
    except (ValueError, TypeError, LookupError, OverflowError, RecursionError, zlib.error) as error:
        raise DamagedRowError(
            f"the database holds {what} that cannot be read: {error}; restore it from a backup"
        ) from None


_ESCAPE = "\x10"  # DLE, "data link escape"
_UNSTORABLE = re.compile(f"[\x00{_ESCAPE}\ud800-\udfff]")
_ESCAPED = re.compile(f"{_ESCAPE}([0-9a-f]{{4}})")


def escaped(text: str) -> str:
    """`text` without NUL and lone surrogates, which `unescaped` gives back."""
    if not _UNSTORABLE.search(text):
        return text
    return _UNSTORABLE.sub(lambda found: f"{_ESCAPE}{ord(found[0]):04x}", text)


def unescaped(text: str) -> str:
    """The text that `escaped` was given."""
    if _ESCAPE not in text:
        return text
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), text)


class AnyText(TypeDecorator[str]):
    """Every Python string, even those with NUL or lone surrogates.

    PostgreSQL refuses NUL and neither database takes surrogates; one odd document must not end a
    shard. Such characters are escaped reversibly; all other text is stored as it is.
    """

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """Escape on the way in."""
        return None if value is None else escaped(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> str | None:
        """Restore on the way out."""
        return None if value is None else unescaped(value)


class JsonText(TypeDecorator[Any]):
    """A JSON document as ASCII text that a person can read in the database."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        """None stays NULL."""
        return None if value is None else _dump(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:
        """The document; None for NULL."""
        if value is None:
            return None
        with reading("a document"):
            refuse_depth(value)
            return json.loads(value)


def json_of(connection: Connection, column: Column[Any]) -> Any:
    """A column of `JsonText` as a document, whose values SQL can pick by their keys."""
    text = type_coerce(column, Text)
    # SQLite reads JSON from text as it is
    return type_coerce(text, JSON) if connection.dialect.name == "sqlite" else cast(text, JSON)


class PackedJson(TypeDecorator[Any]):
    """A JSON document as compressed bytes, for what only programs read."""

    impl = LargeBinary
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> bytes | None:
        """None stays NULL."""
        return None if value is None else pack_json(value)

    def process_result_value(self, value: bytes | None, dialect: Dialect) -> Any:
        """The document; None for NULL."""
        if value is None:
            return None
        with reading("a document"):
            return read_json(zlib.decompress(value))


class DatabaseTime(FunctionElement[float]):
    """Seconds since the epoch by the database's clock: leases must not trust workers' clocks."""

    type = Double()
    inherit_cache = True
    name = "database_time"


def is_due(moment: Column[float], at_most: float) -> ColumnElement[bool]:
    """Whether `moment`, which was set at most `at_most` seconds ahead, has come.

    One that lies further ahead was written before the database's clock was set back, and would be
    waited for as long as the clock was wrong: it counts as come.
    """
    return or_(moment <= DatabaseTime(), moment > DatabaseTime() + at_most)


@compiles(DatabaseTime, "sqlite")
def _sqlite_time(element: DatabaseTime, compiler: SQLCompiler, **_: Any) -> str:
    return "((julianday('now') - 2440587.5) * 86400.0)"


@compiles(DatabaseTime, "postgresql")
def _postgresql_time(element: DatabaseTime, compiler: SQLCompiler, **_: Any) -> str:
    # the clock, not the transaction's start: a claim may have waited for a lock
    return "CAST(EXTRACT(EPOCH FROM clock_timestamp()) AS DOUBLE PRECISION)"


def read_json(text: bytes) -> Any:
    """The document, in half of the time that `json` takes, integers of any size among it.

    Raises ValueError where it is none.
    """
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return json.loads(text)  # the error names the place, as for every other document


def pack_json(value: Any) -> bytes:
    """A document as a column of `PackedJson` holds it."""
    return zlib.compress(_dump(value).encode(), 1)


def _dump(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)
