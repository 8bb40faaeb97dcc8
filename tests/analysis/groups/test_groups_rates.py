"""Shares over clusters, and the intervals of what two shares differ by."""

import math

import numpy as np
import pytest
from scipy.stats import binomtest

from transexplain.analysis.groups.intervals import Share, difference, p_outside, ratio


def alone(count: int, total: int) -> Share:
    found = Share.of([("", total - count, 0), ("", count, count)])
    assert found is not None
    return found


def test_items_of_their_own_have_wilsons_interval() -> None:
    for count, total in ((0, 20), (5, 10), (87, 120), (30, 30)):
        found = alone(count, total)
        assert (found.value, found.effective) == (count / total, total)
        wilson = binomtest(count, total).proportion_ci(method="wilson")
        assert found.interval() == pytest.approx((wilson.low, wilson.high), abs=1e-9)
    assert Share.of([]) is None


@pytest.mark.parametrize(
    ("left", "right", "known"),
    [
        ((56, 70), (48, 80), (0.0524, 0.3339)),
        ((9, 10), (3, 10), (0.1705, 0.8090)),
        ((10, 10), (0, 20), (0.6791, 1.0000)),
    ],
)
def test_a_difference_has_newcombes_interval(
    left: tuple[int, int], right: tuple[int, int], known: tuple[float, float]
) -> None:
    """Newcombe 1998, table II, method 10, cases (a), (b) and (g)."""
    assert difference(alone(*left), alone(*right)) == pytest.approx(known, abs=5e-5)


def test_a_ratio_covers_what_it_should() -> None:
    """Coverage over drawn corpora; the published method holds its level within two points."""
    rng, covered = np.random.default_rng(1), 0
    for _ in range(2_000):
        left, right = rng.binomial(90, 0.3), rng.binomial(60, 0.5)
        low, high = ratio(alone(int(left), 90), alone(int(right), 60))
        covered += low <= 0.3 / 0.5 <= high
    assert 0.93 <= covered / 2_000 <= 0.97
    low, high = ratio(alone(3, 10), alone(0, 10))
    assert low >= 0 and math.isinf(high)
    assert ratio(alone(0, 10), alone(5, 10))[0] == 0.0


def test_clusters_of_equal_answers_count_once() -> None:
    """Ten items that are all alike within each of 20 clusters tell as much as 20 items."""
    rows = [(f"author {n}", 10, 10 * (n % 2)) for n in range(20)]
    found = Share.of(rows)
    assert (found.count, found.total, found.freedom) == (100, 200, 19)
    assert found.effective == pytest.approx(19.0)
    low, high = found.interval()
    free_low, free_high = alone(100, 200).interval()
    assert high - low > 3 * (free_high - free_low)


def test_clusters_as_mixed_as_all_items_lose_nothing() -> None:
    found = Share.of([(f"author {n}", 10, 5) for n in range(20)])
    assert found is not None and found.effective == 200


def test_shares_without_variance_keep_an_interval() -> None:
    found = Share.of([(f"author {n}", 10, 0) for n in range(20)])
    assert found is not None and found.effective == pytest.approx(20.0)
    assert found.interval()[1] > 0.1
    one = Share.of([("the only author", 50, 20)])
    assert one is not None and one.interval() == (0.0, 1.0), "one cluster tells nothing"


def test_p_is_the_level_at_which_the_interval_touches_the_limit() -> None:
    left, right = alone(8, 120), alone(87, 120)
    assert p_outside(lambda level: ratio(left, right, level), 0.8, 1.25) < 1e-6
    close = alone(40, 120), alone(60, 120)
    p = p_outside(lambda level: ratio(*close, level), 0.8, 1.25)
    assert 0.0 < p < 1.0
    assert ratio(*close, 1 - p)[1] == pytest.approx(0.8, abs=1e-6)
    even = alone(50, 120), alone(51, 120)
    assert p_outside(lambda level: ratio(*even, level), 0.8, 1.25) == 1.0


def test_shares_over_the_same_templates_are_compared_within_them() -> None:
    """Forty templates, most of one mind: the rates of pairs differ by little, and surely so."""
    rng = np.random.default_rng(2)
    rows = []
    for number in range(40):
        yes = 10 * (number % 2)
        rows.append((f"{number}", 10, yes, min(10, yes + int(rng.integers(0, 2)))))
    left = Share.of((name, items, own) for name, items, own, _ in rows)
    right = Share.of((name, items, other) for name, items, _, other in rows)
    apart = Share.of((f"other {name}", items, other) for name, items, _, other in rows)
    low, high = difference(left, right)
    wide_low, wide_high = difference(left, apart)
    assert high - low < 0.25 * (wide_high - wide_low)
    assert low < left.value - right.value < high
    assert ratio(left, right)[1] < ratio(left, apart)[1]
