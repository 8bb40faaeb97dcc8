"""Where the points of a curve lie."""

import pytest

from transexplain.errors import ConfigurationError
from transexplain.evaluating.metrics import METRICS, axis_of, metric_facts
from transexplain.types.scores import MetricSpec


def test_a_perturbation_curve_lies_at_its_shares() -> None:
    spec = MetricSpec(name="hiding", params={"shares": (0.1, 0.4)})
    assert axis_of(spec, 2) == (0.1, 0.4)
    assert axis_of(MetricSpec(name="activation", params={"steps": 2}), 3) == (0.0, 0.5, 1.0)
    with pytest.raises(ConfigurationError, match="no parameter 'depth'"):
        axis_of(MetricSpec(name="activation", params={"depth": 2}), 3)


def test_a_metric_declares_its_points() -> None:
    assert axis_of(MetricSpec(name="token-f1"), 8) == (10, 20, 30, 40, 50, 60, 70, 80)
    assert axis_of(MetricSpec(name="token-overlap"), 8) == (5, 10, 20, 30, 40, 50, 75, 100)


def test_other_points_are_steps() -> None:
    assert axis_of(MetricSpec(name="randomisation"), 3) == (1.0, 2.0, 3.0)


@pytest.mark.parametrize("name", METRICS)
def test_points_belong_to_an_axis(name: str) -> None:
    facts = metric_facts(name)
    assert bool(facts.axis) >= bool(facts.points)
