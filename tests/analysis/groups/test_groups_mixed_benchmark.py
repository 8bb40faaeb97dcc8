"""The benchmark of corrected group means, on simulated relevance."""

import numpy as np
import pytest

from benchmarks.prediction_powered import parameters, study, table
from benchmarks.prediction_powered_data import Population


def made(relevance: np.ndarray) -> Population:
    rows = len(relevance)
    return Population(
        item=np.arange(rows),
        key=np.arange(rows) % 12,
        relevance=relevance,
        names=tuple((group, f"{group}{number}") for group in "AB" for number in range(6)),
        rows=rows,
    )


def test_the_study_counts_what_intervals_hold() -> None:
    draw = np.random.default_rng(3)
    exact = draw.normal(0.2, 0.3, 600)
    cheap = exact + draw.normal(0.5, 0.05, 600)
    means, differences = study(made(cheap), made(exact), 0.3, 40, 10)
    assert set(means) == set(differences) == {"A", "B"}
    for found in means.values():
        assert found.used == 40
        assert found.covered >= 34
        assert found.width < 0.6 * found.alone_width
    shown = table(means, differences, 40)
    assert shown.count("\n") == 4 and "| all |" in shown


def test_parameters_are_yaml() -> None:
    found = parameters(["gamma=0.25", "steps=8", "explainer=a=b.te"])
    assert found == {"gamma": 0.25, "steps": 8, "explainer": "a=b.te"}
    with pytest.raises(ValueError, match="NAME=VALUE, and this"):
        parameters(["steps"])
