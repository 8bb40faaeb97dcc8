"""Class sensitivity by hand, and of methods that ignore the class."""

import numpy as np
import pytest
from tiny_models import bert, wordpiece

import transexplain as te
from transexplain.metrics.class_sensitivity import class_sensitivity, of_attributions


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ([1, 2, 3, 4], [1, 2, 3, 4], 0),
        ([1, 2, 3, 4], [10, 20, 30, 400], 0),
        ([1, 2, 3, 4], [-1, -2, -3, -4], 1),
        ([1, 2, 3], [1, 3, 2], 0.25),  # rho = 1 - 6 * 2 / (3 * 8) = 0.5
        ([0, 0, 0], [0, 0, 0], 0),
        ([2, 2, 2], [1, 1, 1], 0),
        ([2, 2, 2], [1, 2, 1], 0.5),
        ([[1, 2], [3, 4]], [[4, 3], [2, 1]], 1),
    ],
)
def test_by_hand(one: list[float], other: list[float], expected: float) -> None:
    found = class_sensitivity(np.array(one, dtype=float), np.array(other, dtype=float))
    assert found == pytest.approx(expected)


def test_methods_that_ignore_the_class_have_none() -> None:
    model = te.wrap(bert().double(), modality="text", tokenizer=wordpiece())
    for method, expected in (("rollout", True), ("random", True), ("lrp", False)):
        first, second = te.explain(model, "a unbelievably good nice film", method, "top:2")
        assert (of_attributions(first, second) == 0) == expected
