"""Histograms of signed numbers: exact merges, quantiles near those of the sorted list."""

import json
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transexplain.analysis.groups.exact_totals import Histogram

NUMBERS = st.lists(st.floats(-1e6, 1e6, allow_subnormal=False), min_size=1, max_size=60)


def filled(values: list[float]) -> Histogram:
    found = Histogram()
    for value in values:
        found.add(value)
    return found


@given(NUMBERS, st.sampled_from([0.05, 0.25, 0.5, 0.75, 0.95, 1.0]))
def test_quantiles_are_those_of_the_sorted_list_to_half_a_percent(
    values: list[float], share: float
) -> None:
    exact = sorted(values)[max(0, int(np.ceil(share * len(values) - 1e-9)) - 1)]
    found = filled(values).quantile(share)
    assert found == pytest.approx(exact, rel=0.005001, abs=0.0)


@given(NUMBERS, st.integers(1, 5), st.randoms(use_true_random=False))
def test_any_cut_and_any_order_give_the_same_bits(
    values: list[float], cuts: int, shuffle: random.Random
) -> None:
    parts = [filled(values[i::cuts]) for i in range(cuts)]
    shuffle.shuffle(parts)
    merged = Histogram()
    for part in parts:
        merged.merge(Histogram.from_json(json.loads(json.dumps(part.to_json()))))
    assert json.dumps(merged.to_json()) == json.dumps(filled(values).to_json())


@given(NUMBERS)
def test_the_bins_of_mirrored_numbers_are_mirrored(values: list[float]) -> None:
    mirrored = filled([-value for value in values])
    assert {-place: n for place, n in filled(values).counts.items()} == dict(mirrored.counts)


def test_ends_of_the_range_and_nothing() -> None:
    assert Histogram().quantile(0.5) == 0.0
    assert filled([0.0, -0.0]).to_json() == [[0, 2]]
    tiny, huge = 5e-324, 1.7e308
    assert filled([tiny, -huge]).quantile(0.5) == pytest.approx(-huge, rel=0.006)
    assert filled([tiny]).quantile(0.5) > 0.0
    with pytest.raises(ValueError, match=r"math domain|NaN|cannot convert"):
        filled([float("nan")])
