"""Where the points of a metric's curve lie on its axis."""

from transexplain.evaluations import MetricSpec
from transexplain.metrics import curve_of, metric_facts
from transexplain.registry import load


def axis_of(spec: MetricSpec, points: int) -> tuple[float, ...]:
    """(points,) places of a curve's points, in what `MetricFacts.axis` says.

    The shares of a perturbation curve, the places that the metric declares, or steps from 1.
    Raises ConfigurationError for an unknown metric or parameter.
    """
    facts = metric_facts(spec.name)
    if facts.kind == "curve":
        return curve_of(spec).shares
    if facts.points:
        return tuple(map(float, load(facts.points)))
    return tuple(float(step) for step in range(1, points + 1))
