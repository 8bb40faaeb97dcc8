"""Answers a scrape of Prometheus from SQL: the fleet, current runs, workers, schedules."""

import logging
import time
from collections import Counter
from collections.abc import Iterator, Mapping

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from sqlalchemy.exc import DBAPIError

from orchestrator.monitoring.broker_queues import BrokerQueues
from orchestrator.monitoring.exported_metrics import MOST_KINDS, MOST_RUNS, MOST_WORKERS
from orchestrator.monitoring.metric_samples import MetricSamples
from orchestrator.monitoring.schedule_metrics import put_schedules
from transexplain.errors import DatabaseError
from transexplain.store import browsing, fleet_state
from transexplain.store.database import Database
from transexplain.store.fleet_figures import (
    ITEMS_PER_SECOND,
    LEASE_AGE,
    SHARD_SECONDS,
    WAIT_SECONDS,
    FigureReader,
    FleetFigures,
    Histogram,
    RunFigures,
    SavedShards,
)
from transexplain.store.fleet_state import FleetStatus
from transexplain.types.device_time import together
from workers.message_guard import REASONS
from workers.queue_names import queue_name

log = logging.getLogger(__name__)


class FleetCollector(Collector):
    """The metrics of a scrape; only `transexplain_up` 0 where the database does not answer.

    `queue` is the first part of the queues' names, `broker` knows what waits in them. What the
    role of the connection may not read, items and refused messages, is left out.
    """

    def __init__(self, db: Database, queue: str, broker: BrokerQueues | None = None) -> None:
        self._db = db
        self._queue = queue
        self._broker = broker
        self._figures = FigureReader(db, fleet_state.RECENT, MOST_RUNS)
        self._away = False  # as the last scrape found; each change is logged once

    def collect(self) -> Iterator[Metric]:
        """Every family of the table, read now."""
        samples, begun = MetricSamples(), time.monotonic()
        if self._broker is not None:
            self._broker.begin()  # meanwhile the database is read
        try:
            self._read(samples)
        except (DatabaseError, DBAPIError) as error:
            self._note(error)
            samples = MetricSamples()
            samples.put("up", 0)
            yield from samples.families(["up"])
            return
        self._note(None)
        samples.put("up", 1)
        samples.put("collect_seconds", time.monotonic() - begun)
        if self._broker is not None:
            _put_messages(samples, self._broker.waiting())
        yield from samples.families()

    def _note(self, error: Exception | None) -> None:
        before, self._away = self._away, error is not None
        if error is not None and not before:
            # a statement that fails, as on tables of another version, quotes what it was given
            reason = error if isinstance(error, DatabaseError) else type(error).__name__
            log.warning("scrapes find no database: %s", reason)
        elif error is None and before:
            log.info("scrapes find the database again")

    def _read(self, samples: MetricSamples) -> None:
        items = browsing.texts_readable(self._db)
        now = fleet_state.status(self._db, items=items)
        figures = self._figures.read(items=items)
        _put_fleet(samples, now, items=items)
        samples.put("runs_left_out", figures.left_out)
        queues = {one.id: queue_name(self._queue, one.modality, one.device) for one in figures.runs}
        for one in figures.runs:
            _put_run(samples, one, queues[one.id])
        _put_queues(samples, figures, queues)
        _put_leases(samples, now, figures)
        _put_workers(samples, figures)
        _put_histograms(samples, figures, queues)
        put_schedules(samples, self._db)


def _put_fleet(samples: MetricSamples, now: FleetStatus, *, items: bool) -> None:
    """What is said of all current runs together."""
    _put_each(samples, "runs", now.runs)
    _put_each(samples, "shards", now.shards)
    samples.put("items_explained", now.explained)
    _put_each(samples, "items_failed", now.failed)
    samples.put("claims", now.claims)
    samples.put("leases_expired", now.expired)
    at_work = {worker.name for worker in now.workers}
    samples.put("workers", len(at_work))
    oldest = max((worker.heartbeat_age for worker in now.workers), default=0.0)
    samples.put("oldest_heartbeat_seconds", oldest)
    _put_each(samples, "device_seconds", together(now.devices).seconds)
    for one in now.devices:
        if one.worker is not None and one.worker in at_work:
            samples.put("device_waited", one.waited or 0.0, one.worker)
    if items:
        _put_each(samples, "messages_refused", {**dict.fromkeys(REASONS, 0), **now.refused})


def _put_each(samples: MetricSamples, name: str, values: Mapping[str, float]) -> None:
    for label, value in values.items():
        samples.put(name, value, label)


def _put_run(samples: MetricSamples, one: RunFigures, queue: str) -> None:
    samples.put("run_info", 1, one.id, one.name, one.task, one.state, queue)
    for state, count in one.shards.items():
        samples.put("run_shards", count, one.id, state)
    counts = {"explained": one.explained, "failed": one.failed, "pending": one.pending}
    for state, count in counts.items():
        samples.put("run_items", count, one.id, state)
    frequent = dict(list(one.kinds.items())[:MOST_KINDS])
    if others := sum(one.kinds.values()) - sum(frequent.values()):
        frequent["other"] = frequent.get("other", 0) + others
    for kind, count in frequent.items():
        samples.put("run_failed_items", count, one.id, kind)
    samples.put("run_claims", one.claims, one.id)
    if one.state == "running":
        samples.put("run_age_seconds", one.age, one.id)
        samples.put("run_paused", float(one.paused), one.id)
        if not one.paused:  # that nobody claims its shards is what was asked for
            samples.put("run_idle_seconds", one.idle, one.id)
        samples.put_histogram("lease_age_seconds", one.leases, LEASE_AGE, one.id)


def _put_queues(samples: MetricSamples, figures: FleetFigures, queues: Mapping[str, str]) -> None:
    counts: Counter[tuple[str, str]] = Counter()
    for one in figures.runs:
        for state in ("queued", "running"):
            counts[queues[one.id], state] += one.shards[state] if one.state == "running" else 0
    for (queue, state), count in sorted(counts.items()):
        samples.put("queue_shards", count, queue, state)


def _put_messages(samples: MetricSamples, waiting: Mapping[str, int] | None) -> None:
    samples.put("broker_up", float(waiting is not None))
    for queue, messages in (waiting or {}).items():
        samples.put("queue_messages", messages, queue)


def _put_leases(samples: MetricSamples, now: FleetStatus, figures: FleetFigures) -> None:
    """Of workers that hold shards of the runs that are exported."""
    exported = {one.id for one in figures.runs}
    held: Counter[str] = Counter()
    for one in sorted(now.workers, key=lambda one: one.heartbeat_age):
        held[one.run_id] += 1
        if one.run_id in exported and held[one.run_id] <= MOST_WORKERS:
            of = (one.run_id, one.name)
            samples.put("worker_leases", one.shards, *of)
            samples.put("worker_heartbeat_age_seconds", one.heartbeat_age, *of)
            samples.put("worker_lease_left_seconds", one.lease_left, *of)


def _put_workers(samples: MetricSamples, figures: FleetFigures) -> None:
    """What each worker saved; those last heard of come first."""
    counted: Counter[str] = Counter()
    for one in figures.saved:
        counted[one.run_id] += 1
        if counted[one.run_id] > MOST_WORKERS:
            continue
        of = (one.run_id, one.worker, one.hardware)
        samples.put("worker_shards", one.shards, *of)
        samples.put("worker_items", one.items, *of)
        for stage, seconds in one.seconds.items():
            samples.put("device_time_seconds", seconds, *of, stage)


def _put_histograms(
    samples: MetricSamples, figures: FleetFigures, queues: Mapping[str, str]
) -> None:
    """Of each run and kind of device, all workers together."""
    together: dict[tuple[str, str], list[SavedShards]] = {}
    for one in figures.saved:
        together.setdefault((one.run_id, one.hardware), []).append(one)
    for (run_id, device), some in together.items():
        of = (run_id, queues[run_id], device)
        samples.put_histogram(
            "shard_seconds", _sum([one.shard_seconds for one in some]), SHARD_SECONDS, *of
        )
        samples.put_histogram(
            "shard_items_per_second", _sum([one.rates for one in some]), ITEMS_PER_SECOND, *of
        )
        for stage in some[0].waits:
            waits = _sum([one.waits[stage] for one in some])
            samples.put_histogram("device_wait_seconds", waits, WAIT_SECONDS, run_id, device, stage)


def _sum(found: list[Histogram]) -> Histogram:
    return sum(found[1:], start=found[0])
