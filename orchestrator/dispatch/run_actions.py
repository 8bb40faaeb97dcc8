"""Cancels a run and queues shards once more, for the verbs and the server's forms."""

from collections.abc import Callable

from transexplain.analysis.groups.shard_aggregate import check_versions
from transexplain.errors import ConfigurationError
from transexplain.settings import Settings
from transexplain.store import queueing, run_totals, runs, shards
from transexplain.store.database import Database


def cancel(db: Database, run_id: str, close: Callable[[Database, str], object]) -> bool:
    """Cancel a run, whose workers stop before their next batch; False: it was over already.

    `close` writes its rows for SQL, as `sql_results.close`, where something was saved until now.
    """
    done = runs.cancel(db, run_id)
    if done and runs.progress(db, run_id).items_done:
        close(db, run_id)
    return done


def resumable(db: Database, run_id: str) -> str:
    """The full id of a run that can continue: not cancelled or paused, its saved shards readable.

    Raises ConfigurationError where it cannot.
    """
    run = runs.get(db, run_id)
    if run.state == "cancelled":
        raise ConfigurationError(f"run {run.id} was cancelled; start a new one")
    if runs.progress(db, run.id).paused:
        raise ConfigurationError(
            f"run {run.id} is paused; `transexplain unpause {run.id}` lets workers go on with "
            "it, and then it can be resumed or tried again here"
        )
    try:
        check_versions(run_totals.aggregate_versions(db, run.id))
    except ConfigurationError as error:
        raise ConfigurationError(
            f"run {run.id} cannot go on, it was begun with older software: {error}, and end this "
            f"one with `transexplain cancel {run.id}`"
        ) from error
    return run.id


def queue_again(
    db: Database, run_id: str, *, failed: bool = False, files_lost: bool = False
) -> int:
    """Queue dead and damaged shards and, with `failed`, those with failed items; how many.

    Raises as `shards.redrive`.
    """
    return (shards.retry_failed if failed else shards.redrive)(db, run_id, files_lost=files_lost)


def send_hints(db: Database, settings: Settings, run_id: str) -> int:
    """Send messages for free shards of a run, at most `queue.BOUND`; returns how many.

    Sweeps send those that were lost and the others of a large run: a broker is no store. Raises
    BrokerError.
    """
    from orchestrator.dispatch import queue  # as slow
    from workers.queue_names import queue_of

    indices = queueing.take(db, {run_id: None}, queue.BOUND, patience=0.0).get(run_id, [])
    name = queue_of(settings, runs.get(db, run_id).plan)
    queue.send_messages(settings, run_id, indices, name)
    return len(indices)
