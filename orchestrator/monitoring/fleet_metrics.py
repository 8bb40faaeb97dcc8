"""The metrics of the fleet: a table with kind, labels and meaning, and their collector.

The collector exports these and no others; the table in the docs and the tests of dashboard and
alerts are made from it.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeHistogramMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString
from sqlalchemy.exc import DBAPIError

from orchestrator.monitoring.probes import BrokerQueues, NotedChanges
from orchestrator.schedule.fire_times import overdue, upcoming
from transexplain.errors import ConfigurationError, DatabaseError
from transexplain.store import browsing, fleet_state, schedules
from transexplain.store.database import Database
from transexplain.store.fleet_state import (
    ITEMS_PER_SECOND,
    LEASE_AGE,
    SHARD_SECONDS,
    WAIT_SECONDS,
    FigureReader,
    FleetFigures,
    FleetStatus,
    Histogram,
    RunFigures,
    SavedShards,
)
from transexplain.store.schedules import last_found
from transexplain.types.device_time import together
from workers.message_guard import REASONS
from workers.queue_names import queue_name

PREFIX = "transexplain_"
#: runs that have series of their own at most, the newest; those beyond count in the sums alone
MOST_RUNS = 50
#: workers of each run, those last heard of; schedules; kinds of failure of a run, the most frequent
MOST_WORKERS, MOST_SCHEDULES, MOST_KINDS = 100, 100, 20

Kind = Literal["gauge", "counter", "histogram", "gaugehistogram"]
#: what makes a series vanish: nothing; that its run is old; that no shard is held; that its
#: schedule, or what is said of it, is gone
Life = Literal["stays", "run", "lease", "schedule"]


@dataclass(frozen=True, kw_only=True, slots=True)
class FleetMetric:
    """One metric."""

    name: str  #: without `PREFIX`, and without the `_total` of a counter
    kind: Kind
    labels: tuple[str, ...]
    about: str
    life: Life

    @property
    def shown(self) -> str:
        """Prometheus' name of it; of a histogram without `_bucket`, `_sum` and `_count`."""
        return f"{PREFIX}{self.name}{'_total' if self.kind == 'counter' else ''}"

    @property
    def series(self) -> dict[str, tuple[str, ...]]:
        """Every name that an expression can use, with its labels."""
        if self.kind == "histogram":
            ends = {"_bucket": ("le",), "_sum": (), "_count": ()}
        elif self.kind == "gaugehistogram":
            ends = {"_bucket": ("le",), "_gsum": (), "_gcount": ()}
        else:
            ends = {"": ()}
        return {f"{self.shown}{end}": (*self.labels, *more) for end, more in ends.items()}


def _metric(kind: Kind, name: str, labels: str, about: str, life: Life = "run") -> FleetMetric:
    return FleetMetric(name=name, kind=kind, labels=tuple(labels.split()), about=about, life=life)


_gauge, _counter, _histogram = (
    partial(_metric, kind) for kind in ("gauge", "counter", "histogram")
)

_CURRENT = f"runs that run or ended within {fleet_state.RECENT / 3600:.0f} hours"
_SAVED = f"by shards saved of {_CURRENT}"

_FLEET = (
    _gauge("up", "", "Whether the database answers; without it nothing else is exported", "stays"),
    _gauge("runs", "state", "Runs", "stays"),
    _gauge("shards", "state", f"Shards of {_CURRENT}", "stays"),
    _gauge("items_explained", "", f"Items explained of {_CURRENT}", "stays"),
    _gauge("items_failed", "kind", f"Items that failed of {_CURRENT}"),
    _gauge("claims", "", f"Claims of shards of {_CURRENT}", "stays"),
    _gauge("leases_expired", "", "Shards whose lease ran out and nobody took", "stays"),
    _gauge("workers", "", "Workers that hold a shard", "stays"),
    _gauge(
        "oldest_heartbeat_seconds", "", "Age of the oldest heartbeat of a worker at work", "stays"
    ),
    _gauge("device_seconds", "for", f"Time of devices, {_SAVED}", "stays"),
    _gauge("device_waited", "worker", f"Share of it waiting for the host, {_SAVED}", "lease"),
    _gauge("messages_refused", "reason", "Messages that workers refused, ever", "stays"),
    _gauge("runs_left_out", "", f"Current runs beyond the newest {MOST_RUNS}", "stays"),
    _gauge("collect_seconds", "", "Time that the database took for this scrape", "stays"),
)
_RUNS = (
    _gauge("run_info", "run audit task state queue", "1 for each run, to join names by `run`"),
    _gauge("run_shards", "run state", "Shards of the run"),
    _gauge("run_items", "run state", "Items: `explained`, `failed`, `pending`"),
    _gauge("run_failed_items", "run kind", "Items that failed, by kind of failure"),
    _gauge("run_age_seconds", "run", "Since the run was created; while it runs"),
    _gauge(
        "run_idle_seconds",
        "run",
        "Since a worker claimed a shard or renewed a lease, which takes progress; while it runs "
        "and is not paused",
    ),
    _gauge("run_paused", "run", "Whether the run hands out no shards: 1, or 0; while it runs"),
    _counter("run_claims", "run", "Claims of shards, all attempts counted"),
    _gauge("queue_shards", "queue state", "Shards of runs that run: `queued`, `running`", "stays"),
    _gauge(
        "queue_messages",
        "queue",
        "Messages that wait at the broker, those in workers' hands not counted; where it is asked",
        "stays",
    ),
    _gauge("broker_up", "", "Whether the broker answers; where it is asked", "stays"),
)
_WORK = (
    _gauge("worker_leases", "run worker", "Shards that the worker holds", "lease"),
    _gauge("worker_heartbeat_age_seconds", "run worker", "Since the worker was heard of", "lease"),
    _gauge(
        "worker_lease_left_seconds",
        "run worker",
        "Until its lease ends; below 0: it lost it",
        "lease",
    ),
    _counter("worker_shards", "run worker device", "Shards saved"),
    _counter("worker_items", "run worker device", "Items of shards saved, failed ones included"),
    _counter(
        "device_time_seconds",
        "run worker device stage",
        "Time of the device: `busy`, waiting for a stage of the host, or `no_work`",
    ),
    _histogram("shard_seconds", "run queue device", "Computing time of saved shards, seconds"),
    _histogram("shard_items_per_second", "run queue device", "Items a second of saved shards"),
    _histogram(
        "device_wait_seconds",
        "run device stage",
        "Time that the device waited for a stage of the host, by saved shard",
    ),
    _metric(
        "gaugehistogram",
        "lease_age_seconds",
        "run",
        "Age of the leases that are held now: since they were renewed",
        "lease",
    ),
)
_SCHEDULES = (
    _gauge("schedule_active", "schedule", "Whether it fires: 1, or 0: paused", "schedule"),
    _gauge(
        "schedule_overdue_seconds",
        "schedule",
        "Since the first fire time that passed without a run; 0: none did",
        "schedule",
    ),
    _gauge(
        "schedule_next_timestamp_seconds",
        "schedule",
        "When it fires next, of active ones",
        "schedule",
    ),
    _gauge(
        "schedule_failing",
        "schedule",
        "Whether its audit could not be prepared the last time",
        "schedule",
    ),
    _gauge(
        "schedule_last_run_info",
        "schedule run verdict",
        "1 for the last finished run that has its results in SQL",
        "schedule",
    ),
    _gauge("schedule_last_run_timestamp_seconds", "schedule", "When that run ended", "schedule"),
    _gauge(
        "schedule_groups_newly_flagged",
        "schedule",
        "Groups whose mention newly changes predictions, or whose outcome newly differs",
        "schedule",
    ),
    _gauge(
        "schedule_groups_no_longer_flagged",
        "schedule",
        "Groups of which either was so in the run before and is not now",
        "schedule",
    ),
    _gauge(
        "schedule_changed_predictions_ratio",
        "schedule",
        "Share of items in common with the run before that are predicted otherwise",
        "schedule",
    ),
)
METRICS: tuple[FleetMetric, ...] = (*_FLEET, *_RUNS, *_WORK, *_SCHEDULES)


_LONGEST = 200  #: characters of a label
_FAMILIES: Mapping[Kind, Callable[..., Any]] = {
    "gauge": GaugeMetricFamily,
    "counter": CounterMetricFamily,
    "histogram": HistogramMetricFamily,
    "gaugehistogram": GaugeHistogramMetricFamily,
}
_FACTS = {facts.name: facts for facts in METRICS}


class MetricSamples:
    """The samples of one scrape."""

    def __init__(self) -> None:
        self._families: dict[str, Any] = {
            name: _FAMILIES[facts.kind](f"{PREFIX}{name}", facts.about, labels=facts.labels)
            for name, facts in _FACTS.items()
        }

    def put(self, name: str, value: float, *labels: str) -> None:
        """One sample of a gauge or a counter; `labels` in the table's order."""
        self._families[name].add_metric(_labels(_FACTS[name], labels), value)

    def put_each(self, name: str, values: Mapping[str, float], *labels: str) -> None:
        """One sample for each key, which is the last label."""
        for label, value in values.items():
            self.put(name, value, *labels, label)

    def put_histogram(
        self, name: str, some: Sequence[Histogram], bounds: Sequence[float], *labels: str
    ) -> None:
        """One histogram, the sum of these."""
        histogram = sum(some[1:], start=some[0])
        ends = [*map(floatToGoString, bounds), "+Inf"]
        buckets = list(zip(ends, map(float, histogram.counts), strict=True))
        self._families[name].add_metric(_labels(_FACTS[name], labels), buckets, histogram.total)

    def families(self, names: Sequence[str] | None = None) -> Iterator[Metric]:
        """Every family, those without samples too, or those of these names."""
        yield from (self._families[name] for name in names or _FACTS)


def _labels(facts: FleetMetric, values: Sequence[str]) -> list[str]:
    """Values that can be written, whatever a name holds."""
    assert len(facts.labels) == len(values), facts.name
    return [value[:_LONGEST].encode("utf-8", "replace").decode() for value in values]


def put_schedules(samples: MetricSamples, db: Database) -> None:
    """The first schedules by name; raises DatabaseError as `Database.read`."""
    now = schedules.now(db)
    for row in schedules.schedule_rows(db, errors=False)[:MOST_SCHEDULES]:
        _put_schedule(samples, row, now)
    for last in last_found(db)[:MOST_SCHEDULES]:
        name = last.schedule
        samples.put("schedule_last_run_info", 1, name, last.run_id, last.verdict)
        samples.put("schedule_last_run_timestamp_seconds", last.finished, name)
        compared = {
            "schedule_groups_newly_flagged": last.newly,
            "schedule_groups_no_longer_flagged": last.gone,
            "schedule_changed_predictions_ratio": last.changed,
        }
        for metric, value in compared.items():
            if value is not None:
                samples.put(metric, value, name)


def _put_schedule(samples: MetricSamples, row: dict[str, Any], now: float) -> None:
    name, active = row["name"], row["state"] == "active"
    samples.put("schedule_active", float(active), name)
    samples.put("schedule_failing", float(row["retry_at"] is not None), name)
    if not active:
        return
    with suppress(ConfigurationError):  # this machine lacks the time zone; the tick says so
        late = overdue(row["cron"], row["time_zone"], row["since"], now)
        samples.put("schedule_overdue_seconds", late, name)
        following = next(upcoming(row["cron"], row["time_zone"], now), None)
        if following is not None:
            samples.put("schedule_next_timestamp_seconds", following, name)


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
        self._changes = NotedChanges(
            "scrapes find no database: %s", "scrapes find the database again"
        )

    def collect(self) -> Iterator[Metric]:
        """Every family of the table, read now."""
        samples, begun = MetricSamples(), time.monotonic()
        if self._broker is not None:
            self._broker.begin()  # meanwhile the database is read
        try:
            self._read(samples)
        except (DatabaseError, DBAPIError) as error:
            # a statement that fails, as on tables of another version, quotes what it was given
            known = isinstance(error, DatabaseError)
            self._changes.note(str(error) if known else type(error).__name__)
            samples = MetricSamples()
            samples.put("up", 0)
            yield from samples.families(["up"])
            return
        self._changes.note(None)
        samples.put("up", 1)
        samples.put("collect_seconds", time.monotonic() - begun)
        if self._broker is not None:
            waiting = self._broker.waiting()
            samples.put("broker_up", float(waiting is not None))
            samples.put_each("queue_messages", waiting or {})
        yield from samples.families()

    def _read(self, samples: MetricSamples) -> None:
        items = browsing.texts_readable(self._db)
        now = fleet_state.status(self._db, items=items)
        figures = self._figures.read(items=items)
        _put_fleet(samples, now, items=items)
        samples.put("runs_left_out", figures.left_out)
        queues = {run.id: queue_name(self._queue, run.modality, run.device) for run in figures.runs}
        for run in figures.runs:
            _put_run(samples, run, queues[run.id])
        _put_queues(samples, figures, queues)
        _put_leases(samples, now, figures)
        _put_workers(samples, figures)
        _put_histograms(samples, figures, queues)
        put_schedules(samples, self._db)


def _put_fleet(samples: MetricSamples, now: FleetStatus, *, items: bool) -> None:
    """Put the metrics of all current runs together."""
    samples.put_each("runs", now.runs)
    samples.put_each("shards", now.shards)
    samples.put("items_explained", now.explained)
    samples.put_each("items_failed", now.failed)
    samples.put("claims", now.claims)
    samples.put("leases_expired", now.expired)
    at_work = {worker.name for worker in now.workers}
    samples.put("workers", len(at_work))
    oldest = max((worker.heartbeat_age for worker in now.workers), default=0.0)
    samples.put("oldest_heartbeat_seconds", oldest)
    samples.put_each("device_seconds", together(now.devices).seconds)
    for device in now.devices:
        if device.worker is not None and device.worker in at_work:
            samples.put("device_waited", device.waited or 0.0, device.worker)
    if items:
        samples.put_each("messages_refused", {**dict.fromkeys(REASONS, 0), **now.refused})


def _put_run(samples: MetricSamples, run: RunFigures, queue: str) -> None:
    samples.put("run_info", 1, run.id, run.name, run.task, run.state, queue)
    samples.put_each("run_shards", run.shards, run.id)
    counts = {"explained": run.explained, "failed": run.failed, "pending": run.pending}
    samples.put_each("run_items", counts, run.id)
    frequent = dict(list(run.kinds.items())[:MOST_KINDS])
    if others := sum(run.kinds.values()) - sum(frequent.values()):
        frequent["other"] = frequent.get("other", 0) + others
    samples.put_each("run_failed_items", frequent, run.id)
    samples.put("run_claims", run.claims, run.id)
    if run.state == "running":
        samples.put("run_age_seconds", run.age, run.id)
        samples.put("run_paused", float(run.paused), run.id)
        if not run.paused:  # a paused run has to be idle
            samples.put("run_idle_seconds", run.idle, run.id)
        samples.put_histogram("lease_age_seconds", [run.leases], LEASE_AGE, run.id)


def _put_queues(samples: MetricSamples, figures: FleetFigures, queues: Mapping[str, str]) -> None:
    counts: Counter[tuple[str, str]] = Counter()
    for run in figures.runs:
        for state in ("queued", "running"):
            counts[queues[run.id], state] += run.shards[state] if run.state == "running" else 0
    for (queue, state), count in sorted(counts.items()):
        samples.put("queue_shards", count, queue, state)


def _put_leases(samples: MetricSamples, now: FleetStatus, figures: FleetFigures) -> None:
    """Put the leases of workers that hold shards of the exported runs."""
    exported = {run.id for run in figures.runs}
    held: Counter[str] = Counter()
    for worker in sorted(now.workers, key=lambda worker: worker.heartbeat_age):
        held[worker.run_id] += 1
        if worker.run_id in exported and held[worker.run_id] <= MOST_WORKERS:
            of = (worker.run_id, worker.name)
            samples.put("worker_leases", worker.shards, *of)
            samples.put("worker_heartbeat_age_seconds", worker.heartbeat_age, *of)
            samples.put("worker_lease_left_seconds", worker.lease_left, *of)


def _put_workers(samples: MetricSamples, figures: FleetFigures) -> None:
    """Put the saved items of each worker, the latest first."""
    counted: Counter[str] = Counter()
    for saved in figures.saved:
        counted[saved.run_id] += 1
        if counted[saved.run_id] > MOST_WORKERS:
            continue
        of = (saved.run_id, saved.worker, saved.hardware)
        samples.put("worker_shards", saved.shards, *of)
        samples.put("worker_items", saved.items, *of)
        samples.put_each("device_time_seconds", saved.seconds, *of)


def _put_histograms(
    samples: MetricSamples, figures: FleetFigures, queues: Mapping[str, str]
) -> None:
    """Put the histograms of each run and kind of device, all workers together."""
    together: dict[tuple[str, str], list[SavedShards]] = {}
    for saved in figures.saved:
        together.setdefault((saved.run_id, saved.hardware), []).append(saved)
    for (run_id, device), some in together.items():
        of = (run_id, queues[run_id], device)
        seconds, rates = ([saved.shard_seconds for saved in some], [saved.rates for saved in some])
        samples.put_histogram("shard_seconds", seconds, SHARD_SECONDS, *of)
        samples.put_histogram("shard_items_per_second", rates, ITEMS_PER_SECOND, *of)
        for stage in some[0].waits:
            waits = [saved.waits[stage] for saved in some]
            samples.put_histogram("device_wait_seconds", waits, WAIT_SECONDS, run_id, device, stage)
