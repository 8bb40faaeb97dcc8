"""Simulated workers: real messages, claims, leases and commits around an explainer that sleeps.

Each has its own connections to the database and to the broker, and the same three threads and
lease keeper as a real one; only the model, the items and the computing are not there.
"""

import random
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.synchronize import Event
from queue import Empty
from typing import Any

from celery import Celery
from kombu.simple import SimpleQueue
from sqlalchemy import event

from benchmarks.fleet_results import MadeUp
from transexplain.plans import ShardResult
from transexplain.settings import Settings
from transexplain.store import runs, shards
from transexplain.store.database import Database
from transexplain.store.records import Claim
from workers.app import make_app
from workers.claim_to_commit import Workbench
from workers.held import Held, Watch
from workers.pipeline import Pipeline
from workers.tasks import STINT

#: items of one batch: a breadcrumb at most each, as in a real shard of short texts
_BATCH = 16
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


class Sleeper(Pipeline):
    """The pipeline of shards without data and model, and with a clock on what it asks of SQL."""

    def __init__(self, bench: Workbench, load: Load, made: MadeUp, times: Times) -> None:
        super().__init__(bench)
        self._load, self._made, self._times = load, made, times

    def _open(self, run_id: str, shard_index: int | None) -> Held | None:
        bench, times = self._bench, self._times
        wall, begun = time.time(), time.perf_counter()
        claim = shards.claim(
            bench.db, run_id, bench.name, bench.settings.lease_seconds, shard_index
        )
        (times.vain if claim is None else times.claims).append(time.perf_counter() - begun)
        if claim is None:
            return None
        times.first = min(times.first, wall)
        keeper = bench.keeper(claim)
        keeper.__enter__()
        plan: Any = bench.plan(run_id)
        model: Any = None
        return Held(claim=claim, plan=plan, keeper=keeper, model=model, items=None)

    def _compute(self, held: Held, watch: Watch) -> None:
        shard = held.claim.shard
        slept = 0.0
        pace = self._load.item_seconds * random.uniform(1 - _JITTER, 1 + _JITTER)
        for start in range(shard.start, shard.stop, _BATCH):
            ids = [str(index) for index in range(start, min(start + _BATCH, shard.stop))]
            watch.batch_started(ids)
            begun = time.perf_counter()
            time.sleep(pace * len(ids))
            slept += time.perf_counter() - begun
            for item_id in ids:
                watch.item_done(item_id)
        self._times.computed += slept
        self._hand_over(held, self._made.result(shard, slept))

    def _save(self, held: Held, result: ShardResult) -> None:
        begun = time.perf_counter()
        if self._load.write:
            super()._save(held, result)
        else:
            self._mark(held.claim, result)
            held.release()
        self._times.commits.append(time.perf_counter() - begun)
        self._times.last = time.time()

    def _mark(self, claim: Claim, result: ShardResult) -> None:
        """What `results.save` does, less the rows."""
        db = self._bench.db
        done = {"state": "done", "lease_until": None, "breadcrumb": None}
        counts = {"explained": len(result.outcomes), "seconds": result.seconds}
        with db.begin() as connection:
            connection.execute(shards.held(claim).values(**done, **counts))
        runs.finalise(db, claim.run_id)


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
        bench = Workbench(db=db, settings=settings, on_hang=times.errors.append)
        with app.connection_for_read() as broker:
            waiting = broker.SimpleQueue(app.amqp.queues[load.queue])
            waiting.consumer.qos(prefetch_count=1)
            try:
                with Sleeper(bench, load, made, times) as pipeline:
                    _serve(pipeline, waiting, over, times)
            except Exception as error:  # noqa: BLE001 - told with the figures
                times.errors.append(f"{threading.current_thread().name}: {error}")
            finally:
                with suppress(Exception):
                    waiting.close()
    return times


def _serve(pipeline: Pipeline, waiting: SimpleQueue, over: Event, times: Times) -> None:
    """What a Celery worker does with the messages of one queue."""
    while not over.is_set():
        try:
            message = waiting.get(timeout=1)
        except Empty:
            continue
        arguments: Sequence[Any] = message.payload[0]
        times.messages += 1
        pipeline.stint(arguments[0], arguments[1], seconds=STINT)
        message.ack()
