"""What the devices of a run did with their time, by worker, as saved shards carry it."""

from sqlalchemy import ColumnElement, Connection, Text, func, or_, select, type_coerce

from transexplain.store.columns import DatabaseTime, json_of
from transexplain.store.database import Database
from transexplain.store.schema import run, shard
from transexplain.types.device_time import BUSY, NO_WORK, STAGES, DeviceTime

_NAMES = (BUSY, *STAGES, NO_WORK)


def device_times(db: Database, run_id: str) -> list[DeviceTime]:
    """Each worker's time on the saved shards of one run, by name.

    Shards that an older version saved carry none. Raises DatabaseError as `Database.read`.
    """
    with db.read() as connection:
        return _times(connection, shard.c.run_id == run_id)


def recent_device_times(connection: Connection, recent: float) -> list[DeviceTime]:
    """The same of all runs that run, or ended within so many seconds."""
    current = or_(run.c.state == "running", run.c.finished > DatabaseTime() - recent)
    return _times(connection, shard.c.run_id.in_(select(run.c.id).where(current)))


def _times(connection: Connection, which: ColumnElement[bool]) -> list[DeviceTime]:
    document = json_of(connection, shard.c.environment)
    has_times = type_coerce(shard.c.environment, Text).contains('"device"')
    sums = [func.sum(document[("device", name)].as_float()).label(name) for name in _NAMES]
    query = (
        select(shard.c.worker, *sums)
        .where(which, shard.c.state == "done", has_times)
        .group_by(shard.c.worker)
        .order_by(shard.c.worker)
    )
    return [
        DeviceTime(
            worker=str(row["worker"]),
            seconds={name: float(row[name] or 0.0) for name in _NAMES},
        )
        for row in connection.execute(query).mappings()
    ]
