"""Intervals and paired comparisons, against numbers worked out by hand."""

import numpy as np
import pytest

from transexplain.evaluating.metrics.metric_table import Scored
from transexplain.reports.evaluation.score_statistics import (
    FEWEST,
    Column,
    adjust,
    differences,
    intervals,
    minus,
    wholes,
)

NONE = float("nan")


def test_the_paired_difference_and_its_exact_p() -> None:
    # differences 1, 2, 3, 4: of the 16 changes of sign only the one of all and the one of none
    # are as far from 0, so p = 2 / 16; two of them at 1, 1, 1, -1: sums +-4 twice, +-2 eight
    # times, 0 six times: |sum| >= 2 in 10 of 16
    base = [0.0, 0.0, 0.0, 0.0]
    values = np.array([base, [1.0, 2.0, 3.0, 4.0], [1.0, 1.0, 1.0, -1.0]])
    none, sure, unsure = differences(values, 0, seed=0)
    assert none is None
    assert sure is not None
    assert unsure is not None
    assert (sure.items, sure.mean, sure.p) == (4, 2.5, pytest.approx(0.125))
    assert (unsure.mean, unsure.p) == (0.5, pytest.approx(10 / 16))
    # Benjamini-Hochberg of two: the smaller is doubled, the larger stays
    assert sure.p_adjusted == pytest.approx(0.25)
    assert unsure.p_adjusted == pytest.approx(10 / 16)
    assert sure.interval is None  # fewer items than an interval is made of


def test_only_items_that_both_have_are_compared() -> None:
    values = np.array([[1.0, 2.0, NONE, 4.0], [NONE, 1.0, 9.0, 1.0], [NONE, NONE, 5.0, NONE]])
    _, found, apart = differences(values, 0, seed=0)
    assert found is not None
    assert (found.items, found.mean) == (2, -2.0)
    assert apart is None


def test_adjusted_p_leaves_out_what_was_not_tested() -> None:
    # of three p-values: 0.01 x 3 / 1, 0.02 x 3 / 2, 0.5 x 3 / 3
    assert adjust([0.02, None, 0.01, 0.5]) == pytest.approx([0.03, None, 0.03, 0.5])
    assert adjust([None]) == [None]


def test_constant_and_single_values_neither_fail_nor_warn() -> None:
    values = np.array([[1.0] * 8, [1.0] * 8, [2.0] + [NONE] * 7])
    assert intervals(values, seed=0) == [(1.0, 1.0), (1.0, 1.0), None]
    _, same, single = differences(values, 0, seed=0)
    assert same is not None
    assert single is not None
    assert (same.mean, same.p, same.interval) == (0.0, 1.0, (0.0, 0.0))
    assert (single.mean, single.p, single.p_adjusted, single.interval) == (1.0, None, None, None)
    assert intervals(np.full((1, 0), NONE), seed=0) == [None]


def test_the_interval_of_zeros_and_ones_is_that_of_the_binomial() -> None:
    # 100 items, half of them 1: the mean of a resample is Binomial(100, 1/2) / 100, whose 2.5 and
    # 97.5 % points are 0.40 and 0.60
    values = np.array([[0.0, 1.0] * 50])
    ((low, high),) = (one for one in intervals(values, seed=1) if one)
    assert low == pytest.approx(0.40, abs=0.011)
    assert high == pytest.approx(0.60, abs=0.011)
    assert intervals(values, seed=1) == [(low, high)]


def test_there_is_an_interval_from_the_fewest_items_on() -> None:
    values = np.arange(float(FEWEST))[None]
    assert intervals(values, seed=0)[0] is not None
    assert intervals(values[:, 1:], seed=0) == [None]


def share(details: object) -> Scored:
    """A value of all items together: hits among all."""
    given = list(details)  # type: ignore[call-overload]
    hits = sum(one["hits"] for one in given)
    return Scored(value=hits / sum(one["of"] for one in given), curve=(0.0, float(hits)))


def column(hits: list[int], of: list[int]) -> Column:
    pairs = enumerate(zip(hits, of, strict=True))
    return Column(details=[(number, {"hits": a, "of": b}) for number, (a, b) in pairs])


def test_a_corpus_value_is_of_all_items_and_its_interval_of_halves() -> None:
    one = column([1, 1, 1, 1, 1, 1], [1, 2, 3, 4, 5, 5])
    other = column([2, 2, 2, 2, 2, 2], [4, 4, 4, 4, 4, 4])
    first, second = wholes([one, other], share, 6, seed=0)
    assert first.scored.value == pytest.approx(6 / 20)
    assert first.scored.curve == (0.0, 6.0)
    low, high = first.interval or (0.0, 0.0)
    assert low < 0.3 < high
    assert low + high == pytest.approx(2 * 6 / 20)
    assert second.interval == (0.5, 0.5)
    found = minus(first, second)
    assert found is not None
    assert (found.items, found.mean, found.p) == (6, pytest.approx(-0.2), None)
    assert found.interval == pytest.approx((low - 0.5, high - 0.5))


def test_halves_give_the_standard_error_of_a_mean() -> None:
    (found,) = wholes([column([0, 1] * 50, [1] * 100)], share, 100, seed=0)
    low, high = found.interval or (0.0, 0.0)
    # 0.5 and 1.96 standard errors: sqrt(0.25 * 100 / 99 / 100)
    assert (low + high) / 2 == pytest.approx(0.5)
    assert (high - low) / 2 == pytest.approx(1.96 * 0.05025, rel=0.15)


def test_corpus_values_of_other_or_too_few_items_are_not_compared() -> None:
    whole, part = column([1] * 6, [2] * 6), column([1] * 3, [2] * 3)
    first, second = wholes([whole, part], share, 6, seed=0)
    assert second.interval is None
    assert minus(second, first) is None
    (nothing,) = wholes([Column()], share, 6, seed=0)
    assert (nothing.scored.value, nothing.interval) == (None, None)
