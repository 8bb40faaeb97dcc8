"""Driving again what was given up: dead or cancelled shards, and those with items that failed."""

from sqlalchemy import ColumnElement, or_, select, update

from transexplain.store.database import Database
from transexplain.store.runs import require
from transexplain.store.schema import item, run, shard

#: failures that lie in the circumstances rather than in the data; another try may pass
PASSING_KINDS = ("model-error", "out-of-memory", "quarantined")
_GIVEN_UP = shard.c.state.in_(("dead", "cancelled"))


def redrive(db: Database, run_id: str) -> int:
    """Queue the dead and the cancelled shards again, attempts forgotten; returns how many.

    The run is reopened. A cancelled run stays cancelled: 0. Raises ConfigurationError for an
    unknown run.
    """
    return _again(db, run_id, _GIVEN_UP)


def retry_failed(db: Database, run_id: str) -> int:
    """As `redrive`, and the saved shards, too, that hold failures of `PASSING_KINDS`.

    Their results stay readable until the new ones replace them as a whole.
    """
    holding = select(item.c.shard).where(
        item.c.run_id == run_id, item.c.error_kind.in_(PASSING_KINDS)
    )
    failed = (shard.c.state == "done") & shard.c.index.in_(holding)
    return _again(db, run_id, or_(_GIVEN_UP, failed))


def _again(db: Database, run_id: str, which: ColumnElement[bool]) -> int:
    with db.begin() as connection:
        if require(connection, run_id, lock=True).state == "cancelled":
            return 0
        again = connection.execute(
            update(shard)
            .where(shard.c.run_id == run_id, which)
            .values(
                state="queued",
                attempt=0,
                fruitless=0,
                lease_until=None,
                breadcrumb=None,
                suspects=None,
                explained=0,  # what is to be done again is not done: progress counts by this
                failed=0,
            )
        )
        if again.rowcount:
            connection.execute(
                update(run).where(run.c.id == run_id).values(state="running", finished=None)
            )
        return again.rowcount
