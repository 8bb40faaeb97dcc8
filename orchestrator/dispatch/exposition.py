"""The fleet's state for Prometheus: read from SQL when it is asked for, never from events."""

import logging
import threading
from collections.abc import Iterator, Mapping
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from transexplain.errors import ConfigurationError, DatabaseError
from transexplain.store import fleet_state
from transexplain.store.database import Database
from workers.message_guard import REASONS

log = logging.getLogger(__name__)


class FleetCollector(Collector):
    """What a scrape reads; where the database cannot be reached, `transexplain_up` 0 alone."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def collect(self) -> Iterator[Metric]:
        """The gauges, from one reading transaction."""
        try:
            now = fleet_state.status(self._db)
        except DatabaseError as error:
            log.warning("scrape: %s", error)
            yield _gauge("up", "Whether the database answers", 0)
            return
        yield _gauge("up", "Whether the database answers", 1)
        yield _by("runs", "Runs", "state", now.runs)
        yield _by("shards", f"Shards of {_CURRENT}", "state", now.shards)
        yield _gauge("items_explained", f"Items explained of {_CURRENT}", now.explained)
        yield _by("items_failed", f"Items that failed of {_CURRENT}", "kind", now.failed)
        yield _gauge("claims", f"Claims of shards of {_CURRENT}", now.claims)
        yield _gauge("leases_expired", "Shards whose lease ran out and nobody took", now.expired)
        yield _gauge("workers", "Workers that hold a shard", len({w.name for w in now.workers}))
        oldest = max((worker.heartbeat_age for worker in now.workers), default=0.0)
        yield _gauge(
            "oldest_heartbeat_seconds", "Age of the oldest heartbeat of a worker at work", oldest
        )
        refused: dict[str, int] = {**dict.fromkeys(REASONS, 0), **now.refused}
        yield _by("messages_refused", "Messages that workers refused, ever", "reason", refused)


def serve(db: Database, *, host: str, port: int) -> tuple[WSGIServer, threading.Thread]:
    """Answer scrapes in a thread of its own; `shutdown()` of the server ends it.

    Raises ConfigurationError where the address cannot be had.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(FleetCollector(db))
    try:
        return start_http_server(port, addr=host, registry=registry)
    except OSError as error:
        raise ConfigurationError(
            f"metrics on {host}:{port}: {error.strerror or error}; choose another --host or --port"
        ) from error


_CURRENT = f"runs that run or ended within {fleet_state.RECENT / 3600:.0f} hours"


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"transexplain_{name}", text, value=value)


def _by(name: str, text: str, label: str, counts: Mapping[str, int]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"transexplain_{name}", text, labels=[label])
    for value, count in counts.items():
        family.add_metric([value], count)
    return family
