"""The folder of a run's sink as a whole: its `_manifest`, what nobody refers to, its deletion."""

import json
import logging
import re
from typing import Any

from sqlalchemy import select

from transexplain import remote_files
from transexplain.errors import TransExplainError
from transexplain.store.database import Database
from transexplain.store.plain_columns import SCHEMA, VERSION
from transexplain.store.schema import run, shard
from transexplain.store.sink_files import MANIFEST, SinkFile, files_of, folder_url, sink_of
from transexplain.types.plans import Sink

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
