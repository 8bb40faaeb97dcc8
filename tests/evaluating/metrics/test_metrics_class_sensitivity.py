"""Class sensitivity by hand, and of methods that ignore the class."""

import numpy as np
import pytest
from benches import ScriptedBench, bench_of, case_of, explained
from tiny_models import bert, text_items, wordpiece

import transexplain as te
from transexplain.evaluating.metrics.map_metrics import (
    class_sensitivity,
    class_sensitivity_scores,
    sensitivity_between,
)


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
        assert (sensitivity_between(first, second) == 0) == expected


def test_the_likeliest_other_class_is_explained() -> None:
    model = te.wrap(bert(), modality="text", tokenizer=wordpiece())
    cases = [
        case_of([1, 2, 3], index=0, logits=[2.0, -3.0, -1.0]),
        case_of([1, 2, 3], index=1, logits=[2.0, -3.0, -1.0]),
        case_of([1, 2, 3], index=2, logits=[2.0, 5.0, 9.0]),
        case_of([1], index=2, logits=[2.0, 5.0, 9.0]),
    ]
    bench = ScriptedBench(model, [[[3.0, 2.0, 1.0], [1.0, 3.0, 2.0], "it failed", [2.0]]])
    found = class_sensitivity_scores(bench, cases)
    assert bench.calls[0] == {"classes": [2, 0, 1, 1]}
    assert [one.value for one in found[:2]] == pytest.approx([1, 0.25])
    assert [(one.value, one.reason) for one in found[2:]] == [
        (None, "it failed"),
        (None, "one position: there is no order"),
    ]
    assert cases[0].logits.tolist() == [2, -3, -1]


def test_a_model_of_one_class_is_not_measured() -> None:
    model = te.wrap(bert(num_labels=1), modality="text", tokenizer=wordpiece())
    (found,) = class_sensitivity_scores(ScriptedBench(model, []), [case_of([1, 2], logits=[1.0])])
    assert (found.value, found.reason) == (None, "the model has one class")


def test_cases_of_real_methods_agree_with_two_targets() -> None:
    model = te.wrap(bert().double(), modality="text", tokenizer=wordpiece())
    items = text_items("a unbelievably good nice film", "x e - good film")
    for method in ("rollout", "random", "lrp"):
        bench = bench_of(model, method)
        found = class_sensitivity_scores(bench, explained(bench, items))
        for item, scored in zip(items, found, strict=True):
            first, second = te.explain(model, item, method, "top:2")
            if method == "random":  # the seed is the item's id
                assert scored.value == 0
            else:
                assert scored.value == pytest.approx(sensitivity_between(first, second))
