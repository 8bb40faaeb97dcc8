"""Reads runs and shards exactly as stored, for manifests and for `verify`."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from heapq import merge
from typing import Any

from sqlalchemy import case, func, select

from transexplain.store import parts
from transexplain.store.database import Database
from transexplain.store.part_reading import Part
from transexplain.store.runs import require
from transexplain.store.schema import item, run, shard
from transexplain.store.stored_rows import pages


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordedRun:
    """A run's row; the plan as the document that was stored, not as this version reads it."""

    id: str
    state: str
    created: float  #: seconds since the epoch
    finished: float | None
    plan: Mapping[str, Any]
    plan_digest: str
    environment: Mapping[str, Any] | None  #: of who planned it; None: written by an older version


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordedShard:
    """A shard's row."""

    index: int
    start: int
    stop: int
    state: str
    attempt: int
    worker: str | None
    seconds: float | None
    explained: int
    failed: int
    digest: str | None  #: of what was saved; None: nothing was, or by an older version
    environment: Mapping[str, Any] | None  #: of who saved it


def recorded_run(db: Database, run_id: str) -> RecordedRun:
    """The run with exactly this id; raises ConfigurationError where there is none."""
    names = RecordedRun.__dataclass_fields__
    with db.read() as connection:
        require(connection, run_id)
        query = select(*(run.c[name].label(name) for name in names)).where(run.c.id == run_id)
        return RecordedRun(**connection.execute(query).mappings().one())


def recorded_shards(db: Database, run_id: str) -> list[RecordedShard]:
    """Every shard by index."""
    columns = [shard.c[name].label(name) for name in RecordedShard.__dataclass_fields__]
    query = select(*columns).where(shard.c.run_id == run_id).order_by(shard.c.index)
    with db.read() as connection:
        return [RecordedShard(**row) for row in connection.execute(query).mappings()]


def failure_kinds(db: Database, run_id: str) -> dict[str, int]:
    """Failed items by kind."""
    query = (
        select(item.c.error_kind, func.count())
        .where(item.c.run_id == run_id, item.c.error_kind.is_not(None))
        .group_by(item.c.error_kind)
    )
    with db.read() as connection:
        return {str(kind): int(count) for kind, count in connection.execute(query)}


def stored_counts(db: Database, run_id: str) -> dict[int, tuple[int, int]]:
    """Shard -> its items: explained, and failed."""
    failed = func.sum(case((item.c.error_kind.is_not(None), 1), else_=0))
    query = (
        select(item.c.shard, func.count(), failed)
        .where(item.c.run_id == run_id)
        .group_by(item.c.shard)
    )
    with db.read() as connection:
        rows = connection.execute(query).all()
    found = {index: (int(count) - int(wrong), int(wrong)) for index, count, wrong in rows}
    for index, count in parts.explained(db, run_id).items():
        explained, wrong = found.get(index, (0, 0))
        found[index] = (explained + count, wrong)
    return found


def stored_rows(db: Database, run_id: str, start: int, stop: int) -> set[int]:
    """Rows of the dataset, from `start` to `stop`, that have an item.

    Raises DamagedRowError where a part of them cannot be read.
    """
    query = select(item.c.index).where(
        item.c.run_id == run_id, item.c.index >= start, item.c.index < stop
    )
    with db.read() as connection:
        found = set(connection.execute(query).scalars())
    return found | {row for row, _ in _of_parts(db, run_id, range(start, stop))}


def explained_rows(
    db: Database, run_id: str, rows: range | None = None
) -> Iterator[tuple[int, str]]:
    """(row, item id) of every item that was explained, by row; of these `rows` alone if given.

    Read as the iterator advances, never all at once.
    """
    query = select(item.c.index, item.c.item_id).where(
        item.c.run_id == run_id, item.c.error_kind.is_(None)
    )
    if rows is not None:
        query = query.where(item.c.index >= rows.start, item.c.index < rows.stop)
    old = ((row._mapping["index"], row.item_id) for row in pages(db, query, (item.c.index,)))
    return merge(old, _of_parts(db, run_id, rows))


def _of_parts(db: Database, run_id: str, rows: range | None) -> Iterator[tuple[int, str]]:
    """(row, item id) of what lies in parts."""

    def named(part: Part) -> list[tuple[int, str]]:
        every = zip(part.rows.tolist(), part.ids, strict=True)
        return [(row, name) for row, name in every if rows is None or row in rows]

    for some in parts.read(db, run_id, named, rows=rows):
        yield from some


def workers_of(shards: Collection[RecordedShard]) -> int:
    """How many processes worked on the shards last."""
    return len({one.worker for one in shards if one.worker is not None})
