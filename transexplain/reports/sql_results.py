"""Writes what a run's report says into the tables that people ask by SQL.

Whoever closes a run calls `close`, a worker `close_apart`, and whoever makes a report of one that
is over calls `keep` with what it has computed anyway. None of them fails: the rows can be made
again at any time.
"""

import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable

from transexplain.analysis.groups.shard_aggregate import ShardAggregate
from transexplain.reports.report_records import Summary
from transexplain.reports.sql_rows import sql_rows
from transexplain.reports.summary import summarised
from transexplain.store import result_rows, runs, shard_messages
from transexplain.store.database import Database
from transexplain.store.revisions import open_database

log = logging.getLogger(__name__)

#: seconds between two looks for runs that nobody wrote rows of, whoever looks
EVERY = 300.0
#: seconds that who closed a run has to write its rows, and after which nobody looks any more
PATIENCE, GIVEN_UP = 120.0, 7_200.0
_LOOK = 0.2  #: seconds between two looks whether a worker is to end
_NICE = 10  #: below what explains items


def write(db: Database, run_id: str) -> bool:
    """Compute and write the rows of the run with exactly this id; False: there can be none.

    An evaluation has none, nor has a run that is not over or not as it was saved. Takes as long as
    its report without pictures. Raises ConfigurationError for an unknown run, and what a report
    raises.
    """
    run = runs.get(db, run_id)
    if run.plan.task == "evaluation" or run.state == "running":
        return False
    summary, total = summarised(db, run_id, gallery=0)
    if not summary.whole:
        return False
    return result_rows.replace(db, run_id, sql_rows(summary, total), summary.audited.finished)


def keep(db: Database, summary: Summary, total: ShardAggregate) -> None:
    """Write the rows of a report's run, if it is over and whole; what goes wrong is logged.

    `summary` is the whole one, not redacted; `total` are the totals that it was made from.
    """
    run_id = summary.audited.run_id
    if summary.audited.state == "running" or not summary.whole:
        return
    try:
        result_rows.replace(db, run_id, sql_rows(summary, total), summary.audited.finished)
    except Exception as error:  # noqa: BLE001 - the report is worth as much without them
        _not_written(run_id, type(error).__name__)


def close(db: Database, run_id: str) -> bool:
    """Compute and write the rows of a run that was closed; what goes wrong is logged.

    Returns whether there are rows now.
    """
    try:
        return write(db, run_id)
    except Exception as error:  # noqa: BLE001 - the run is as good without them
        _not_written(run_id, type(error).__name__)
        return False


#: called in a process that is begun here, before it works; it is sent there by pickle
Prepare = Callable[[], None]


def close_apart(
    database_url: str, run_id: str, stop: threading.Event, prepare: Prepare | None = None
) -> None:
    """As `close`, in a process of its own that stands back, for as long as `stop` is not set.

    A report of 10^6 items takes a minute and a gigabyte: in the process of a worker it would keep
    threads that feed a device waiting, and the memory would stay. `prepare` says how it logs.
    """
    apart = multiprocessing.get_context("spawn").Process(
        target=_close_here, args=(database_url, run_id, prepare), name=f"results of {run_id}"
    )
    try:
        apart.start()
        while apart.is_alive() and not stop.is_set():
            apart.join(_LOOK)
        if apart.is_alive():
            log.info("run %s: its rows for SQL are left to others, as this worker ends", run_id)
            apart.terminate()
            apart.join()
            return
    except Exception as error:  # noqa: BLE001 - no process can be started, say
        _not_written(run_id, type(error).__name__)
        return
    if apart.exitcode:
        _not_written(run_id, f"its process ended with status {apart.exitcode}")


def _log_warnings() -> None:
    logging.basicConfig(level=logging.WARNING)


def _close_here(database_url: str, run_id: str, prepare: Prepare | None) -> None:
    """The work of the process of `close_apart`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the worker, which ends this
    os.nice(_NICE)
    (prepare or _log_warnings)()
    with open_database(database_url) as db:
        close(db, run_id)


def close_forgotten(db: Database) -> list[str]:
    """Write the rows of runs whose closer did not, because it died, say; returns their ids.

    One process does so at a time, and none within `EVERY` seconds of another. Runs that have been
    over for more than `GIVEN_UP` seconds are left to `transexplain db results`.
    """
    if not shard_messages.take_task(db, "results", EVERY):
        return []
    found = result_rows.over(db, at_least=PATIENCE, at_most=GIVEN_UP)
    return [run_id for run_id in found if close(db, run_id)]


def _not_written(run_id: str, reason: str) -> None:
    """Of an error its kind alone: its text may quote what is not to be in a log."""
    log.warning(
        "run %s: its results are not in the SQL tables (%s); `transexplain report %s` writes them",
        run_id,
        reason,
        run_id,
    )
