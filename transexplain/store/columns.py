"""Column types that hold the same Python values in SQLite and PostgreSQL, and database time.

Arrays stand in columns as SQL reads them. All rows of a shard are written at once, and read back:
in memory a column of N rows is a list, an array of numbers (NaN stands for NULL), or `Ragged`.
"""

import json
import re
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, pairwise, repeat
from math import isnan
from struct import Struct
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray
from sqlalchemy import (
    ARRAY,
    JSON,
    REAL,
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    Connection,
    Dialect,
    Double,
    Integer,
    LargeBinary,
    Table,
    Text,
    cast,
    exc,
    func,
    or_,
    select,
    type_coerce,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import TypeDecorator, TypeEngine

from transexplain.errors import DamagedRowError
from transexplain.store.database import raw_connection
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


Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Columns = Mapping[str, Any]  #: name -> the column


class Ragged(NamedTuple):
    """N arrays, one behind the other."""

    values: NDArray[Any]  #: (M,)
    counts: Ints  #: (N,) how many values each has

    @classmethod
    def of(cls, arrays: Sequence[Any], dtype: Any) -> "Ragged":
        """Of N sequences of numbers."""
        counts = np.fromiter(map(len, arrays), dtype=np.int64, count=len(arrays))
        joined = np.concatenate(arrays) if len(arrays) else np.zeros(0)
        return cls(joined.astype(dtype), counts)

    def bounds(self) -> list[tuple[int, int]]:
        """Where each array begins and ends."""
        return list(pairwise([0, *np.cumsum(self.counts).tolist()]))

    def each(self) -> list[NDArray[Any]]:
        """The N arrays."""
        return [self.values[low:high] for low, high in self.bounds()]

    def tuples(self) -> list[tuple[Any, ...]]:
        """The N arrays as Python's numbers."""
        numbers = self.values.tolist()
        return [tuple(numbers[low:high]) for low, high in self.bounds()]

    def at(self, places: Ints) -> "Ragged":
        """The arrays at these places."""
        begins = np.cumsum(self.counts) - self.counts
        counts = self.counts[places]
        shift = np.repeat(begins[places] - (np.cumsum(counts) - counts), counts)
        return Ragged(self.values[np.arange(len(shift)) + shift], counts)


def taken(columns: Columns, places: Ints) -> Columns:
    """The rows at these places."""
    chosen = places.tolist()

    def of(column: Any) -> Any:
        if isinstance(column, Ragged):
            return column.at(places)
        return (
            column[places]
            if isinstance(column, np.ndarray)
            else [column[place] for place in chosen]
        )

    return {name: of(column) for name, column in columns.items()}


class _Kind(NamedTuple):
    """A type of numbers of PostgreSQL."""

    sql: TypeEngine[Any]
    oid: int
    wire: str  #: as it is sent
    held: str  #: as it is in memory
    text: Callable[[Any], str]  #: a number in JSON, which is read as the same number


_KINDS = {
    "float4": _Kind(REAL(), 700, ">f4", "f4", "{:.9g}".format),
    "float8": _Kind(Double(), 701, ">f8", "f8", repr),
    "int4": _Kind(Integer(), 23, ">i4", "i4", str),
}
_INT = Struct(">i")
_HEAD = Struct(
    ">iiiii"
)  #: of an array: dimensions, whether it has NULLs, type, length, first index
_NO_VALUES = Struct(">iii")
_NULL = _INT.pack(-1)


class Numbers(TypeDecorator[Sequence[float]]):
    """An array of numbers that SQL reads: of PostgreSQL's own kind, or JSON in SQLite.

    Where the column may be NULL, no number is NULL.
    """

    impl = Text
    cache_ok = True

    def __init__(self, kind: str) -> None:
        """`kind`: float4, float8 or int4."""
        super().__init__()
        self.kind = kind

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """An array where there are arrays."""
        array = ARRAY(_KINDS[self.kind].sql) if dialect.name == "postgresql" else Text()
        return dialect.type_descriptor(array)

    def read(self, values: Sequence[Any]) -> Ragged:
        """The arrays of a column as `selected` reads it; raises ValueError for what is none."""
        kind = _KINDS[self.kind]
        if any(isinstance(value, str) for value in values):
            return _of_json(values, kind)
        blobs = [b"" if value is None else value[_HEAD.size :] for value in values]
        counts = np.fromiter(map(len, blobs), dtype=np.int64, count=len(blobs))
        sent = np.frombuffer(b"".join(blobs), dtype=[("size", ">i4"), ("value", kind.wire)])
        return Ragged(sent["value"].astype(kind.held), counts // sent.dtype.itemsize)

    def as_json(self, column: Ragged) -> list[str]:
        """(N,) the arrays as texts."""
        numbers = list(map(_KINDS[self.kind].text, column.values.tolist()))
        return [f"[{','.join(numbers[low:high])}]" for low, high in column.bounds()]

    def as_sent(self, column: Ragged) -> list[bytes]:
        """(N,) the arrays as PostgreSQL reads them, each behind its length."""
        kind = _KINDS[self.kind]
        raw, size = _framed(column.values, kind.wire)
        heads = {0: _INT.pack(_NO_VALUES.size) + _NO_VALUES.pack(0, 0, kind.oid)}
        for count in np.unique(column.counts[column.counts > 0]).tolist():
            head = _HEAD.pack(1, 0, kind.oid, count, 1)
            heads[count] = _INT.pack(len(head) + count * size) + head
        return [heads[b - a] + raw[a * size : b * size] for a, b in column.bounds()]


def _of_json(values: Sequence[str | None], kind: _Kind) -> Ragged:
    texts = ["[]" if value is None else value for value in values]
    if not all(text.startswith("[") and text.endswith("]") for text in texts):
        raise ValueError("an array does not stand in brackets")
    counts = [text.count(",") + 1 if len(text) > 2 else 0 for text in texts]
    numbers = [number for text in texts if len(text) > 2 for number in text[1:-1].split(",")]
    held = np.array(list(map(float, numbers)), dtype=np.float64)
    return Ragged(held.astype(kind.held), np.array(counts, dtype=np.int64))


def selected(columns: Iterable[Column[Any]], dialect: Dialect) -> list[Any]:
    """What to select, so that `read_columns` reads it."""

    def of(column: Column[Any]) -> Any:
        if isinstance(column.type, Numbers) and dialect.name == "postgresql":
            return type_coerce(func.array_send(column), LargeBinary).label(column.name)
        plain = isinstance(column.type, Numbers | AnyText | JsonText)
        return type_coerce(column, Text).label(column.name) if plain else column

    return [of(column) for column in columns]


def read_columns(columns: Sequence[Column[Any]], rows: Sequence[Sequence[Any]]) -> Columns:
    """The columns of rows of `selected`; raises ValueError where one cannot be read."""
    values: Iterable[Sequence[Any]] = zip(*rows, strict=True) if rows else repeat(())
    return {
        column.name: _read(column.type, some) for column, some in zip(columns, values, strict=False)
    }


def stored_columns(
    connection: Connection, table: Table, run_id: str, inside: ColumnElement[bool]
) -> Columns:
    """The columns of those rows of a run that are `inside`, in the order of their key."""
    query = (
        select(*selected(table.c, connection.dialect))
        .where(table.c.run_id == run_id, inside)
        .order_by(*table.primary_key.columns)
    )
    return read_columns(list(table.c), connection.execute(query).all())


def _read(kind: TypeEngine[Any], values: Sequence[Any]) -> Any:
    if isinstance(kind, Numbers):
        return kind.read(values)
    if isinstance(kind, Double):
        return np.array(values, dtype=np.float64)  # None becomes NaN
    if isinstance(kind, AnyText):
        return [None if text is None else unescaped(text) for text in values]
    return list(values)


class StoredRows(NamedTuple):
    """Rows of a table as a database takes them and gives them back."""

    table: Table
    #: name -> (N,): fields of a binary COPY, each behind its length, or values of SQLite
    columns: Mapping[str, Sequence[Any]]

    @classmethod
    def of(cls, dialect: Dialect, table: Table, columns: Columns) -> "StoredRows":
        """The form of these columns in a database of this kind."""
        form = _sent if dialect.name == "postgresql" else _plain
        return cls(table, {name: form(table.c[name], some) for name, some in columns.items()})

    def write(self, connection: Connection) -> None:
        """Insert them, as part of the transaction; by COPY where there is COPY.

        Raises SQLAlchemy's errors, as an INSERT would.
        """
        if connection.dialect.name == "postgresql":
            _copy(connection, self.table, self.columns, self._copied(self.columns))
        elif rows := self._rows(self.columns):
            names = _quoted(self.columns)
            values = ", ".join("?" * len(self.columns))
            connection.exec_driver_sql(
                f"INSERT INTO {self.table.name} ({names}) VALUES ({values})", rows
            )

    def content(self, dialect: Dialect, names: Sequence[str]) -> bytes:
        """The bytes of some columns, as `stored_content` reads them."""
        if dialect.name == "postgresql":
            return self._copied(names)
        return _packed(self._rows(names))

    def _rows(self, names: Iterable[str]) -> list[tuple[Any, ...]]:
        return list(zip(*(self.columns[name] for name in names), strict=True))

    def _copied(self, names: Collection[str]) -> bytes:
        """The rows of a binary COPY of these columns, without its head and its end."""
        count = repeat(len(names).to_bytes(2, "big"))
        fields = [self.columns[name] for name in names]
        return b"".join(chain.from_iterable(zip(count, *fields, strict=False)))


def stored_content(
    connection: Connection, table: Table, names: Sequence[str], run_id: str, rows: range
) -> bytes:
    """The bytes of columns of a run's stored rows in the order of their key; nothing is parsed.

    `rows`: of the data. Equal rows give equal bytes in databases of one kind.
    """
    key = [column.name for column in table.primary_key.columns]
    query = (
        f"SELECT {_quoted(names)} FROM {table.name} WHERE run_id = {{}} "
        f"AND idx >= {rows.start} AND idx < {rows.stop} ORDER BY {_quoted(key)}"
    )
    if connection.dialect.name != "postgresql":
        return _packed(list(map(tuple, connection.exec_driver_sql(query.format("?"), (run_id,)))))
    from psycopg import sql

    statement = sql.SQL(f"COPY ({query}) TO STDOUT (FORMAT binary)").format(run_id)
    with _copying(connection, table, statement) as copy:
        sent = b"".join(copy)
    return sent[len(_BEGIN) : -len(_END)]


def _packed(rows: list[tuple[Any, ...]]) -> bytes:
    return msgspec.msgpack.encode(rows) if rows else b""


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def bytes_of(table: Table, columns: Columns) -> int:
    """Bytes that these rows of a table take, without what a database adds for each row."""
    fields = (_sent(table.c[name], column) for name, column in columns.items())
    return sum(len(field) - _INT.size for column in fields for field in column)


def _plain(column: Column[Any], values: Any) -> Sequence[Any]:
    """(N,) as SQLite takes them."""
    kind = column.type
    if isinstance(kind, Numbers):
        texts = kind.as_json(values)
        return [None if text == "[]" else text for text in texts] if column.nullable else texts
    if isinstance(kind, Double):
        return [None if isnan(number) else number for number in values.tolist()]
    if isinstance(kind, AnyText):
        return [None if text is None else escaped(text) for text in values]
    return list(map(int, values)) if isinstance(kind, Boolean) else list(values)


def _sent(column: Column[Any], values: Any) -> list[bytes]:
    """(N,) fields of a binary COPY: each behind its length."""
    kind = column.type
    if isinstance(kind, Numbers):
        fields = kind.as_sent(values)
        empty = (values.counts == 0) & bool(column.nullable)
        return _with_nulls(fields, empty)
    if isinstance(kind, Double):
        return _with_nulls(_numbers(values, ">f8"), np.isnan(values))
    if isinstance(kind, Boolean):
        return _numbers(values, "?")
    if isinstance(kind, Integer):
        missing = np.array([value is None for value in values], dtype=bool)
        whole = [value or 0 for value in values]
        wide = isinstance(kind, BigInteger)
        return _with_nulls(_numbers(whole, ">i8" if wide else ">i4"), missing)
    known: dict[str | None, bytes] = {None: _NULL}
    for text in values:
        if text not in known:
            data = (escaped(text) if isinstance(kind, AnyText) else text).encode()
            known[text] = _INT.pack(len(data)) + data
    return [known[text] for text in values]


def _numbers(values: Any, wire: str) -> list[bytes]:
    raw, size = _framed(values, wire)
    return [raw[place : place + size] for place in range(0, len(raw), size)]


def _framed(values: Any, wire: str) -> tuple[bytes, int]:
    """Numbers, each behind its length, and how many bytes that is for each."""
    sent = np.zeros(len(values), dtype=[("size", ">i4"), ("value", wire)])
    sent["size"], sent["value"] = np.dtype(wire).itemsize, values
    return sent.tobytes(), sent.dtype.itemsize


def _with_nulls(fields: list[bytes], missing: NDArray[np.bool_]) -> list[bytes]:
    for place in np.flatnonzero(missing).tolist():
        fields[place] = _NULL
    return fields


_BEGIN, _END = b"PGCOPY\n\xff\r\n\0" + bytes(8), b"\xff\xff"


def _copy(connection: Connection, table: Table, names: Iterable[str], rows: bytes) -> None:
    """Binary COPY straight into the table, whose earlier rows of the shard are deleted before.

    Its bytes are made here, column by column: psycopg makes those of an array number by number,
    which takes longer than all else that a shard needs.
    """
    from psycopg import sql

    if not rows:
        return
    statement = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT binary)").format(
        sql.Identifier(table.name), sql.SQL(", ").join(map(sql.Identifier, names))
    )
    with _copying(connection, table, statement) as copy:
        copy.write(b"".join((_BEGIN, rows, _END)))


@contextmanager
def _copying(connection: Connection, table: Table, statement: Any) -> Iterator[Any]:
    """A COPY from or to a table, whose errors are SQLAlchemy's: callers know no others."""
    import psycopg

    try:
        with raw_connection(connection).cursor() as cursor, cursor.copy(statement) as copy:
            yield copy
    except psycopg.Error as error:
        raise exc.DBAPIError.instance(
            f"COPY {table.name}", None, error, psycopg.Error, dialect=connection.dialect
        ) from error
