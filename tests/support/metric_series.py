"""The series of a metric: the names that an expression of Prometheus can use, with their labels."""

from orchestrator.monitoring.fleet_metrics import FleetMetric

#: kind of a metric -> the ends of its series' names, and their labels beside the metric's
_ENDS: dict[str, dict[str, tuple[str, ...]]] = {
    "histogram": {"_bucket": ("le",), "_sum": (), "_count": ()},
    "gaugehistogram": {"_bucket": ("le",), "_gsum": (), "_gcount": ()},
}


def series(metric: FleetMetric) -> dict[str, tuple[str, ...]]:
    """Name of each series -> its labels."""
    ends = _ENDS.get(metric.kind, {"": ()})
    return {f"{metric.shown}{end}": (*metric.labels, *more) for end, more in ends.items()}
