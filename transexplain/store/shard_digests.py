"""Digests of what shards saved, and which shards of a run are not as they were saved.

A shard's row records how many items it saved and the digest of all its rows. Results that were
lost, doubled, swapped or changed since have other counts or another digest.
"""

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from sqlalchemy import (
    Connection,
    Dialect,
    LargeBinary,
    Table,
    func,
    or_,
    select,
    type_coerce,
    update,
)

from transexplain.errors import DamagedRowError
from transexplain.store import shard_blocks, sink_files
from transexplain.store.columns import (
    Columns,
    StoredRows,
    json_of,
    stored_columns,
    stored_content,
)
from transexplain.store.database import Database, plan_for_any_run
from transexplain.store.runs import RecordedShard, recorded_shards
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
_NOT_COVERED = frozenset({"run_id", "traceback", "token", "name"})
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


def stored_of(dialect: Dialect, rows: Mapping[str, Columns]) -> list[StoredRows]:
    """The rows of a shard by the tables of items, as a database of this kind takes them."""
    return [
        StoredRows.of(dialect, table, rows[table.name]) for table in OF_ITEMS if table.name in rows
    ]


def digest_of(
    dialect: Dialect,
    stored: Iterable[StoredRows],
    totals: Mapping[str, bytes],
    files: Sequence[Mapping[str, Any]],
) -> str:
    """The digest of the rows of a shard, which databases of one kind agree on.

    Args:
        dialect: of the database.
        stored: rows of each table of items in the order of their key, as `stored_of`.
        totals: columns of `shard_aggregate`, packed as they are stored.
        files: rows of `result_file`.
    """
    content = {some.table.name: some.content(dialect, _covered(some.table)) for some in stored}
    return _digest(content, totals, files)


def _covered(table: Table) -> list[str]:
    return sorted({column.name for column in table.c} - _NOT_COVERED)


def _digest(
    content: Mapping[str, bytes],
    totals: Mapping[str, bytes],
    files: Sequence[Mapping[str, Any]],
) -> str:
    sha256 = hashlib.sha256()
    for table in OF_ITEMS:
        rows = content.get(table.name, b"")
        sha256.update(f"{table.name} {len(rows)}\n".encode())
        sha256.update(rows)
    for file in files:
        covered = {name: file[name] for name in sorted(file) if name not in _NOT_COVERED}
        sha256.update(json.dumps(covered).encode())
    for name in _TOTALS:
        sha256.update(totals.get(name, b""))
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
        content, totals, _ = _held(connection, run_id, recorded)
        rows = {
            table.name: stored_columns(
                connection, table, run_id, table.c.idx.between(recorded.start, recorded.stop - 1)
            )
            for table in OF_ITEMS
        }
    [before] = sink_files.files_of(db, run_id, index)
    folder = before.url.rpartition("/")[0]
    file = sink_files.upload(folder, index, before.token, rows)
    digest = _digest(content, totals, [file])
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
    gone = partial(DamagedShard, what="the shard itself is not there", gone=True)
    index, row = 0, 0
    for recorded in known:
        if recorded.start > row:
            yield gone(index=index, start=row, stop=recorded.start)
        index, row = recorded.index + 1, recorded.stop
    if row < rows:
        yield gone(index=index, start=row, stop=rows)


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
    """What is wrong with the rows of a shard; "": nothing."""
    if recorded.digest is None and recorded.state == "done":
        return "its digest is not there"
    content, totals, files = _held(connection, run_id, recorded)
    if recorded.digest is None:
        there = any((*content.values(), totals, files))
        return "it holds results, and none were saved" if there else ""
    digest = _digest(content, totals, files)
    if recorded.state == "done":
        counts = _counts(connection, run_id, recorded)
        if counts != (recorded.explained, recorded.failed):
            return (
                f"holds {counts[0]} explained and {counts[1]} failed items, it was saved with "
                f"{recorded.explained} and {recorded.failed}"
            )
    if digest == recorded.digest:
        return ""
    return f"is not what was saved (sha256 {digest[:12]}, saved {recorded.digest[:12]})"


def held_digest(connection: Connection, run_id: str, recorded: RecordedShard) -> str:
    """The digest of what the tables hold of a shard."""
    return _digest(*_held(connection, run_id, recorded))


_Held = tuple[Mapping[str, bytes], Mapping[str, bytes], Sequence[Mapping[str, Any]]]


def _held(connection: Connection, run_id: str, recorded: RecordedShard) -> _Held:
    """What the tables hold of a shard: content of those of items, totals, rows of files."""
    plan_for_any_run(connection)
    rows = range(recorded.start, recorded.stop)
    content = {
        table.name: stored_content(connection, table, _covered(table), run_id, rows)
        for table in OF_ITEMS
    }
    packed = [type_coerce(shard_aggregate.c[name], LargeBinary).label(name) for name in _TOTALS]
    files, totals = (
        connection.execute(
            select(*columns).where(table.c.run_id == run_id, table.c.shard == recorded.index)
        )
        .mappings()
        .all()
        for table, columns in ((result_file, list(result_file.c)), (shard_aggregate, packed))
    )
    return content, dict(totals[0]) if totals else {}, [dict(file) for file in files]


def _counts(connection: Connection, run_id: str, recorded: RecordedShard) -> tuple[int, ...]:
    """Items that the tables hold of a shard: explained, failed."""
    counts = (
        select(func.count())
        .where(table.c.run_id == run_id, table.c.idx.between(recorded.start, recorded.stop - 1))
        .scalar_subquery()
        for table in (item, failure)
    )
    return tuple(connection.execute(select(*counts)).one())
