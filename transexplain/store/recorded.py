"""Reads runs and shards exactly as stored, for manifests and for `verify`."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, select

from transexplain.store import parts
from transexplain.store.database import Database
from transexplain.store.part_reading import Part
from transexplain.store.runs import require
from transexplain.store.schema import item, run, shard


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
    digest: str | None  #: of what was saved; None: nothing was
    environment: Mapping[str, Any] | None  #: of who saved it


def recorded_run(db: Database, run_id: str) -> RecordedRun:
    """The run with exactly this id; raises ConfigurationError where there is none."""
    names = RecordedRun.__dataclass_fields__
    with db.read() as connection:
        require(connection, run_id)
        query = select(*(run.c[name].label(name) for name in names)).where(run.c.id == run_id)
        return RecordedRun(**connection.execute(query).mappings().one())


def recorded_shards(
    db: Database, run_id: str, only: Collection[int] | None = None
) -> list[RecordedShard]:
    """The shards of a run, or `only` some of them, by index."""
    columns = [shard.c[name].label(name) for name in RecordedShard.__dataclass_fields__]
    query = select(*columns).where(shard.c.run_id == run_id).order_by(shard.c.index)
    if only is not None:
        query = query.where(shard.c.index.in_(sorted(only)))
    with db.read() as connection:
        return [RecordedShard(**row) for row in connection.execute(query).mappings()]


def failure_kinds(db: Database, run_id: str) -> dict[str, int]:
    """Failed items by kind."""
    query = (
        select(item.c.error_kind, func.count())
        .where(item.c.run_id == run_id)
        .group_by(item.c.error_kind)
    )
    with db.read() as connection:
        return {str(kind): int(count) for kind, count in connection.execute(query)}


def explained_rows(
    db: Database, run_id: str, rows: range | None = None
) -> Iterator[tuple[int, str]]:
    """(row, item id) of every item that was explained, by row; of these `rows` alone if given.

    Read as the iterator advances, never all at once.
    """

    def named(part: Part) -> list[tuple[int, str]]:
        every = zip(part.rows.tolist(), part.ids, strict=True)
        return [(row, name) for row, name in every if rows is None or row in rows]

    for some in parts.read(db, run_id, named, rows=rows):
        yield from some


def workers_of(shards: Collection[RecordedShard]) -> int:
    """How many processes worked on the shards last."""
    return len({one.worker for one in shards if one.worker is not None})
