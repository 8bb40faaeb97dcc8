"""The Parquet files of a run's sink: written before a shard is committed, read, and checked.

A file is named by its shard and the fencing token of the claim that wrote it, so that no two
attempts write the same one. It is uploaded before the transaction that saves its shard, which
writes a row of `result_file` for it: a row without its file cannot be, and a file without a row is
nobody's result.
"""

import hashlib
import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import pyarrow as pa
from sqlalchemy import Connection, select

from transexplain import remote_files
from transexplain.errors import ObjectStoreError, RemoteFileError
from transexplain.store.database import Database
from transexplain.store.part_reading import Key, Part
from transexplain.store.plain_columns import parquet_of
from transexplain.store.plain_reading import part_of
from transexplain.store.rows import Row
from transexplain.store.schema import result_file, run
from transexplain.types.plans import Sink

FORMAT = "parquet-1"  #: of a part that lies in the row group of its number, and not in the store
MANIFEST = "_manifest"  #: of a run's folder; programs pass over files that begin so
RUN = "{run}"  #: stands for the run's id in the address of a sink
_KEPT = 2  #: files whose bytes a process holds: who reads part after part reads each file once


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


def upload(url: str, shard: int, token: int, explained: Sequence[Row]) -> Row:
    """Write the rows of `result_part` of a shard as one file; returns its row, without the run.

    Raises ObjectStoreError, or RemoteFileError where less arrived than was sent.
    """
    parts = [Part((shard, row["part"]), row["payload"]) for row in explained]
    content = parquet_of(parts)
    name = file_name(shard, token)
    written = remote_files.write(f"{url}/{name}", content)
    if written.size != len(content):
        raise RemoteFileError(
            f"{url}/{name} holds {written.size:,} of {len(content):,} bytes that were sent; "
            "check the store, then resume"
        )
    return {
        "shard": shard,
        "name": name,
        "token": token,
        "items": sum(map(len, parts)),
        "rows": sum(_rows(part) for part in parts),
        "bytes": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
    }


def _rows(part: Part) -> int:
    return int(sum(max(1, count) for count in part.explained.counts.tolist()))


def without_payload(explained: Iterable[Row]) -> list[Row]:
    """The same rows for parts that lie in a file alone."""
    return [{**row, "payload": b"", "format": FORMAT} for row in explained]


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


def read_part(db: Database, run_id: str, key: Key) -> Part:
    """A part that lies in its shard's file.

    Raises ValueError where the file is missing, changed or none; ObjectStoreError where the store
    is away.
    """
    import pyarrow.parquet as pq  # takes 14 MB, which a server of runs in SQL never needs

    found = files_of(db, run_id, key[0])
    if not found:
        raise ValueError("no file is recorded for it")
    with pq.ParquetFile(io.BytesIO(_content(found[0]))) as file:
        table: pa.Table = file.read_row_group(key[1])
    return part_of(key, table)


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
    found: dict[int, str] = {}
    gone = 0
    for file in files:
        try:
            read_checked(file)
        except ValueError as error:
            found[file.shard] = str(error)
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
    return found


def missing(db: Database, run_id: str) -> list[SinkFile]:
    """The committed files that are not there, or of another size; none is read.

    Raises ObjectStoreError where the store is away.
    """
    files = files_of(db, run_id)
    if not files:
        return []
    there = {one.url: one.size for one in remote_files.under(files[0].url.rpartition("/")[0])}
    return [one for one in files if there.get(one.url) != one.bytes]


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
