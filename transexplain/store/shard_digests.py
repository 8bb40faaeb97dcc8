"""Digests of what shards saved, and which shards of a run are not as they were saved.

A shard's row records how many items it saved and the digest of all its rows. Results that were
lost, doubled, swapped or changed since have other counts or another digest.
"""

import hashlib
import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, LargeBinary, Table, func, or_, select, type_coerce, update

from transexplain.errors import DamagedRowError
from transexplain.store import parts, shard_blocks, sink_files
from transexplain.store.columns import json_of
from transexplain.store.database import Database, plan_for_any_run
from transexplain.store.noteworthy import RecordedShard, recorded_shards
from transexplain.store.rows import Row
from transexplain.store.schema import item, result_file, result_part, run, shard, shard_aggregate

_ROWS = 4096  #: of the data whose results are in memory together
_NAMED = 3  #: shards that an error names
#: what a digest leaves out: the run, lines of code, which differ between versions, and what says
#: which attempt wrote a file
_NOT_COVERED = ("run_id", "traceback", "token", "name")


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


@dataclass(frozen=True, kw_only=True, slots=True)
class HeldRows:
    """What the tables hold of one shard."""

    failed: Sequence[Row]
    parts: Sequence[Row]
    files: Sequence[Row]
    aggregates: Sequence[Row]

    @property
    def digest(self) -> str:
        """Of all of them."""
        return digest_of(self.failed, self.parts, self.aggregates, self.files)


def digest_of(
    failed: Iterable[Mapping[str, Any]],
    explained: Iterable[Mapping[str, Any]],
    aggregates: Iterable[Mapping[str, Any]],
    files: Iterable[Mapping[str, Any]] = (),
) -> str:
    """The digest of the rows of a shard.

    Args:
        failed: rows of `item`.
        explained: rows of `result_part`, in their order.
        aggregates: rows of `shard_aggregate`, packed as they are stored.
        files: rows of `result_file`.
    """
    sha256 = hashlib.sha256()
    ordered = sorted(failed, key=lambda row: int(row["index"]))
    tables = (item, result_part, result_file, shard_aggregate)
    for table, rows in zip(tables, (ordered, explained, files, aggregates), strict=True):
        for row in rows:
            covered = {n: row[n] for n in sorted(row) if n not in _NOT_COVERED}
            blobs = [one for one in covered.values() if isinstance(one, bytes)]
            plain = {
                name: len(one) if isinstance(one, bytes) else one
                for name, one in covered.items()
                if one is not None
            }
            sha256.update(f"{json.dumps([table.name, plain])}\n".encode())
            for blob in blobs:
                sha256.update(blob)
    return sha256.hexdigest()


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
    found = {one.index: one for one in _gaps(db, run_id, known)} if only is None else {}
    for block in _blocks(known):
        found |= {one.index: one for one in _changed(db, run_id, block)}
    if lost is None and only is None and sink_files.alone(db, run_id):
        lost = sink_files.faults(db, run_id)
    for one in known:
        if one.index in (lost or {}) and one.index not in found:
            found[one.index] = _damage(one, (lost or {})[one.index])
    return [found[index] for index in sorted(found)]


def refuse_damaged(db: Database, run_id: str, only: Collection[int] | None = None) -> None:
    """Raise DamagedRowError where shards, or `only` these, are not as they were saved."""
    if found := damaged(db, run_id, only):
        more = len(found) - _NAMED
        raise DamagedRowError(
            f"run {run_id}: the results of {len(found)} shard{'s' if len(found) > 1 else ''} "
            f"are not those that were saved: {'; '.join(map(str, found[:_NAMED]))}"
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
    explained = (
        select(result_part.c.shard, func.sum(result_part.c["items"]).label("items"))
        .where(result_part.c.run_id == run_id)
        .group_by(result_part.c.shard)
        .subquery()
    )
    failed = (
        select(item.c.shard, func.count().label("items"))
        .where(item.c.run_id == run_id)
        .group_by(item.c.shard)
        .subquery()
    )
    there = [func.coalesce(one.c["items"], 0) for one in (explained, failed)]
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
    [one] = recorded_shards(db, run_id, [index])
    with db.read() as connection:
        rows = held_rows(connection, run_id, [one])[index]
    [before] = sink_files.files_of(db, run_id, index)
    folder = before.url.rpartition("/")[0]
    file = sink_files.upload(folder, index, before.token, rows.parts)
    digest = digest_of(rows.failed, rows.parts, rows.aggregates, [file])
    same = [shard.c[name] == getattr(one, name) for name in ("index", "state", "digest")]
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
    for one in known:
        if one.start > row:
            yield _gone(index, row, one.start)
        index, row = one.index + 1, one.stop
    if row < rows:
        yield _gone(index, row, rows)


def _gone(index: int, start: int, stop: int) -> DamagedShard:
    return DamagedShard(
        index=index, start=start, stop=stop, what="the shard itself is not there", gone=True
    )


def _blocks(known: Iterable[RecordedShard]) -> Iterator[list[RecordedShard]]:
    """Shards of about `_ROWS` rows together."""
    block: list[RecordedShard] = []
    for one in known:
        if block and one.stop - block[0].start > _ROWS:
            yield block
            block = []
        block.append(one)
    if block:
        yield block


def _changed(db: Database, run_id: str, block: Sequence[RecordedShard]) -> Iterator[DamagedShard]:
    """Those of a block of shards whose rows in the database are not what was saved."""
    with db.read() as connection:
        held = held_rows(connection, run_id, block)
    wrong = {one.index: (one, what) for one in block if (what := _fault(one, held[one.index]))}
    # what was saved while this was read is compared with what its row says now
    again = recorded_shards(db, run_id, wrong) if wrong else ()
    for now in again:
        before, what = wrong[now.index]
        if now == before:
            yield _damage(now, what)
        else:
            yield from _changed(db, run_id, [now])


def _damage(one: RecordedShard, what: str) -> DamagedShard:
    return DamagedShard(index=one.index, start=one.start, stop=one.stop, what=what)


def held_rows(
    connection: Connection, run_id: str, block: Sequence[RecordedShard]
) -> Mapping[int, HeldRows]:
    """The rows of neighbouring shards by their index."""
    plan_for_any_run(connection)
    first, last = block[0], block[-1]
    place = item.c.index
    query = select(item).where(item.c.run_id == run_id, place >= first.start, place < last.stop)
    shard_at = {row: one.index for one in block for row in range(one.start, one.stop)}
    failed: defaultdict[int, list[Row]] = defaultdict(list)
    for row in connection.execute(query.order_by(place)).mappings():
        failed[shard_at.get(row["index"], -1)].append(dict(row))
    columns: dict[Table, list[Any]] = {one: list(one.c) for one in (result_part, result_file)}
    packed = type_coerce(shard_aggregate.c.payload, LargeBinary).label("payload")
    columns[shard_aggregate] = [shard_aggregate.c.shard, packed]
    held = {
        table: _by_shard(connection, run_id, table, some, range(first.index, last.index + 1))
        for table, some in columns.items()
    }
    return {
        one.index: HeldRows(
            failed=failed[one.index],
            parts=held[result_part][one.index],
            files=held[result_file][one.index],
            aggregates=held[shard_aggregate][one.index],
        )
        for one in block
    }


def _by_shard(
    connection: Connection, run_id: str, table: Table, columns: Sequence[Any], indices: range
) -> Mapping[int, list[Row]]:
    query = select(*columns).where(
        table.c.run_id == run_id, table.c.shard >= indices.start, table.c.shard < indices.stop
    )
    order = [table.c[name] for name in ("shard", "part") if name in table.c]
    found: defaultdict[int, list[Row]] = defaultdict(list)
    for row in connection.execute(query.order_by(*order)).mappings():
        found[row["shard"]].append(dict(row))
    return found


def _fault(one: RecordedShard, rows: HeldRows) -> str:
    """What is wrong with the rows of a shard; "": nothing."""
    there = any((rows.failed, rows.parts, rows.files, rows.aggregates))
    if one.state != "done" and not there:
        return ""
    if one.digest is None:
        done = one.state == "done"
        return "its digest is not there" if done else "it holds results, and none were saved"
    counts = sum(row["items"] for row in rows.parts), len(rows.failed)
    if one.state == "done" and counts != (one.explained, one.failed):
        return (
            f"holds {counts[0]} explained and {counts[1]} failed items, it was saved with "
            f"{one.explained} and {one.failed}"
        )
    if faults := [fault for row in rows.parts if (fault := parts.fault_of(row))]:
        return "; ".join(faults)
    found = rows.digest
    if found == one.digest:
        return ""
    return f"is not what was saved (sha256 {found[:12]}, saved {one.digest[:12]})"
