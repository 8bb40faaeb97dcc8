"""Watching a run that others work on, until it ends."""

import threading
import time
from collections.abc import Callable

from orchestrator.dispatch import queue
from transexplain.errors import BrokerError
from transexplain.settings import Settings
from transexplain.store import runs
from transexplain.store.database import Database

_POLL = 0.5
#: of the time at most this share is spent asking: a run of a million shards takes a second to count
_ASKING = 0.2


def follow(
    db: Database,
    run_id: str,
    settings: Settings,
    on_items: Callable[[int], None],
    warn: Callable[[str], None],
    stop: threading.Event | None = None,
) -> None:
    """Watch a run until it ends, sweeping: lost messages are sent again, the run is closed.

    Where nothing was finished for the length of a lease and nobody holds a shard, `warn` says so;
    also that the broker is away, which ends nothing.
    `stop` ends the watching with KeyboardInterrupt; workers go on.
    """
    stop = stop or threading.Event()
    state = runs.progress(db, run_id)
    seen, moved = state.items_done + state.items_failed, time.monotonic()
    pause = _POLL
    while state.state == "running":
        if stop.wait(pause):
            raise KeyboardInterrupt
        _sweep(db, settings, warn)
        asked = time.monotonic()
        state = runs.progress(db, run_id)
        pause = max(_POLL, (time.monotonic() - asked) / _ASKING)
        finished = state.items_done + state.items_failed
        if finished > seen:
            on_items(finished - seen)
            seen, moved = finished, time.monotonic()
        elif time.monotonic() - moved > settings.lease_seconds:
            if not state.workers and state.state == "running":
                warn("no worker holds a shard of this run; start one with `transexplain worker`")
            moved = time.monotonic()


def _sweep(db: Database, settings: Settings, warn: Callable[[str], None]) -> None:
    try:
        queue.sweep(db, settings)
    except BrokerError as error:
        warn(str(error))
