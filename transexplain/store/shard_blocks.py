"""Makes the shards of large runs in blocks, while work has begun: a plan writes only the first.

What is left to be made is one row of `pending_shards`, which goes with the last block. Shards that
are planned and not made count wherever shards are counted, and a run is not over before they are
made and done.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass

from sqlalchemy import (
    ColumnElement,
    Connection,
    ScalarSelect,
    delete,
    func,
    insert,
    select,
    update,
)

from transexplain.store.database import Database
from transexplain.store.schema import pending_shards, run, shard
from transexplain.types.plans import Shard, ShardCut

#: shards that are made at once: SQLite has one writer, and workers wait for it
BLOCK = 4096
#: the next block is made when about so many of those that are made wait to be claimed
LOW = 1024
_FRESH = {"state": "queued", "attempt": 0, "token": 0, "explained": 0, "failed": 0}


@dataclass(frozen=True, kw_only=True, slots=True)
class Pending:
    """Shards of a run that are planned and not made; none, by default."""

    first: int = 0  #: index of the first of them
    start: int = 0  #: its first row
    stop: int = 0  #: row after the last of the last one
    size: int = 1  #: rows of each but the last

    @property
    def shards(self) -> int:
        """How many they are."""
        return -(-self.rows // self.size)

    @property
    def rows(self) -> int:
        """How many rows of the data they have together."""
        return self.stop - self.start


def begin(connection: Connection, run_id: str, cut: Sequence[Shard]) -> None:
    """Write the first block of a new run's shards, and what is left; all that is no `ShardCut`."""
    most = BLOCK if isinstance(cut, ShardCut) else len(cut)
    insert_shards(connection, run_id, cut[:most])
    if isinstance(cut, ShardCut) and len(cut) > most:
        left = Pending(first=most, start=most * cut.size, stop=cut.rows, size=cut.size)
        connection.execute(insert(pending_shards).values(run_id=run_id, **asdict(left)))


def make(db: Database, run_id: str, seen: int | None = None) -> bool:
    """Make the next block of a run's shards; False: there is none, or the run is over.

    Who has `seen` the index of the first shard to be made wants that block and no later one, and
    does not wait for another process that may be making it.
    """
    with db.begin() as connection:
        going = select(run.c.id).where(run.c.id == run_id, run.c.state == "running")
        # the run first, as whoever cancels it: no shard is made after that
        locked = going.with_for_update(key_share=True, skip_locked=seen is not None)
        query = select(*_COLUMNS).where(pending_shards.c.run_id == run_id)
        if connection.execute(locked).one_or_none() is None:
            return False
        row = connection.execute(query).one_or_none()
        if row is None or (seen is not None and row.first != seen):
            return False
        left = Pending(**row._mapping)
        cut = ShardCut(rows=left.stop, size=left.size)
        insert_shards(connection, run_id, cut[left.first : left.first + BLOCK])
        first = left.first + BLOCK
        where = pending_shards.c.run_id == run_id
        if first >= len(cut):
            connection.execute(delete(pending_shards).where(where))
        else:
            values = {"first": first, "start": first * left.size}
            connection.execute(update(pending_shards).where(where).values(values))
    return True


def refill(db: Database, run_ids: Collection[str]) -> None:
    """Make the next block of those of these runs that have few shards waiting."""
    with db.read() as connection:
        due = [
            (run_id, left.first)
            for run_id, left in pending(connection, run_ids).items()
            if _queued(connection, run_id) < LOW
        ]
    for run_id, first in due:
        make(db, run_id, first)


def pending(connection: Connection, run_ids: Collection[str]) -> Mapping[str, Pending]:
    """What is planned and not made of these runs; run id -> its shards, of those that have any."""
    query = select(pending_shards.c.run_id, *_COLUMNS)
    waiting: dict[str, Pending] = {}
    names = list(run_ids)
    for start in range(0, len(names), _IDS):
        some = query.where(pending_shards.c.run_id.in_(names[start : start + _IDS]))
        for row in connection.execute(some).mappings():
            values = dict(row)
            name = values.pop("run_id")
            waiting[name] = Pending(**values)
    return waiting


_IDS = 500  #: of one statement: databases limit its parameters
_COLUMNS = tuple(pending_shards.c[name] for name in Pending.__dataclass_fields__)


def first_pending(run_id: str | ColumnElement[str]) -> ScalarSelect[int]:
    """The index of the first shard of a run that is to be made; NULL: all are there."""
    query = select(pending_shards.c.first).where(pending_shards.c.run_id == run_id)
    return query.scalar_subquery()


def _queued(connection: Connection, run_id: str) -> int:
    """Shards that wait to be claimed, counted up to `LOW`."""
    some = (
        select(shard.c.index)
        .where(shard.c.run_id == run_id, shard.c.state == "queued")
        .limit(LOW)
        .subquery()
    )
    return int(connection.execute(select(func.count()).select_from(some)).scalar_one())


def insert_shards(
    connection: Connection, run_id: str, some: Sequence[Shard], token: int = 0
) -> None:
    """Write shards that nobody holds; with a `token` above 0 each was claimed before."""
    fresh = {"run_id": run_id, **_FRESH, "token": token}
    if rows := [{**fresh, **asdict(record)} for record in some]:
        connection.execute(insert(shard), rows)
