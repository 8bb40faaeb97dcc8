"""Sums of relevance beside logits: exact, whatever the cut."""

import random
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import pearsonr

from transexplain.types.relevance_sums import RelevanceSums

PAIRS = st.lists(st.tuples(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6)), max_size=40)


def cut(pairs: list[tuple[float, float]], size: int) -> RelevanceSums:
    some = [pairs[at : at + size] for at in range(0, len(pairs), size)]
    return RelevanceSums.merged(
        RelevanceSums.of([f for f, _ in one], [s for _, s in one]) for one in some
    )


@given(PAIRS, st.integers(1, 9), st.randoms(use_true_random=False))
def test_every_cut_and_order_gives_the_same_bits(
    pairs: list[tuple[float, float]], size: int, order: random.Random
) -> None:
    whole = cut(pairs, 1000)
    mixed = order.sample(pairs, len(pairs))
    assert cut(pairs, size) == whole == cut(mixed, size)
    assert sum(map(Fraction, whole.totals[0]), Fraction()) == sum(Fraction(f) for f, _ in pairs)


def test_error_and_correlation_are_those_of_the_definitions() -> None:
    generator = np.random.default_rng(0)
    f = generator.normal(1.5, 0.2, 500)
    s = 0.4 * f + generator.normal(0, 0.1, 500)
    found = RelevanceSums.of(f, s)
    assert found.correlation == pytest.approx(pearsonr(f, s).statistic, rel=1e-10)
    assert found.error == pytest.approx(np.mean(np.abs(f - s) / np.abs(f)), rel=1e-12)
    turned = RelevanceSums.of(f, -s).correlation
    assert turned is not None and found.correlation == pytest.approx(-turned, rel=1e-12)


def test_what_has_no_error_or_no_correlation() -> None:
    assert RelevanceSums.of([], []).error is RelevanceSums.of([], []).correlation is None
    same = RelevanceSums.of([1.0, 2.0, 3.0], [1.0, 1.0 + 1e-15, 1.0])  # attention sums to 1
    assert same.correlation is None and same.error is not None
    zero = RelevanceSums.of([0.0, 2.0], [1.0, 1.0])
    assert (zero.count, zero.judged, zero.error) == (2, 1, 0.5)
    odd = RelevanceSums.of([np.nan, np.inf, 1e200, 2.0], [1.0, 1.0, 1.0, np.inf])
    assert (odd.count, odd.error, odd.correlation) == (0, None, None)
