"""Perturbation curves against values worked out by hand."""

from typing import Any

import numpy as np
import pytest

from transexplain.errors import ConfigurationError
from transexplain.evaluating.metrics import (
    METRICS,
    axis_of,
    curve_of,
    metric_facts,
    metric_parameters,
)
from transexplain.evaluating.metrics.metric_table import CURVES
from transexplain.evaluating.metrics.perturbation_curves import (
    PerturbationCurve,
    probabilities,
)
from transexplain.types.scores import MetricSpec

RELEVANCE = np.array([0.5, -3.0, 2.0, 0.0])
#: logits whose probabilities of class 0 are 1/5, 1/2, 4/5
LOGITS = {p: [np.log(p / (1 - p)), 0.0] for p in (0.2, 0.5, 0.8)}


def answers(*values: float) -> np.ndarray:
    return np.array([LOGITS[value] for value in values])


def curve(name: str, **params: object) -> PerturbationCurve:
    return curve_of(MetricSpec(name=name, params=params))


def rows(masks: np.ndarray) -> str:
    return " ".join("".join(map(str, row)) for row in masks.astype(int))


@pytest.mark.parametrize(
    ("name", "steps", "shown"),
    [
        ("activation", 4, "0000 0010 1010 1011 1111"),  # the most relevant are shown first
        ("pruning", 4, "1111 1110 0110 0100 0000"),  # the smallest sizes are hidden first
        ("negative-perturbation", 1, "1111 0000"),  # 10 % of four positions are none, 90 % four
    ],
)
def test_positions_are_shown_and_hidden_in_order(name: str, steps: int, shown: str) -> None:
    assert rows(curve(name, steps=steps).masks(RELEVANCE)) == shown


def test_half_of_the_positions() -> None:
    least = PerturbationCurve(order="least", act="hidden", shares=(0.5,), measure="kept")
    assert rows(least.masks(RELEVANCE)) == "1010"
    most = PerturbationCurve(order="most", act="shown", shares=(0.5,), measure="kept")
    assert rows(most.masks(np.zeros(4))) == "1100", "equal relevances keep their order"


@pytest.mark.parametrize(
    ("name", "params", "logits", "points", "value"),
    [
        # trapezoids over 0, 1/2, 1: (0.2 + 0.5) / 4 + (0.5 + 0.8) / 4
        ("activation", {"steps": 2}, (0.2, 0.5, 0.8), (0.2, 0.5, 0.8), 0.5),
        # kept, kept, lost: (1 + 1) / 2 * 0.4 + (1 + 0) / 2 * 0.4, over a width of 0.8
        ("positive-perturbation", {"steps": 2}, (0.8, 0.8, 0.2), (1.0, 1.0, 0.0), 0.75),
        # means over the shares
        ("hiding", {"shares": (0.1, 0.3)}, (0.2, 0.5), (0.2, 0.5), 0.35),
        ("revealing", {"shares": (0.1, 0.3)}, (0.2, 0.5), (0.2, 0.5), 0.35),
        # falls from a probability of 0.8, of the empty rationale too
        ("comprehensiveness", {"shares": (0, 0.5, 1)}, (0.8, 0.5, 0.2), (0.0, 0.3, 0.6), 0.3),
        ("sufficiency", {"shares": (0, 0.5, 1)}, (0.8, 0.5, 0.2), (0.0, 0.3, 0.6), 0.3),
    ],
)
def test_scores_of_curves_by_hand(
    name: str, params: dict[str, Any], logits: tuple, points: tuple, value: float
) -> None:
    scored = curve(name, **params).score(answers(0.8)[0], answers(*logits), 0)
    assert (scored.curve, scored.value) == (pytest.approx(points), pytest.approx(value))


def test_pruning_sums_squared_changes_over_the_classes() -> None:
    whole = np.array([1.0, -1.0])
    given = np.array([[1.0, -1.0], [0.0, -1.0], [0.0, 2.0]])
    scored = curve("pruning", steps=2).score(whole, given, 0)
    assert scored.curve == pytest.approx((0.0, 1.0, 10.0))
    assert scored.value == pytest.approx((0 + 1) / 4 + (1 + 10) / 4)


def test_fidelity_is_one_answer() -> None:
    found = curve("fidelity")
    assert found.masks(np.arange(5.0)).astype(int).tolist() == [[0, 0, 0, 0, 1]]
    assert found.score(answers(0.8)[0], answers(0.2), 0).value == 0.0
    assert found.score(answers(0.8)[0], answers(0.2), 1).value == 1.0


def test_insertion_stands_on_a_blurred_picture() -> None:
    assert curve("insertion").baseline == "blur"
    assert curve("insertion", baseline="mean").baseline == "mean"
    assert curve("deletion").baseline == "auto"


def test_probabilities_of_every_kind_of_head() -> None:
    assert probabilities(np.array([[np.log(3.0), 0.0]]))[0] == pytest.approx([0.75, 0.25])
    assert probabilities(np.array([[np.log(3.0)]]))[0] == pytest.approx([0.75])
    given = np.array([[0.75, 0.25], [0.5, 0.5]])  # a model that ends in a softmax
    assert probabilities(given) is given


@pytest.mark.parametrize("name", CURVES)
def test_every_curve_takes_a_baseline(name: str) -> None:
    found = curve(name, baseline="pad", over="words")
    assert (found.baseline, found.over) == ("pad", "words")
    assert {"baseline", "over"} <= set(metric_parameters(name))
    facts = metric_facts(name)
    assert facts.axis
    assert ("shown" in facts.axis) == (found.act == "shown")
    assert list(found.shares) == sorted(found.shares)


@pytest.mark.parametrize("name", METRICS)
def test_every_metric_says_where_it_comes_from(name: str) -> None:
    facts = metric_facts(name)
    assert facts.title and facts.source and facts.unit
    assert callable(METRICS.load(name))
    assert bool(facts.axis) >= bool(facts.points)


@pytest.mark.parametrize(
    ("name", "params", "printed"),
    [
        ("activation", {"steps": 0}, "at least 1"),
        ("activation", {"steps": 2.5}, "whole number"),
        ("activation", {"stepz": 2}, "it has: steps, of, baseline, over"),
        ("hiding", {"shares": (0.5, 0.1)}, "ascending"),
        ("hiding", {"shares": (0.5, 1.1)}, "from 0 to 1"),
        ("hiding", {"shares": "many"}, "from 0 to 1"),
        ("fidelity", {"share": None}, "from 0 to 1"),
        ("activatoin", {}, "did you mean 'activation'"),
    ],
)
def test_a_wrong_parameter_is_named(name: str, params: dict[str, object], printed: str) -> None:
    with pytest.raises(ConfigurationError, match=printed):
        curve(name, **params)


@pytest.mark.parametrize(
    ("name", "params", "points"),
    [
        ("hiding", {"shares": (0.1, 0.4)}, (0.1, 0.4)),
        ("activation", {"steps": 2}, (0.0, 0.5, 1.0)),
        ("token-f1", {}, (10, 20, 30, 40, 50, 60, 70, 80)),
        ("token-overlap", {}, (5, 10, 20, 30, 40, 50, 75, 100)),
        ("randomisation", {}, (1.0, 2.0, 3.0)),
    ],
)
def test_the_points_of_an_axis(name: str, params: dict[str, object], points: tuple) -> None:
    assert axis_of(MetricSpec(name=name, params=params), 3) == points
