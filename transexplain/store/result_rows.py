"""Writes and deletes the rows of `result_tables`, and finds runs that have none.

A run that is over may have its rows, one that runs has none: reopening a run deletes them.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, delete, exists, insert, select

from transexplain.store.columns import DatabaseTime
from transexplain.store.database import Database
from transexplain.store.result_tables import RESULT_TABLES, run_result
from transexplain.store.runs import require
from transexplain.store.schema import run, shard

#: name of a table -> its rows without run and ordinal, in order
Rows = Mapping[str, Sequence[Mapping[str, Any]]]


def replace(db: Database, run_id: str, rows: Rows, finished: float | None = None) -> bool:
    """Put `rows` in the place of the run's rows, in one transaction; False: the run is not over.

    Also False where it did not end at `finished` (seconds since the epoch), if that is given: it
    was reopened since the rows were computed, and ended again. Rows of one table all have the same
    columns. Raises ConfigurationError for an unknown run.
    """
    with db.begin() as connection:
        # who writes the same run's rows meanwhile waits, and then replaces these
        found = require(connection, run_id, lock=True)
        if found.state == "running" or finished not in (None, found.finished):
            return False
        forget(connection, run_id)
        now = connection.execute(select(DatabaseTime())).scalar_one()
        for table in RESULT_TABLES:
            single = table is run_result
            keyed = [
                {"run_id": run_id, **row, **({"written": now} if single else {"ordinal": place})}
                for place, row in enumerate(rows[table.name])
            ]
            if keyed:
                connection.execute(insert(table), keyed)
    return True


def forget(connection: Connection, run_id: str) -> None:
    """Delete the run's rows, as part of a transaction."""
    for table in RESULT_TABLES:
        connection.execute(delete(table).where(table.c.run_id == run_id))


def over(
    db: Database, *, again: bool = False, at_least: float = 0.0, at_most: float = math.inf
) -> list[str]:
    """Ids of runs that are over, with a saved shard, and have no rows; the oldest first.

    With `again` also those that have. Only runs that have been over for `at_least` seconds, and not
    for more than `at_most`.
    """
    saved = exists().where(shard.c.run_id == run.c.id, shard.c.state == "done")
    query = (
        select(run.c.id)
        .where(run.c.state != "running", run.c.finished <= DatabaseTime() - at_least, saved)
        .order_by(run.c.finished, run.c.id)
    )
    if not again:
        query = query.where(~exists().where(run_result.c.run_id == run.c.id))
    if math.isfinite(at_most):
        query = query.where(run.c.finished >= DatabaseTime() - at_most)
    with db.read() as connection:
        return list(connection.scalars(query))
