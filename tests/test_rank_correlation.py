"""Rank correlation: scipy's where it is defined, and stated values where it is not."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr

from transexplain.rank_correlation import rank_correlation, rank_similarity

PAIRS = st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3)), min_size=2, max_size=12)


@given(PAIRS)
def test_correlation_is_that_of_scipy_or_none_where_a_side_is_constant(
    pairs: list[tuple[int, int]],
) -> None:
    left, right = zip(*pairs, strict=True)
    found = rank_correlation(left, right)
    if len(set(left)) < 2 or len(set(right)) < 2:
        assert found is None
    else:
        assert found == spearmanr(left, right).statistic


def test_two_values_may_be_too_few() -> None:
    assert rank_correlation([0, 0, 1], [1, 2, 3]) == pytest.approx(0.866, abs=1e-3)
    assert rank_correlation([0, 0, 1], [1, 2, 3], fewest=3) is None
    assert rank_correlation([], []) is None


def test_similarity_of_maps_is_always_defined() -> None:
    constant, rising = np.zeros((2, 2)), np.arange(4.0).reshape(2, 2)
    assert rank_similarity(constant, constant + 1) == 1.0
    assert rank_similarity(constant, rising) == rank_similarity(rising, constant) == 0.0
    assert rank_similarity(rising, rising) == 1.0
    assert rank_similarity(rising, -rising) == pytest.approx(-1.0)
