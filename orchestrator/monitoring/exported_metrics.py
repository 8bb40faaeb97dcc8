"""The metrics that exist: one entry each, with kind, labels and meaning.

The collector exports these and no others; the table in the docs and the tests of dashboard and
alerts are made from it.
"""

from dataclasses import dataclass
from typing import Literal

from transexplain.store import fleet_state

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
class MetricFacts:
    """One metric."""

    name: str  #: without `PREFIX`, and without the `_total` of a counter
    kind: Kind
    labels: tuple[str, ...]
    about: str
    life: Life

    @property
    def shown(self) -> str:
        """As Prometheus names it; of a histogram without `_bucket`, `_sum` and `_count`."""
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


def _gauge(name: str, labels: str, about: str, life: Life = "run") -> MetricFacts:
    return MetricFacts(
        name=name, kind="gauge", labels=tuple(labels.split()), about=about, life=life
    )


def _counter(name: str, labels: str, about: str) -> MetricFacts:
    return MetricFacts(
        name=name, kind="counter", labels=tuple(labels.split()), about=about, life="run"
    )


def _histogram(name: str, labels: str, about: str) -> MetricFacts:
    return MetricFacts(
        name=name, kind="histogram", labels=tuple(labels.split()), about=about, life="run"
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
    MetricFacts(
        name="lease_age_seconds",
        kind="gaugehistogram",
        labels=("run",),
        about="Age of the leases that are held now: since they were renewed",
        life="lease",
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
METRICS: tuple[MetricFacts, ...] = (*_FLEET, *_RUNS, *_WORK, *_SCHEDULES)
