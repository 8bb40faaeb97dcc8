"""Deleting old runs: what may go, and whole months at once where PostgreSQL has partitions."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlalchemy import Connection, Select, delete, func, select, union, update

from transexplain.store import partitions
from transexplain.store.columns import DatabaseTime
from transexplain.store.database import Database, plan_for_any_run
from transexplain.store.partitions import Month
from transexplain.store.schedule_tables import schedule_fire
from transexplain.store.schema import item, run, shard

_ROWS = 5_000  # items of one transaction: SQLite has one writer, and workers wait for it
_IDS = 500  # of one statement: databases limit its parameters


@dataclass(frozen=True, kw_only=True, slots=True)
class Old:
    """A run that may go."""

    id: str
    name: str
    finished: float  #: seconds since the epoch
    items: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Pruned:
    """What went."""

    runs: Sequence[Old] = field(default=())
    months: Sequence[Month] = field(default=())  #: whose partitions were dropped
    freed: int = 0  #: bytes that the dropped partitions had

    @property
    def items(self) -> int:
        """Items of the runs."""
        return sum(one.items for one in self.runs)


def old_runs(db: Database, older_than: float, keep_last: int = 0) -> list[Old]:
    """Runs that are over for `older_than` seconds or more and that nothing needs, oldest first.

    Kept are the newest `keep_last` of each audit's name, and what schedules compare with or still
    have to post. A running one is never old.
    """
    with db.read() as connection:
        return _old(connection, older_than, keep_last)


def prune(db: Database, older_than: float, keep_last: int = 0) -> Pruned:
    """Delete the `old_runs`, and with PostgreSQL the partitions of months that become empty.

    What was interrupted goes on at the next call; a run is deleted as a whole or shows as
    cancelled. Raises ConfigurationError where PostgreSQL's role does not own the tables.
    """
    gone: list[Old] = []
    dropped: list[Month] = []
    freed = 0
    if partitions.supported(db):
        with db.read() as connection:
            partitions.require_owner(connection)
            past = _past(connection)
            full = {one.id for one in _old(connection, older_than, keep_last)}
            empty = [month for month in past if _ids(connection, month) <= full]
        for month in empty:
            done = _drop_month(db, month, older_than, keep_last)
            if done is not None:
                gone += done.runs
                dropped.append(month)
                freed += done.freed
    gone += [one for one in old_runs(db, older_than, keep_last) if _delete(db, one)]
    return Pruned(runs=gone, months=dropped, freed=freed)


def _old(connection: Connection, older_than: float, keep_last: int) -> list[Old]:
    rank = func.row_number().over(
        partition_by=run.c.name, order_by=(run.c.created.desc(), run.c.id.desc())
    )
    over = select(run.c.id, run.c.name, run.c.state, run.c.finished, rank.label("rank")).subquery()
    query = (
        select(over.c.id, over.c.name, over.c.finished)
        .where(
            over.c.state.in_(("done", "cancelled")),
            over.c.finished <= DatabaseTime() - older_than,
            over.c.rank > keep_last,
            over.c.id.not_in(_needed()),
        )
        .order_by(over.c.finished, over.c.id)
    )
    found = connection.execute(query).all()
    items = _items(connection, [row.id for row in found])
    return [
        Old(id=row.id, name=row.name, finished=row.finished, items=items.get(row.id, 0))
        for row in found
    ]


def _needed() -> Select[tuple[str]]:
    """Ids that schedules need: of a verdict to be posted, of the runs that will be compared."""
    fired = schedule_fire.alias()
    made = select(fired.c.schedule, fired.c.at).join(run, run.c.id == fired.c.run_id)
    last = (
        made.with_only_columns(fired.c.schedule, func.max(fired.c.at).label("at"))
        .where(run.c.state != "cancelled")
        .group_by(fired.c.schedule)
        .subquery()
    )
    newest = select(schedule_fire.c.run_id).join(
        last,
        (last.c.schedule == schedule_fire.c.schedule) & (last.c.at == schedule_fire.c.at),
    )
    going = schedule_fire.join(run, run.c.id == schedule_fire.c.run_id)
    unposted = schedule_fire.c.post == "waiting"
    parts = union(
        newest,
        select(schedule_fire.c.run_id).where(unposted),
        select(schedule_fire.c.previous).where(unposted),
        select(schedule_fire.c.previous).select_from(going).where(run.c.state == "running"),
    ).subquery()
    return select(parts.c.run_id).where(parts.c.run_id.is_not(None))


def _items(connection: Connection, ids: Sequence[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for start in range(0, len(ids), _IDS):
        query = (
            select(shard.c.run_id, func.sum(shard.c.explained + shard.c.failed))
            .where(shard.c.run_id.in_(ids[start : start + _IDS]))
            .group_by(shard.c.run_id)
        )
        found |= {run_id: int(count) for run_id, count in connection.execute(query)}
    return found


def _past(connection: Connection) -> list[Month]:
    """Months with partitions that no new run's id begins with any more."""
    now = partitions.this_month(connection)
    return [month for month in partitions.months(connection) if month < now]


def _ids(connection: Connection, month: Month) -> set[str]:
    inside = (run.c.id >= month.name, run.c.id < month.next.name)
    return set(connection.execute(select(run.c.id).where(*inside)).scalars())


def _drop_month(db: Database, month: Month, older_than: float, keep_last: int) -> Pruned | None:
    """Drop a month's partitions and runs; None where one of its runs is needed by now."""

    def work(connection: Connection) -> Pruned | None:
        if month not in partitions.months(connection):  # another call was faster
            return None
        old = {one.id: one for one in _old(connection, older_than, keep_last)}
        ids = _ids(connection, month)
        if not ids <= old.keys():
            return None
        freed = partitions.drop(connection, month)
        inside = (run.c.id >= month.name, run.c.id < month.next.name)
        plan_for_any_run(connection)
        connection.execute(delete(run).where(*inside))
        return Pruned(runs=[old[one] for one in sorted(ids)], months=[month], freed=freed)

    return partitions.exclusively(db, work)


def _delete(db: Database, old: Old) -> bool:
    """Delete one run, its items in transactions of bounded size; False: it goes on or is gone."""
    with db.begin() as connection:
        taken = connection.execute(
            update(run)
            .where(run.c.id == old.id, run.c.state != "running", run.c.finished == old.finished)
            .values(state="cancelled")  # so that nobody resumes or reads it as done meanwhile
        )
        if taken.rowcount == 0:
            return False
        last = select(func.max(shard.c.stop)).where(shard.c.run_id == old.id)
        stop = connection.execute(last).scalar_one() or 0
    # by their key: following the shards' keys would search all of the run's items for each
    for start in range(0, stop, _ROWS):
        with db.begin() as connection:
            plan_for_any_run(connection)
            connection.execute(
                delete(item).where(
                    item.c.run_id == old.id, item.c.index >= start, item.c.index < start + _ROWS
                )
            )
    with db.begin() as connection:
        plan_for_any_run(connection)
        return connection.execute(delete(run).where(run.c.id == old.id)).rowcount == 1
