"""Simulated workers: real messages, claims, leases and commits around an explainer that sleeps.

Each has its own connections to the database and to the broker, and the same three threads and
lease keeper as a real one; only the model, the items and the computing are not there.
"""

import random
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.synchronize import Event
from queue import Empty
from typing import Any

from celery import Celery
from kombu.simple import SimpleQueue
from sqlalchemy import event

from benchmarks.fleet_results import MadeUp
from transexplain.settings import Settings
from transexplain.store import runs, shards
from transexplain.store.database import Database
from transexplain.store.runs import Claim
from transexplain.types.plans import Shard, ShardResult
from workers.app import make_app
from workers.claim_to_commit import Device, Watch, Workbench
from workers.heartbeat import LeaseKeeper

#: items of one batch: a breadcrumb at most each, as in a real shard of short texts
_BATCH = 16
#: seconds between two looks at what has ended
_LOOK = 0.02
#: shards take this much longer or shorter: workers that began together do not stay in step
_JITTER = 0.2


@dataclass(frozen=True, kw_only=True, slots=True)
class Load:
    """What one simulated process does."""

    run_id: str
    queue: str  #: the plan's
    claimers: int
    item_seconds: float  #: sleep per item
    write: bool  #: save rows, not only the shard's state


@dataclass(kw_only=True, slots=True)
class Times:
    """Seconds that one claimer measured; lists grow by one per event."""

    claims: list[float] = field(default_factory=list)  #: that found a shard
    vain: list[float] = field(default_factory=list)  #: that found none
    commits: list[float] = field(default_factory=list)  #: rows, the run's end, all of it
    computed: float = 0.0  #: slept
    first: float = float("inf")  #: time.time() of the first claim's begin
    last: float = 0.0  #: time.time() of the last commit's end
    messages: int = 0
    errors: list[str] = field(default_factory=list)


class Sleeper(Workbench):
    """The path of a shard without data and model, and with a clock on what it asks of SQL."""

    def __init__(self, load: Load, made: MadeUp, times: Times, **options: Any) -> None:
        super().__init__(**options)
        self._load, self._made, self.times = load, made, times

    def _claim(self, run_id: str, shard_index: int | None) -> Claim | None:
        times = self.times
        wall, begun = time.time(), time.perf_counter()
        claim = super()._claim(run_id, shard_index)
        (times.vain if claim is None else times.claims).append(time.perf_counter() - begun)
        if claim is not None:
            times.first = min(times.first, wall)
            self.plan(run_id)
        return claim

    def _computed(self, claim: Claim, keeper: LeaseKeeper) -> Callable[[], ShardResult]:
        slept = self.device.compute(claim, keeper, partial(self._sleep, claim.shard))
        return partial(self._made.result, claim.shard, slept)

    def _sleep(self, shard: Shard, watch: Watch) -> float:
        slept = 0.0
        pace = self._load.item_seconds * random.uniform(1 - _JITTER, 1 + _JITTER)
        for start in range(shard.start, shard.stop, _BATCH):
            ids = [str(index) for index in range(start, min(start + _BATCH, shard.stop))]
            watch.batch_started(ids)
            begun = time.perf_counter()
            time.sleep(pace * len(ids))
            slept += time.perf_counter() - begun
            watch.item_done(*ids)
        self.times.computed += slept
        return slept

    def _commit(self, claim: Claim, result: ShardResult) -> bool:
        begun = time.perf_counter()
        commit = super()._commit if self._load.write else self._mark
        closed = commit(claim, result)
        self.times.commits.append(time.perf_counter() - begun)
        self.times.last = time.time()
        return closed

    def _mark(self, claim: Claim, result: ShardResult) -> bool:
        """What `results.save` does, less the rows."""
        done = {"state": "done", "lease_until": None, "breadcrumb": None}
        counts = {"explained": len(result.outcomes), "seconds": result.seconds}
        with self.db.begin() as connection:
            connection.execute(shards.held(claim).values(**done, **counts))
        return runs.finalise(self.db, claim.run_id)


def work(settings: Settings, load: Load, over: Event) -> tuple[list[Times], int]:
    """Run the claimers of one process until `over`; their times, and connections they opened."""
    made, app = MadeUp(), make_app(settings)
    opened: list[int] = []
    with ThreadPoolExecutor(load.claimers, "claimer") as threads:
        begun = [
            threads.submit(_claimer, settings, load, over, app, made, opened)
            for _ in range(load.claimers)
        ]
        return [one.result() for one in begun], len(opened)


def _claimer(
    settings: Settings, load: Load, over: Event, app: Celery, made: MadeUp, opened: list[int]
) -> Times:
    times = Times()
    with Database(settings.database_url) as db:
        event.listen(db.engine, "connect", lambda *_: opened.append(1))
        with (
            app.connection_for_read() as broker,
            ThreadPoolExecutor(1, "device") as device,
            ThreadPoolExecutor(3, "shard") as tasks,
        ):
            bench = Sleeper(
                load,
                made,
                times,
                db=db,
                settings=settings,
                on_hang=times.errors.append,
                device=Device(device),
            )
            waiting = broker.SimpleQueue(app.amqp.queues[load.queue])
            waiting.consumer.qos(prefetch_count=1)
            try:
                _serve(bench, waiting, tasks, over)
            except Exception as error:  # noqa: BLE001 - told with the figures
                times.errors.append(f"{threading.current_thread().name}: {error}")
            finally:
                with suppress(Exception):
                    waiting.close()
    return times


def _serve(bench: Sleeper, waiting: SimpleQueue, tasks: Executor, over: Event) -> None:
    """What a Celery worker does with the messages of one queue."""
    in_hand: dict[Any, Any] = {}  # message -> its task
    room = 1
    while not over.is_set():
        for message in [one for one, task in in_hand.items() if task.done()]:
            in_hand.pop(message).result()
            message.ack()
        if bench.device.room != room:
            room = bench.device.room
            waiting.consumer.qos(prefetch_count=room)
        if len(in_hand) >= room:
            time.sleep(_LOOK)
            continue
        try:
            message = waiting.get(timeout=_LOOK if in_hand else 1)
        except Empty:
            continue
        arguments: Sequence[Any] = message.payload[0]
        bench.times.messages += 1
        in_hand[message] = tasks.submit(bench.work, arguments[0], arguments[1])
