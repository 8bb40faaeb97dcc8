"""A fleet of two workers on a queue where every second message is invalid."""

import random
import time
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice
from pathlib import Path

from chaos_groups import Group, environment
from command_line_here import run_here
from poisoned_messages import good, poisons
from poisoned_queues import Queue, queue_of
from sqlalchemy import text
from tiny_audit import make_audit

from transexplain.store import runs
from transexplain.store.database import Database
from transexplain.store.revisions import open_database


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What became of the fleet."""

    kinds: int
    sent: Counter[str]  #: reason -> bad messages
    seconds: float  #: until all shards were done and the queue was empty, or it was given up
    shards: dict[str, int]  #: state -> count
    left: int  #: messages on the queue after the workers' end
    deaths: int  #: of workers
    executed: bool  #: whether a message ran code
    refused: dict[str, int]  #: what SQL counts, by reason


def run_fleet(url: str, folder: Path, *, bad: int = 100, seconds: float = 120) -> Figures:
    """Send 100 good messages and `bad` others in a random order to two workers on this broker."""
    prefix = f"te-test-{uuid.uuid4().hex[:10]}"
    spec = make_audit(folder, items=100, shard_size=1, groups=None)
    database = f"sqlite:///{folder / 'store.db'}"
    env = environment(
        folder,
        TRANSEXPLAIN_DATABASE_URL=database,
        TRANSEXPLAIN_BROKER_URL=url,
        TRANSEXPLAIN_QUEUE=prefix,
    )
    marker = folder / "executed"
    run_here(env, folder, "db", "upgrade")
    with (
        queue_of(url, prefix, f"{prefix}.text.cpu") as queue,
        open_database(database) as db,
    ):
        run_here(env, folder, "submit", str(spec))
        queue.purge()  # its messages are sent once more, among the others
        run_id = runs.get(db, "latest").id
        kinds, sent = _fill(queue, run_id, marker, bad)
        began = time.monotonic()
        fleet = [Group(name, env, folder) for name in ("one", "two")]
        try:
            while time.monotonic() < began + seconds:
                if not queue.left() and runs.get(db, run_id).state == "done":
                    break
                time.sleep(0.1)
            took = time.monotonic() - began
        finally:
            for group in fleet:
                group.end()
        return Figures(
            kinds=kinds,
            sent=sent,
            seconds=took,
            shards={state: count for state, count in _states(db, run_id).items() if count},
            left=queue.left(),
            deaths=sum(len(group.lines("another starts in")) for group in fleet),
            executed=marker.exists(),
            refused=_refused(db),
        )


def _fill(queue: Queue, run_id: str, marker: Path, bad: int) -> tuple[int, Counter[str]]:
    """Put the good and the bad on the queue; how many kinds of these, and how many by reason."""
    shared = poisons(marker, run_id)
    kinds: list[tuple[str, Callable[[], None]]] = [
        *((one.reason, partial(queue.put, one.sent)) for one in shared.values()),
        *((reason, partial(queue.put_own, kind)) for kind, reason in queue.own.items()),
    ]
    chosen = list(islice(cycle(kinds), max(bad, len(kinds))))
    sends = [send for _, send in chosen]
    sends += [partial(queue.put, good(run_id, index)) for index in range(100)]
    random.Random(18).shuffle(sends)
    for send in sends:
        send()
    return len(kinds), Counter(reason for reason, _ in chosen)


def _states(db: Database, run_id: str) -> dict[str, int]:
    return dict(runs.progress(db, run_id).states)


def _refused(db: Database) -> dict[str, int]:
    with db.read() as connection:
        found = connection.execute(text("SELECT reason, messages FROM dead_letter"))
        return {row.reason: row.messages for row in found}
