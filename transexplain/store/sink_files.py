"""The Parquet files of a run's sink: written before a shard is committed, read, and checked.

A file is named by its shard and the fencing token of the claim that wrote it, so that no two
attempts write the same one. It is uploaded before the transaction that saves its shard, which
writes a row of `result_file` for it: a row without its file cannot be, and a file without a row is
nobody's result.
"""

import hashlib
import io
import json
import logging
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
from sqlalchemy import Connection, select

from transexplain.errors import ObjectStoreError, RemoteFileError, TransExplainError
from transexplain.files import remote_files
from transexplain.store.database import Database
from transexplain.store.part_reading import Key, Part
from transexplain.store.plain_columns import SCHEMA, VERSION, parquet_of
from transexplain.store.plain_reading import part_of
from transexplain.store.rows import Row
from transexplain.store.schema import result_file, run, shard
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
    committed = {(one.shard, one.token) for one in files_of(db, run_id)}
    found = []
    for url, (index, token) in there.items():
        newest, state = claims.get(index, (token, ""))
        if (index, token) not in committed and (token < newest or state != "running"):
            found.append(url)
    return found


def own_files(folder: str) -> dict[str, tuple[int, int]]:
    """URL -> shard and token of each file of shards in a folder. Raises ObjectStoreError."""
    found = {}
    for one in remote_files.under(folder):
        if match := _NAME.fullmatch(one.url.rpartition("/")[2]):
            found[one.url] = (int(match[1]), int(match[2]))
    return found


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
        "columns": [{"name": one.name, "type": str(one.type)} for one in SCHEMA],
        "run": row.id,
        "name": row.name,
        "state": row.state,
        "plan_digest": row.plan_digest,
        "items": sum(one.items for one in files),
        "rows": sum(one.rows for one in files),
        "bytes": sum(one.bytes for one in files),
        "files": [_listed(one) for one in files],
    }
    return (json.dumps(document, indent=1) + "\n").encode()


def _listed(one: SinkFile) -> dict[str, Any]:
    names = ("name", "shard", "token", "items", "rows", "bytes", "sha256")
    return {name: getattr(one, name) for name in names}


def written_manifest(folder: str) -> bytes | None:
    """The manifest that lies in a folder; None: there is none. Raises ObjectStoreError."""
    there = {one.url.rpartition("/")[2]: one.url for one in remote_files.under(folder)}
    return remote_files.read(there[MANIFEST]) if MANIFEST in there else None
