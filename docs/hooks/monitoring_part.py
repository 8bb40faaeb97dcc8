"""The metrics that Prometheus reads, from the collector's own table."""

from markdown_text import code, table

from orchestrator.monitoring.fleet_metrics import METRICS, FleetMetric

_LIVES = {
    "stays": "never",
    "run": "24 h after the run's end",
    "lease": "when no shard is held",
    "schedule": "with the schedule, or what is said",
}
_KINDS = {"gaugehistogram": "histogram of now"}


def fleet_metrics() -> str:
    """One row for each metric."""
    heads = ("metric", "kind", "labels", "what it is", "its series vanish")
    return table(heads, [_row(one) for one in METRICS])


def _row(one: FleetMetric) -> tuple[str, ...]:
    labels = ", ".join(code(label) for label in one.labels)
    return (
        code(one.shown),
        _KINDS.get(one.kind, one.kind),
        labels,
        one.about,
        _LIVES[one.life],
    )
