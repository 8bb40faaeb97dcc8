"""The Parquet files of a run's sink: written before a shard is committed, read, and checked.

A file is named by its shard and the fencing token of the claim that wrote it, so that no two
attempts write the same one. It is uploaded before the transaction that saves its shard, which
writes a row of `result_file` for it: a row without its file cannot be, and a file without a row is
nobody's result.

The columns are those of SQL. A row is an attribution with its item; an item without attributions
has one row, with nothing in the columns of attributions. Mentions and scores stand in the first row
of their item.
"""

import hashlib
import io
import json
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Double,
    Integer,
    Table,
    select,
)

from transexplain.errors import ObjectStoreError, RemoteFileError, TransExplainError
from transexplain.files import remote_files
from transexplain.store.columns import (
    AnyText,
    Columns,
    Ints,
    Numbers,
    Ragged,
    escaped,
    taken,
    unescaped,
)
from transexplain.store.database import Database
from transexplain.store.schema import attribution, item, mention, result_file, run, score, shard
from transexplain.types.plans import Sink

MANIFEST = "_manifest"  #: of a run's folder; programs pass over files that begin so
RUN = "{run}"  #: stands for the run's id in the address of a sink
_KEPT = 2  #: files whose bytes a process holds: who reads block after block reads each file once


class _GoneError(ValueError):
    """There is no such file."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SinkFile:
    """A committed file, as its row tells of it."""

    shard: int
    name: str
    token: int  #: of the claim that wrote it
    items: int  #: explained ones
    rows: int  #: of the file: one for each attribution
    bytes: int
    sha256: str
    url: str


def folder_url(sink: Sink, run_id: str) -> str:
    """The URL of the folder of a run, without a slash at its end."""
    where = sink.url.replace(RUN, run_id).rstrip("/")
    return where if remote_files.is_url(where) else Path(where).as_uri()


def file_name(shard: int, token: int) -> str:
    """The name of the file that the claim of a shard with this token writes."""
    return f"shard-{shard:06d}-token-{token}.parquet"


def sink_of(connection: Connection, run_id: str) -> Sink | None:
    """The sink of a run; None: it has none, or there is no such run."""
    document = connection.execute(select(run.c.sink).where(run.c.id == run_id)).scalar()
    return None if document is None else Sink(**document)


def upload(url: str, shard: int, token: int, rows: Mapping[str, Columns]) -> dict[str, Any]:
    """Write the `results.rows_of` a shard as one file; returns its row, without the run.

    Raises ObjectStoreError, or RemoteFileError where less arrived than was sent.
    """
    content = parquet_of(rows)
    name = file_name(shard, token)
    written = remote_files.write(f"{url}/{name}", content)
    if written.size != len(content):
        raise RemoteFileError(
            f"{url}/{name} holds {written.size:,} of {len(content):,} bytes that were sent; "
            "check the store, then resume"
        )
    items, explained = rows["item"]["idx"], rows["attribution"]["idx"]
    return {
        "shard": shard,
        "name": name,
        "token": token,
        "items": len(items),
        "rows": len(explained) + len(items) - len(set(explained)),
        "bytes": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
    }


def files_of(db: Database, run_id: str, shard: int | None = None) -> list[SinkFile]:
    """The committed files of a run, or of one of its shards, by shard."""
    query = select(result_file).where(result_file.c.run_id == run_id)
    if shard is not None:
        query = query.where(result_file.c.shard == shard)
    with db.read() as connection:
        sink = sink_of(connection, run_id)
        rows = connection.execute(query.order_by(result_file.c.shard)).mappings().all()
    if sink is None:
        return []
    folder = folder_url(sink, run_id)
    return [
        SinkFile(**{n: row[n] for n in row if n != "run_id"}, url=f"{folder}/{row['name']}")
        for row in rows
    ]


def read_attributions(db: Database, run_id: str, rows: Ints) -> Columns:
    """The columns of `attribution` of items in these ascending rows, from their shards' files.

    Raises ValueError where a file is missing, changed or none; ObjectStoreError where the store is
    away.
    """
    import pyarrow.parquet as pq  # takes 14 MB, which a server of runs in SQL never needs

    first, last = int(rows[0]), int(rows[-1])
    query = select(shard.c.index).where(
        shard.c.run_id == run_id, shard.c.start <= last, shard.c.stop > first
    )
    with db.read() as connection:
        holding = set(connection.scalars(query))
    files = [file for file in files_of(db, run_id) if file.shard in holding]
    if {file.shard for file in files} != holding:
        raise ValueError("no file is recorded for it")
    inside = [("idx", ">=", first), ("idx", "<=", last)]
    tables = [pq.read_table(io.BytesIO(_content(file)), filters=inside) for file in files]
    columns = attributions_of(pa.concat_tables(tables))
    return taken(columns, np.flatnonzero(np.isin(columns["idx"], rows)))


@lru_cache(maxsize=_KEPT)
def _content(file: SinkFile) -> bytes:
    return read_checked(file)


def read_checked(file: SinkFile) -> bytes:
    """The bytes of a file.

    Raises ValueError where it is missing or its bytes are not those that were written;
    ObjectStoreError where the store is away.
    """
    try:
        content = remote_files.read(file.url)
    except RemoteFileError:
        raise _GoneError(f"its file {file.url} is not there") from None
    if len(content) != file.bytes or hashlib.sha256(content).hexdigest() != file.sha256:
        raise ValueError(f"its file {file.url} is not what was written")
    return content


def faults(db: Database, run_id: str, *, lost: bool = False) -> dict[int, str]:
    """Shard -> what is wrong with its committed file, where it is missing or damaged; reads all.

    Nothing of the run at that place means another place: ObjectStoreError is raised unless the
    files are said to be `lost`. It is also raised where the store is away.
    """
    files = files_of(db, run_id)
    urls: dict[int, str] = {}
    gone = 0
    for file in files:
        try:
            read_checked(file)
        except ValueError as error:
            urls[file.shard] = str(error)
            gone += isinstance(error, _GoneError)
    if files and gone == len(files) and not lost:
        folder = files[0].url.rpartition("/")[0]
        if not _holds_manifest(folder, run_id):
            raise ObjectStoreError(
                f"run {run_id}: none of its {len(files):,} files is in {folder}, so this is "
                "another place than they were written to, or its disk or store is not there. Check "
                "the mount or the endpoint and its credentials, then resume. Where the files are "
                f"deleted for good, `transexplain resume {run_id} --files-lost` writes them again"
            )
    return urls


def missing(db: Database, run_id: str) -> list[SinkFile]:
    """The committed files that are not there, or of another size; none is read.

    Raises ObjectStoreError where the store is away.
    """
    files = files_of(db, run_id)
    if not files:
        return []
    there = {held.url: held.size for held in remote_files.under(files[0].url.rpartition("/")[0])}
    return [file for file in files if there.get(file.url) != file.bytes]


def _holds_manifest(folder: str, run_id: str) -> bool:
    try:
        return bool(json.loads(remote_files.read(f"{folder}/{MANIFEST}"))["run"] == run_id)
    except (RemoteFileError, ValueError, LookupError, TypeError):
        return False


def alone(db: Database, run_id: str) -> bool:
    """Whether the results of a run are files of its sink alone."""
    with db.read() as connection:
        sink = sink_of(connection, run_id)
    return sink is not None and sink.keep == "sink"


log = logging.getLogger(__name__)

_NAME = re.compile(r"shard-(\d+)-token-(\d+)\.parquet")


def run_folder(db: Database, run_id: str) -> str | None:
    """The URL of the folder of a run; None: it has no sink."""
    with db.read() as connection:
        sink = sink_of(connection, run_id)
    return None if sink is None else folder_url(sink, run_id)


def close(db: Database, run_id: str) -> None:
    """Write the manifest of a run that is over and delete what nobody refers to.

    What goes wrong is logged: the files themselves are whole, and `tidy` does the same later.
    """
    try:
        tidy(db, run_id)
    except Exception as error:  # noqa: BLE001 - the run is over, whatever becomes of its manifest
        log.warning(
            "run %s: %s is not written (%s); `transexplain db prune` writes it",
            run_id,
            MANIFEST,
            error if isinstance(error, TransExplainError) else type(error).__name__,
        )


def tidy(db: Database, run_id: str) -> list[str]:
    """As `close`, also of a run that goes on, which has no manifest; returns what was deleted.

    Raises ObjectStoreError where the store is away.
    """
    folder = run_folder(db, run_id)
    if folder is None:
        return []
    gone = garbage(db, run_id)
    for url in gone:
        remote_files.delete(url)
    content = manifest_of(db, run_id)
    if content is None:
        remote_files.delete(f"{folder}/{MANIFEST}")
    elif content != written_manifest(folder):
        remote_files.write(f"{folder}/{MANIFEST}", content)
    return gone


def reopen(db: Database, run_id: str) -> None:
    """Delete the manifest of a run that goes on; what goes wrong is logged."""
    folder = run_folder(db, run_id)
    if folder is None:
        return
    try:
        remote_files.delete(f"{folder}/{MANIFEST}")
    except TransExplainError as error:
        log.warning("run %s: %s of before is still there (%s)", run_id, MANIFEST, error)


def garbage(db: Database, run_id: str) -> list[str]:
    """URLs of files that no claim can commit any more and none did.

    Raises ObjectStoreError where the store is away.
    """
    folder = run_folder(db, run_id)
    if folder is None:
        return []
    there = own_files(folder)  # before the rows: what is committed meanwhile is found in them
    query = select(shard.c.index, shard.c.token, shard.c.state).where(shard.c.run_id == run_id)
    with db.read() as connection:
        claims = {row[0]: (row[1], row[2]) for row in connection.execute(query)}
    committed = {(file.shard, file.token) for file in files_of(db, run_id)}
    orphans = []
    for url, (index, token) in there.items():
        newest, state = claims.get(index, (token, ""))
        if (index, token) not in committed and (token < newest or state != "running"):
            orphans.append(url)
    return orphans


def own_files(folder: str) -> dict[str, tuple[int, int]]:
    """URL -> shard and token of each file of shards in a folder. Raises ObjectStoreError."""
    files = {}
    for held in remote_files.under(folder):
        if match := _NAME.fullmatch(held.url.rpartition("/")[2]):
            files[held.url] = (int(match[1]), int(match[2]))
    return files


def delete(sink: Sink, run_id: str) -> None:
    """Delete the files of a run and their manifest; others in the folder stay.

    Raises ObjectStoreError where the store is away.
    """
    folder = folder_url(sink, run_id)
    for url in (f"{folder}/{MANIFEST}", *own_files(folder)):
        remote_files.delete(url)


def manifest_of(db: Database, run_id: str) -> bytes | None:
    """What a run's folder holds, as JSON; None while the run is not over, or has no sink."""
    columns = [run.c[name] for name in ("id", "name", "state", "plan_digest", "sink")]
    query = select(*columns).where(run.c.id == run_id, run.c.state != "running")
    with db.read() as connection:
        row = connection.execute(query).first()
    if row is None or row.sink is None:
        return None
    files = files_of(db, run_id)
    document = {
        "format": "transexplain-sink",
        "columns_version": VERSION,
        "columns": [{"name": field.name, "type": str(field.type)} for field in SCHEMA],
        "run": row.id,
        "name": row.name,
        "state": row.state,
        "plan_digest": row.plan_digest,
        "items": sum(file.items for file in files),
        "rows": sum(file.rows for file in files),
        "bytes": sum(file.bytes for file in files),
        "files": [_listed(file) for file in files],
    }
    return (json.dumps(document, indent=1) + "\n").encode()


def _listed(file: SinkFile) -> dict[str, Any]:
    names = ("name", "shard", "token", "items", "rows", "bytes", "sha256")
    return {name: getattr(file, name) for name in names}


def written_manifest(folder: str) -> bytes | None:
    """The manifest that lies in a folder; None: there is none. Raises ObjectStoreError."""
    there = {held.url.rpartition("/")[2]: held.url for held in remote_files.under(folder)}
    return remote_files.read(there[MANIFEST]) if MANIFEST in there else None


VERSION = 1  #: of the columns; rises when one changes its meaning or goes
GROUP_ITEMS = 1024  #: of a row group
_KEY = ("run_id", "shard", "idx", "ordinal")
_NUMBERS = {"float4": pa.float32(), "float8": pa.float64(), "int4": pa.int32()}


def _type(column: Column[Any]) -> pa.DataType:
    kind = column.type
    if isinstance(kind, Numbers):  # lists as Parquet names them, so that what is read has this type
        return pa.list_(pa.field("element", _NUMBERS[kind.kind]))
    if isinstance(kind, Double):
        return pa.float64()
    if isinstance(kind, Boolean):
        return pa.bool_()
    if isinstance(kind, Integer):
        return pa.int64() if isinstance(kind, BigInteger) else pa.int32()
    return pa.string()


def _own(table: Table) -> list[Column[Any]]:
    return [column for column in table.c if column.name not in _KEY]


def _nested(table: Table) -> pa.DataType:
    fields = [(column.name, _type(column)) for column in _own(table)]
    return pa.list_(pa.field("element", pa.struct(fields)))


_OF_ITEM = [item.c.idx, *_own(item)]
_OF_ATTRIBUTION = [attribution.c.ordinal, *_own(attribution)]
SCHEMA = pa.schema(
    [
        *((column.name, _type(column)) for column in (*_OF_ITEM, *_OF_ATTRIBUTION)),
        ("mentions", _nested(mention)),
        ("scores", _nested(score)),
    ],
    metadata={"transexplain.columns": str(VERSION)},
)


def parquet_of(rows: Mapping[str, Columns]) -> bytes:
    """A Parquet file of a shard's `results.rows_of`; the same rows give the same bytes."""
    import pyarrow.parquet as pq  # takes 14 MB, as in `sink_files`

    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink,
        SCHEMA,
        compression="zstd",
        use_dictionary=_FEW_VALUES,
        use_byte_stream_split=["relevance.list.element"],
    ) as writer:
        idx = np.array(rows["item"]["idx"], dtype=np.int64)
        for start in range(0, len(idx), GROUP_ITEMS):
            table = _table(rows, idx[start : start + GROUP_ITEMS])
            writer.write_table(table, row_group_size=len(table))
    return bytes(sink.getvalue().to_pybytes())


_FEW_VALUES = [
    *("label", "raw_label", "predicted", "meta", "source", "method", "target", "class_name"),
    *("unit", "at", "pieces", "notes", "grid_rows", "grid_columns", "pixel_height"),
    *("pixel_width", "prefix", "box.list.element"),
    *(f"mentions.list.element.{name}" for name in ("target", "class_name", "group_name", "entity")),
    *(f"scores.list.element.{name}" for name in ("method", "target", "metric", "reason")),
]


def _table(rows: Mapping[str, Columns], idx: Ints) -> pa.Table:
    """The rows of the items in these neighbouring rows of the dataset."""
    some = {name: _between(rows[name], idx) for name in ("item", "attribution", "mention", "score")}
    of = np.searchsorted(idx, some["attribution"]["idx"])
    counts = np.bincount(of, minlength=len(idx))
    items = np.repeat(np.arange(len(idx)), np.maximum(counts, 1))
    without = np.repeat(counts == 0, np.maximum(counts, 1))
    later = np.append(False, items[1:] == items[:-1])
    each = pa.array(np.cumsum(~without) - 1, mask=without)
    columns = {
        **{c.name: _arrow(c, some["item"][c.name]).take(pa.array(items)) for c in _OF_ITEM},
        **{c.name: _arrow(c, some["attribution"][c.name]).take(each) for c in _OF_ATTRIBUTION},
    }
    for name, table in (("mentions", mention), ("scores", score)):
        lists = _lists(table, some[table.name], idx)
        columns[name] = lists.take(pa.array(items, mask=later))
    return pa.table([columns[name] for name in SCHEMA.names], schema=SCHEMA)


def _between(columns: Columns, idx: Ints) -> Columns:
    low, high = np.searchsorted(columns["idx"], [idx[0], idx[-1] + 1]).tolist()
    return taken(columns, np.arange(low, high))


def _lists(table: Table, columns: Columns, idx: Ints) -> pa.Array:
    """For each item the rows of a table that belong to it."""
    of = np.searchsorted(idx, columns["idx"])
    offsets = np.searchsorted(of, np.arange(len(idx) + 1)).astype(np.int32)
    fields = [_arrow(column, columns[column.name]) for column in _own(table)]
    records = pa.StructArray.from_arrays(fields, names=[column.name for column in _own(table)])
    return pa.ListArray.from_arrays(pa.array(offsets), records).cast(_nested(table))


def _arrow(column: Column[Any], values: Any) -> pa.Array:
    kind = _type(column)
    if isinstance(values, Ragged):
        offsets = np.append(0, np.cumsum(values.counts)).astype(np.int32)
        return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values.values)).cast(kind)
    if isinstance(values, np.ndarray):
        return pa.array(values, mask=np.isnan(values), type=kind)
    if isinstance(column.type, AnyText):
        values = [None if text is None else escaped(text) for text in values]
    return pa.array(values, type=kind)


def attributions_of(table: pa.Table) -> Columns:
    """The columns of the table `attribution` in rows of this schema, as they were written.

    Raises ValueError and its like where they are none.
    """
    kept = table.filter(table.column("ordinal").is_valid()).combine_chunks()
    columns = [item.c.idx, *_OF_ATTRIBUTION]
    return {column.name: _read(column, _whole(kept, column)) for column in columns}


def _whole(table: pa.Table, column: Column[Any]) -> pa.Array:
    """A column in one piece."""
    pieces: Sequence[pa.Array] = table.column(column.name).chunks
    kind = _type(column)
    return pa.concat_arrays(pieces).cast(kind) if pieces else pa.array([], type=kind)


def _read(column: Column[Any], values: pa.Array) -> Any:
    if isinstance(column.type, Numbers):
        counts = values.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
        numbers = values.flatten().to_numpy(zero_copy_only=False)
        return Ragged(numbers, counts.astype(np.int64))
    if isinstance(column.type, Double):
        return values.to_numpy(zero_copy_only=False)
    plain = values.to_pylist()
    if isinstance(column.type, AnyText):
        return [None if text is None else unescaped(text) for text in plain]
    return plain
