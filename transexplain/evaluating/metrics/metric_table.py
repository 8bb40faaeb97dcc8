"""The table of metrics, and what a metric is written with."""

from transexplain.evaluating.metrics.curve_table import CURVES
from transexplain.evaluating.metrics.map_table import MAPS, MODELS
from transexplain.evaluating.metrics.measured_case import (
    Array,
    Bench,
    Case,
    Masks,
    Scored,
    unmeasured,
)
from transexplain.evaluating.metrics.metric_row import Better, MetricFacts, MetricKind

__all__ = [
    "CURVES",
    "MAPS",
    "MODELS",
    "TABLE",
    "Array",
    "Bench",
    "Better",
    "Case",
    "Masks",
    "MetricFacts",
    "MetricKind",
    "Scored",
    "unmeasured",
]

TABLE = {**CURVES, **MAPS, **MODELS}
