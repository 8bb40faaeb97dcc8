"""The sweep: messages for shards that nobody holds, as many as the queue lacks; runs are closed.

SQL knows what is left to do; the broker may forget. Any process may sweep, as often as it likes:
a row in SQL lets one at a time do it.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from orchestrator.dispatch import queue
from transexplain.settings import Settings
from transexplain.store import hints, runs
from transexplain.store.database import Database
from workers.app import queue_of

#: seconds between two sweeps, whoever makes them
EVERY = 5.0
#: messages that may wait in the queue because of a sweep
BOUND = 1_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Swept:
    """What one sweep did."""

    sent: int  #: messages
    closed: tuple[str, ...]  #: ids of runs that had nothing left to do


def sweep(db: Database, settings: Settings, *, every: float = EVERY) -> Swept | None:
    """Close runs that are through and top up the queue; None: swept less than `every` seconds ago.

    Raises BrokerError where the broker cannot be reached; runs are closed all the same.
    """
    if not hints.take_duty(db, "sweep", every):
        return None
    closed = tuple(run_id for run_id in hints.exhausted(db) if runs.finalise(db, run_id))
    return Swept(sent=top_up(db, settings, patience=every), closed=closed)


def top_up(db: Database, settings: Settings, *, patience: float = EVERY) -> int:
    """Send as many messages as each queue has fewer than shards wait, up to `BOUND` a queue.

    Returns how many were sent.

    A shard whose message was sent less than `patience` seconds ago gets no other.
    """
    by_queue: dict[str, list[str]] = defaultdict(list)
    for run_id in hints.running(db):
        by_queue[_queue(db, settings, run_id)].append(run_id)
    return sum(
        _top_up_queue(db, settings, name, run_ids, patience) for name, run_ids in by_queue.items()
    )


def _top_up_queue(
    db: Database, settings: Settings, name: str, run_ids: Sequence[str], patience: float
) -> int:
    wanted = hints.waiting(db, run_ids, BOUND)
    missing = wanted - queue.depth(settings, name) if wanted else 0
    if missing <= 0:
        return 0
    chosen = hints.take(db, run_ids, missing, patience)
    for run_id, indices in chosen.items():
        queue.send_messages(settings, run_id, indices, name)
    return sum(map(len, chosen.values()))


@lru_cache(maxsize=4096)
def _queue(db: Database, settings: Settings, run_id: str) -> str:
    """The queue of a run, which never changes."""
    return queue_of(settings, runs.get(db, run_id).plan)
