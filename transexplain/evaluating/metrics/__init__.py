"""Metrics of explanations; `metric_table.py` lists them.

Nothing here runs a model: a metric names the inputs whose logits it needs, and computes a score
from these. The loop that runs the model is in `evaluate_items`.
"""

import inspect
from functools import partial
from typing import Any

from transexplain.errors import ConfigurationError, did_you_mean
from transexplain.evaluating.metrics.metric_table import TABLE, MetricFacts
from transexplain.evaluating.metrics.perturbation_curves import PerturbationCurve
from transexplain.registry import Registry, load
from transexplain.types.scores import MetricSpec

METRICS = Registry("metric", {name: facts.place for name, facts in TABLE.items()})
#: what every curve takes beside its own parameters
_EVERY_CURVE = ("baseline", "over")


def metric_facts(metric: str) -> MetricFacts:
    """The row of a metric; raises ConfigurationError for an unknown name."""
    METRICS[metric]
    return TABLE[metric]


def metric_parameters(metric: str) -> tuple[str, ...]:
    """The names of a metric's parameters; raises ConfigurationError for an unknown metric."""
    given = inspect.signature(_function(metric)).parameters.values()
    own = [
        parameter.name for parameter in given if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    ]
    return (*own, *(_EVERY_CURVE if metric_facts(metric).kind == "curve" else ()))


def curve_of(spec: MetricSpec) -> PerturbationCurve:
    """The curve with its parameters; raises ConfigurationError."""
    _check(spec)
    curve: PerturbationCurve = _function(spec.name)(**spec.params)
    return curve


def bound_metric(spec: MetricSpec) -> "partial[Any]":
    """The function of a metric of kind `map` or `model`, its parameters filled in.

    Raises ConfigurationError for an unknown metric or a parameter that it does not have.
    """
    _check(spec)
    return partial(_function(spec.name), **spec.params)


def axis_of(spec: MetricSpec, points: int) -> tuple[float, ...]:
    """(points,) places of a curve's points, in the unit of `MetricFacts.axis`.

    The shares of a perturbation curve, the places that the metric declares, or steps from 1.
    Raises ConfigurationError for an unknown metric or parameter.
    """
    facts = metric_facts(spec.name)
    if facts.kind == "curve":
        return curve_of(spec).shares
    if facts.points:
        return tuple(map(float, load(facts.points)))
    return tuple(float(step) for step in range(1, points + 1))


def _function(metric: str) -> Any:
    return METRICS.load(metric)


def _check(spec: MetricSpec) -> None:
    known = metric_parameters(spec.name)
    for name in spec.params:
        if name not in known:
            raise ConfigurationError(
                f"metric {spec.name!r} has no parameter {name!r}"
                f"{did_you_mean(name, known) or ';'} it has: "
                f"{', '.join(known) or 'none'}"
            )
