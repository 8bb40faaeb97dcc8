"""Finds and reads the parts of a run; a damaged one is named, with what mends it."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import ColumnElement, Row, func, literal, or_, select, tuple_

from transexplain.errors import DamagedRowError
from transexplain.store import part_columns as col
from transexplain.store import sink_files
from transexplain.store.database import Database
from transexplain.store.part_reading import Key, Part
from transexplain.store.part_summary import PartSummary, summary_of
from transexplain.store.part_writing import FORMAT
from transexplain.store.schema import result_part

_PAYLOADS = 4  #: that are fetched together, of at most some megabytes each
_SMALL = 512  #: rows that are fetched together without their payload
_FEW = 8  #: ids that the database looks for itself
_FORMATS = (FORMAT, sink_files.FORMAT)
_Value = TypeVar("_Value")

_SPARING: ContextVar[bool] = ContextVar("sparing", default=False)
_HELD: ContextVar[dict[tuple[Database, str], list[Row[Any]]] | None] = ContextVar(
    "held", default=None
)
#: what reading a damaged payload may raise; pyarrow's errors are among them
_DAMAGE = (ValueError, TypeError, LookupError, OverflowError, NotImplementedError, OSError)


class Summarised(NamedTuple):
    """A part without its payload."""

    key: Key
    first: int  #: row of its first item
    items: int
    summary: PartSummary


@contextmanager
def sparing() -> Iterator[None]:
    """Pass over damaged parts in here, and only lose their items."""
    before = _SPARING.set(True)
    try:
        yield
    finally:
        _SPARING.reset(before)


@contextmanager
def summaries_once() -> Iterator[None]:
    """Fetch the summaries of a run once in here, a few bytes an item, and keep them packed."""
    before = _HELD.set({})
    try:
        yield
    finally:
        _HELD.reset(before)


def fault_of(row: Mapping[str, Any]) -> str:
    """What is wrong with the bytes of a row of `result_part`; "": nothing."""
    named = f"part {row['part']} (rows {row['first']} to {row['last']})"
    if row["format"] not in _FORMATS:
        return f"{named} is in the layout {row['format']!r}, which this version does not know"
    sealed = ("ids", "summary", "payload")[: 2 if row["format"] == sink_files.FORMAT else 3]
    try:
        for name in sealed:
            col.unsealed(row[name])
    except ValueError:
        return f"{named} is damaged"
    return ""


def summaries(db: Database, run_id: str) -> Iterator[Summarised]:
    """What is said of each part, in the order of the data.

    Raises DamagedRowError for a damaged one.
    """
    for row in _summary_rows(db, run_id):
        found: list[PartSummary] = []
        with _reading(run_id, row):
            found.append(summary_of(row.summary))
        for one in found:
            yield Summarised((row.shard, row.part), row.first, row._mapping["items"], one)


def _summary_rows(db: Database, run_id: str) -> Iterable[Row[Any]]:
    columns = [result_part.c[name] for name in ("items", "summary")]
    rows = _stored(db, run_id, columns, _SMALL)
    held = _HELD.get()
    if held is None:
        return rows
    if (db, run_id) not in held:
        held[db, run_id] = list(rows)
    return held[db, run_id]


def read(
    db: Database,
    run_id: str,
    work: Callable[[Part], _Value],
    keys: Iterable[Key] | None = None,
    *,
    rows: range | None = None,
    together: int = _PAYLOADS,
) -> Iterator[_Value]:
    """What `work` gives of each part, or of those with these `keys`, in the order of the data.

    Of `rows` of the dataset only the parts that may hold some; `together` are fetched at once: who
    stops early wants few. Raises DamagedRowError for a damaged one.
    """
    which = None
    if rows is not None:
        which = (result_part.c.first < rows.stop) & (result_part.c.last >= rows.start)
    if keys is None:
        yield from _worked(db, run_id, work, which, together)
        return
    wanted = sorted(keys)
    for start in range(0, len(wanted), _PAYLOADS):
        some = tuple_(result_part.c.shard, result_part.c.part).in_(
            wanted[start : start + _PAYLOADS]
        )
        yield from _worked(db, run_id, work, some)


def _worked(
    db: Database,
    run_id: str,
    work: Callable[[Part], _Value],
    which: ColumnElement[bool] | None,
    together: int = _PAYLOADS,
) -> Iterator[_Value]:
    for row in _stored(db, run_id, [result_part.c.payload], together, which):
        found: list[_Value] = []
        with _reading(run_id, row):
            found.append(work(_part(db, run_id, row)))
        yield from found


def _part(db: Database, run_id: str, row: Row[Any]) -> Part:
    key = (row.shard, row.part)
    if row.format == sink_files.FORMAT:
        return sink_files.read_part(db, run_id, key)
    return Part(key, row.payload)


def hashes(
    db: Database, run_id: str, which: ColumnElement[bool] | None = None
) -> Iterator[tuple[Key, NDArray[np.uint32]]]:
    """Shard and part -> `part_columns.hashes_of` of its items, part after part."""
    for row in _stored(db, run_id, [result_part.c["ids"]], _SMALL, which):
        found: list[NDArray[np.uint32]] = []
        with _reading(run_id, row):
            found.append(np.frombuffer(col.unsealed(row.ids), dtype="<u4"))
        for one in found:
            yield (row.shard, row.part), one


def holding(db: Database, run_id: str, item_ids: Sequence[str]) -> list[Key]:
    """The parts that may hold one of these items; few of them do not."""
    wanted = np.unique(col.hashes_of(item_ids))
    if not len(wanted):
        return []
    which = _holds(db, wanted) if len(wanted) <= _FEW else None
    keys, found = [], []
    for key, some in hashes(db, run_id, which):
        keys += [key] * len(some)
        found.append(some)
    if not keys:
        return []
    hits = np.flatnonzero(np.isin(np.concatenate(found), wanted))
    return list(dict.fromkeys(keys[place] for place in hits.tolist()))


def _holds(db: Database, wanted: Any) -> ColumnElement[bool]:
    """Whether the bytes of any of these numbers are among the ids, wherever they begin."""
    ids = result_part.c["ids"]
    numbers = [literal(one.tobytes()) for one in wanted]
    if db.engine.name == "postgresql":
        return or_(*(func.pg_catalog.position(ids, one) > 0 for one in numbers))
    return or_(*(func.instr(ids, one) > 0 for one in numbers))


def _stored(
    db: Database,
    run_id: str,
    columns: Sequence[ColumnElement[Any]],
    together: int,
    which: ColumnElement[bool] | None = None,
) -> Iterator[Row[Any]]:
    """Rows with these columns by shard and part; no connection is held between two pages.

    Raises DamagedRowError for one in a layout that is not known here, or passes it over.
    """
    key = (result_part.c.shard, result_part.c.part)
    named = [result_part.c[name] for name in ("first", "last", "format")]
    query = select(*key, *named, *columns).where(result_part.c.run_id == run_id)
    if which is not None:
        query = query.where(which)
    page = query.order_by(*key).limit(together)
    after = page
    while True:
        with db.read() as connection:
            rows = connection.execute(after).all()
        yield from (row for row in rows if _known(run_id, row))
        if len(rows) < together:
            return
        after = page.where(tuple_(*key) > (rows[-1].shard, rows[-1].part))


def _known(run_id: str, row: Row[Any]) -> bool:
    """Whether a part is in a layout that this version reads; see `sparing` for one that is not."""
    if row.format in _FORMATS:
        return True
    if _SPARING.get():
        return False
    raise DamagedRowError(
        f"run {run_id}: {_named(row)} is in the layout {row.format!r}, which this version does not "
        "know: a newer TransExplain wrote it; install that version"
    )


def _named(row: Row[Any]) -> str:
    return f"part {row.part} of shard {row.shard} (rows {row.first} to {row.last})"


@contextmanager
def _reading(run_id: str, row: Row[Any]) -> Iterator[None]:
    """Errors about a part's bytes name the part, or pass it over; see `sparing`."""
    try:
        yield
    except _DAMAGE as error:
        if _SPARING.get():
            return
        raise DamagedRowError(
            f"run {run_id}: {_named(row)} cannot be read: {error}; "
            f"`transexplain resume {run_id}` computes that shard again"
        ) from None
