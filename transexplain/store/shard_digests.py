"""Digests of what shards saved, and which shards of a run are not as they were saved.

A shard's row records how many items it saved and the digest of all its rows. Results that were
lost, doubled, swapped or changed since have other counts or another digest.
"""

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from sqlalchemy import Connection, LargeBinary, func, or_, select, type_coerce, update

from transexplain.errors import DamagedRowError
from transexplain.store import shard_blocks, sink_files
from transexplain.store.array_columns import Columns, Ragged, read_columns, selected
from transexplain.store.columns import json_of
from transexplain.store.database import Database, plan_for_any_run
from transexplain.store.noteworthy import RecordedShard, recorded_shards
from transexplain.store.schema import (
    OF_ITEMS,
    failure,
    item,
    result_file,
    run,
    shard,
    shard_aggregate,
)

_ROWS = 4096  #: of the data whose results are in memory together
_NAMED = 3  #: shards that an error names
#: what a digest leaves out: the run, lines of code, which differ between versions, and what says
#: which attempt wrote a file
_NOT_COVERED = ("run_id", "traceback", "token", "name")
_TOTALS = ("payload", "summary")


@dataclass(frozen=True, kw_only=True, slots=True)
class DamagedShard:
    """A shard whose results are not those that were saved."""

    index: int
    start: int  #: its first row of the data
    stop: int
    what: str  #: what is wrong with it
    gone: bool = False  #: the shard's own row is not there

    def __str__(self) -> str:
        return f"shard {self.index} (rows {self.start} to {self.stop - 1}): {self.what}"


class HeldRows(NamedTuple):
    """What the tables hold of one shard."""

    rows: Mapping[str, Columns]  #: by the tables of items
    totals: Mapping[str, bytes]  #: columns of `shard_aggregate`; empty: there is no row
    files: Sequence[Mapping[str, Any]]

    @property
    def digest(self) -> str:
        """Of all of them."""
        return digest_of(self.rows, self.totals, self.files)


def digest_of(
    rows: Mapping[str, Columns], totals: Mapping[str, bytes], files: Sequence[Mapping[str, Any]]
) -> str:
    """The digest of the rows of a shard.

    Args:
        rows: the columns of each table of items, rows in the order of their key; a table without
            rows may be left out.
        totals: columns of `shard_aggregate`, packed as they are stored.
        files: rows of `result_file`.
    """
    sha256 = hashlib.sha256()
    for table in OF_ITEMS:
        columns = rows.get(table.name, {"idx": ()})
        if not len(columns["idx"]):
            continue
        for name in sorted(columns):
            if name not in _NOT_COVERED:
                sha256.update(f"{table.name}.{name}\n".encode())
                sha256.update(_bytes_of(columns[name]))
    for file in files:
        covered = {name: file[name] for name in sorted(file) if name not in _NOT_COVERED}
        sha256.update(json.dumps(covered).encode())
    for name in _TOTALS:
        sha256.update(totals.get(name, b""))
    return sha256.hexdigest()


def _bytes_of(column: Any) -> bytes:
    if isinstance(column, Ragged):
        return column.counts.astype("<i8").tobytes() + _bytes_of(column.values)
    if isinstance(column, np.ndarray):
        return column.astype(column.dtype.newbyteorder("<")).tobytes()
    return json.dumps(list(column)).encode()


def damaged(
    db: Database,
    run_id: str,
    only: Collection[int] | None = None,
    *,
    lost: Mapping[int, str] | None = None,
) -> list[DamagedShard]:
    """The shards of a run, or `only` some of them, that are not as they were saved, by index.

    Every byte in the database is read. Of a run whose results are files alone, those that are
    `lost` (shard -> what is wrong with its file) are among them; None: the files are read here.
    Raises ObjectStoreError where their store is away.
    """
    known = recorded_shards(db, run_id, only)
    damages = (
        {damages.index: damages for damages in _gaps(db, run_id, known)} if only is None else {}
    )
    for block in _blocks(known):
        damages |= {damage.index: damage for damage in _changed(db, run_id, block)}
    if lost is None and only is None and sink_files.alone(db, run_id):
        lost = sink_files.faults(db, run_id)
    for recorded in known:
        if recorded.index in (lost or {}) and recorded.index not in damages:
            damages[recorded.index] = _damage(recorded, (lost or {})[recorded.index])
    return [damages[index] for index in sorted(damages)]


def refuse_damaged(db: Database, run_id: str, only: Collection[int] | None = None) -> None:
    """Raise DamagedRowError where shards, or `only` these, are not as they were saved."""
    if damages := damaged(db, run_id, only):
        more = len(damages) - _NAMED
        raise DamagedRowError(
            f"run {run_id}: the results of {len(damages)} shard{'s' if len(damages) > 1 else ''} "
            f"are not those that were saved: {'; '.join(map(str, damages[:_NAMED]))}"
            f"{f'; and {more} more' if more > 0 else ''}. `transexplain verify {run_id}` names "
            f"them, `transexplain resume {run_id}` computes them again"
        )


def refuse_damaged_rows(db: Database, run_id: str, rows: Collection[int]) -> None:
    """As `refuse_damaged`, of the shards that hold these rows of the data."""
    if not rows:
        return
    inside = or_(*((shard.c.start <= row) & (shard.c.stop > row) for row in rows))
    with db.read() as connection:
        found = connection.scalars(select(shard.c.index).where(shard.c.run_id == run_id, inside))
        indices = list(found)
    refuse_damaged(db, run_id, indices)


def miscounted(db: Database, run_id: str) -> list[int]:
    """Indices of the saved shards that hold fewer or more items than they saved; counts alone."""
    explained, failed = (
        select(table.c.shard, func.count().label("items"))
        .where(table.c.run_id == run_id)
        .group_by(table.c.shard)
        .subquery()
        for table in (item, failure)
    )
    there = [func.coalesce(counted.c["items"], 0) for counted in (explained, failed)]
    query = (
        select(shard.c.index)
        .outerjoin(explained, explained.c.shard == shard.c.index)
        .outerjoin(failed, failed.c.shard == shard.c.index)
        .where(
            shard.c.run_id == run_id,
            shard.c.state == "done",
            (there[0] != shard.c.explained) | (there[1] != shard.c.failed),
        )
        .order_by(shard.c.index)
    )
    with db.read() as connection:
        return list(connection.scalars(query))


def write_file_again(db: Database, run_id: str, index: int) -> None:
    """Write the lost file of a saved shard again, from its results in the database.

    Raises ObjectStoreError where its store is away.
    """
    [recorded] = recorded_shards(db, run_id, [index])
    with db.read() as connection:
        rows = held_rows(connection, run_id, recorded)
    [before] = sink_files.files_of(db, run_id, index)
    folder = before.url.rpartition("/")[0]
    file = sink_files.upload(folder, index, before.token, rows.rows)
    digest = digest_of(rows.rows, rows.totals, [file])
    same = [shard.c[name] == getattr(recorded, name) for name in ("index", "state", "digest")]
    unchanged = update(shard).where(shard.c.run_id == run_id, *same)
    at = (result_file.c.run_id == run_id, result_file.c.shard == index)
    with db.begin() as connection:
        if connection.execute(unchanged.values(digest=digest)).rowcount:
            connection.execute(update(result_file).where(*at).values(file))


def _gaps(db: Database, run_id: str, known: Sequence[RecordedShard]) -> Iterator[DamagedShard]:
    """Rows of the data that belong to no shard."""
    with db.read() as connection:
        left = shard_blocks.pending(connection, [run_id]).get(run_id)
        planned = json_of(connection, run.c.plan)["dataset"]["rows"].as_integer()
        rows = connection.scalar(select(planned).where(run.c.id == run_id)) or 0
    rows = left.start if left else rows
    index, row = 0, 0
    for recorded in known:
        if recorded.start > row:
            yield _gone(index, row, recorded.start)
        index, row = recorded.index + 1, recorded.stop
    if row < rows:
        yield _gone(index, row, rows)


def _gone(index: int, start: int, stop: int) -> DamagedShard:
    return DamagedShard(
        index=index, start=start, stop=stop, what="the shard itself is not there", gone=True
    )


def _blocks(known: Iterable[RecordedShard]) -> Iterator[list[RecordedShard]]:
    """Shards of about `_ROWS` rows together."""
    block: list[RecordedShard] = []
    for recorded in known:
        if block and recorded.stop - block[0].start > _ROWS:
            yield block
            block = []
        block.append(recorded)
    if block:
        yield block


def _changed(db: Database, run_id: str, block: Sequence[RecordedShard]) -> Iterator[DamagedShard]:
    """Those of a block of shards whose rows in the database are not what was saved."""
    with db.read() as connection:
        faults = {
            recorded.index: (recorded, _fault_of(connection, run_id, recorded))
            for recorded in block
        }
    wrong = {index: fault for index, fault in faults.items() if fault[1]}
    # what was saved while this was read is compared with what its row says now
    again = recorded_shards(db, run_id, wrong) if wrong else ()
    for now in again:
        before, what = wrong[now.index]
        if now == before:
            yield _damage(now, what)
        else:
            yield from _changed(db, run_id, [now])


def _damage(recorded: RecordedShard, what: str) -> DamagedShard:
    return DamagedShard(index=recorded.index, start=recorded.start, stop=recorded.stop, what=what)


def _fault_of(connection: Connection, run_id: str, recorded: RecordedShard) -> str:
    try:
        held = held_rows(connection, run_id, recorded)
    except ValueError as error:
        return f"is damaged: {error}"
    return _fault(recorded, held)


def held_rows(connection: Connection, run_id: str, recorded: RecordedShard) -> HeldRows:
    """The rows of a shard; raises ValueError where one cannot be read."""
    plan_for_any_run(connection)
    rows = {}
    for table in OF_ITEMS:
        inside = (table.c.idx >= recorded.start) & (table.c.idx < recorded.stop)
        query = select(*selected(table.c, connection.dialect)).where(
            table.c.run_id == run_id, inside
        )
        found = connection.execute(query.order_by(*table.primary_key.columns)).all()
        rows[table.name] = read_columns(list(table.c), found)
    packed = [type_coerce(shard_aggregate.c[name], LargeBinary).label(name) for name in _TOTALS]
    files, totals = (
        connection.execute(
            select(*columns).where(table.c.run_id == run_id, table.c.shard == recorded.index)
        )
        .mappings()
        .all()
        for table, columns in ((result_file, list(result_file.c)), (shard_aggregate, packed))
    )
    return HeldRows(rows, dict(totals[0]) if totals else {}, [dict(file) for file in files])


def _fault(recorded: RecordedShard, held: HeldRows) -> str:
    """What is wrong with the rows of a shard; "": nothing."""
    counts = tuple(len(held.rows[name]["idx"]) for name in ("item", "failure"))
    if recorded.state != "done" and not any((*counts, held.totals, held.files)):
        return ""
    if recorded.digest is None:
        done = recorded.state == "done"
        return "its digest is not there" if done else "it holds results, and none were saved"
    if recorded.state == "done" and counts != (recorded.explained, recorded.failed):
        return (
            f"holds {counts[0]} explained and {counts[1]} failed items, it was saved with "
            f"{recorded.explained} and {recorded.failed}"
        )
    digest = held.digest
    if digest == recorded.digest:
        return ""
    return f"is not what was saved (sha256 {digest[:12]}, saved {recorded.digest[:12]})"
