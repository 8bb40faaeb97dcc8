"""The queue: send hints for shards that nobody holds, and send them again while a run lasts."""

import threading
import time
from collections.abc import Callable, Sequence

from kombu.exceptions import OperationalError

from transexplain.errors import BrokerError
from transexplain.settings import Settings, redact_url
from transexplain.store import runs, shards
from transexplain.store.database import Database
from workers.app import TASK, make_app

_POLL = 0.5


def send_hints(settings: Settings, run_id: str, indices: Sequence[int]) -> None:
    """Send one message (run id, shard index) per shard.

    Raises:
        BrokerError: the broker cannot be reached; the run stays and `resume` sends them again.
    """
    app = make_app(settings)
    try:
        with app.connection_for_write() as connection:
            connection.ensure_connection(max_retries=1, interval_start=0, timeout=5)
            with app.amqp.Producer(connection) as producer:
                for index in indices:
                    app.send_task(TASK, args=(run_id, index), producer=producer, retry=False)
    except (OperationalError, OSError) as error:
        raise BrokerError(
            f"broker {redact_url(settings.broker_url)} cannot be reached: {error}. Check that it "
            "is running and that TRANSEXPLAIN_BROKER_URL names it"
        ) from error
    finally:
        app.close()


def check_broker(settings: Settings) -> None:
    """Raise BrokerError now rather than after a run was written."""
    send_hints(settings, "", ())


def follow(
    db: Database,
    run_id: str,
    settings: Settings,
    on_items: Callable[[int], None],
    warn: Callable[[str], None],
    stop: threading.Event | None = None,
) -> None:
    """Watch a run until it ends, sending hints again for shards that nobody holds.

    The broker may lose messages; where nothing was finished for the length of a lease, what is
    free in SQL is hinted anew. `stop` ends the watching with KeyboardInterrupt; workers go on.
    """
    stop = stop or threading.Event()
    state = runs.progress(db, run_id)
    seen, swept = state.items_done + state.items_failed, time.monotonic()
    while state.state == "running":
        if stop.wait(_POLL):
            raise KeyboardInterrupt
        state = runs.progress(db, run_id)
        finished = state.items_done + state.items_failed
        if finished > seen:
            on_items(finished - seen)
            seen, swept = finished, time.monotonic()
        if not state.states["queued"] and not state.states["running"]:
            runs.finalise(db, run_id)
            return
        if time.monotonic() - swept > settings.lease_seconds:
            if not state.workers:
                warn("no worker holds a shard of this run; start one with `transexplain worker`")
            send_hints(settings, run_id, shards.claimable(db, run_id))
            swept = time.monotonic()
