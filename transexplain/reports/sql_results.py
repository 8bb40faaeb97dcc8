"""Writes what a run's report says into the tables that people ask by SQL.

Whoever closes a run calls `close`, whoever makes a report of one that is over calls `keep` with
what it has computed anyway. Neither fails: the rows can be made again at any time.
"""

import logging

from transexplain.analysis.groups.shard_aggregate import ShardAggregate
from transexplain.reports.report_records import Summary
from transexplain.reports.sql_rows import sql_rows
from transexplain.reports.summary import summarised
from transexplain.store import result_rows, runs, shard_messages
from transexplain.store.database import Database

log = logging.getLogger(__name__)

#: seconds between two looks for runs that nobody wrote rows of, whoever looks
EVERY = 300.0
#: seconds that who closed a run has to write its rows, and after which nobody looks any more
PATIENCE, GIVEN_UP = 120.0, 7_200.0


def write(db: Database, run_id: str) -> bool:
    """Compute and write the rows of the run with exactly this id; False: there can be none.

    An evaluation has none, nor has a run that is not over. Takes as long as its report without
    pictures. Raises ConfigurationError for an unknown run, and what a report raises.
    """
    run = runs.get(db, run_id)
    if run.plan.task == "evaluation" or run.state == "running":
        return False
    summary, total = summarised(db, run_id, gallery=0)
    return result_rows.replace(db, run_id, sql_rows(summary, total))


def keep(db: Database, summary: Summary, total: ShardAggregate) -> None:
    """Write the rows of a report's run, if it is over; what goes wrong is logged.

    `summary` is the whole one, not redacted; `total` are the totals that it was made from.
    """
    run_id = summary.audited.run_id
    if summary.audited.state == "running":
        return
    try:
        result_rows.replace(db, run_id, sql_rows(summary, total))
    except Exception as error:  # noqa: BLE001 - the report is worth as much without them
        _not_written(run_id, error)


def close(db: Database, run_id: str) -> None:
    """Compute and write the rows of a run that was closed; what goes wrong is logged."""
    try:
        write(db, run_id)
    except Exception as error:  # noqa: BLE001 - the run is as good without them
        _not_written(run_id, error)


def close_forgotten(db: Database) -> list[str]:
    """Write the rows of runs whose closer did not, because it died, say; returns their ids.

    One process does so at a time, and none within `EVERY` seconds of another. Runs that have been
    over for more than `GIVEN_UP` seconds are left to `transexplain db results`.
    """
    if not shard_messages.take_task(db, "results", EVERY):
        return []
    found = result_rows.without_rows(db, over_for=PATIENCE, at_most=GIVEN_UP)
    for run_id in found:
        close(db, run_id)
    return found


def _not_written(run_id: str, error: Exception) -> None:
    """The kind of the error alone: its text may quote what is not to be in a log."""
    log.warning(
        "run %s: its results are not in the SQL tables (%s); `transexplain report %s` writes them",
        run_id,
        type(error).__name__,
        run_id,
    )
