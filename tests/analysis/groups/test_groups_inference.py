"""Permutation, corrections, resampling and verdicts, against hand-worked values and libraries."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.stats import binomtest

from transexplain.analysis.groups.intervals import (
    Estimate,
    Share,
    bootstrapped,
    difference,
    p_outside,
    ratio,
    welch,
)
from transexplain.analysis.groups.resampling import permutation_p, poisson_weights
from transexplain.analysis.groups.verdict_rules import adjusted, judge
from transexplain.errors import ConfigurationError

VALUES = st.lists(st.floats(-10, 10), min_size=2, max_size=7)


def every_labelling(left: list[float], right: list[float]) -> float:
    """The exact p: |Welch's t| of every way to choose the left side is at least the observed."""
    pool = left + right
    whole = set(range(len(pool)))

    def t(chosen: tuple[int, ...]) -> float:
        a, b = [pool[i] for i in chosen], [pool[i] for i in whole - set(chosen)]
        return abs(float(stats.ttest_ind(a, b, equal_var=False).statistic))

    observed = t(tuple(range(len(left))))
    ways = list(itertools.combinations(range(len(pool)), len(left)))
    return sum(t(way) >= observed - 1e-9 for way in ways) / len(ways)


def test_p_is_that_of_every_labelling_but_for_chance() -> None:
    left, right = [0.3, 1.9, 2.2, 0.8], [-0.4, 0.6, 0.1, 1.1, -1.3]
    exact = every_labelling(left, right)
    found = permutation_p(left, right, permutations=40_000)
    assert found == pytest.approx(exact, abs=4 * math.sqrt(exact * (1 - exact) / 40_000))


def test_p_does_not_depend_on_order_units_or_origin() -> None:
    left, right = [1.0, 2.0, 4.0, 3.5, 0.2], [0.5, -1.0, 0.1, 2.2, -0.7, 0.9]
    p = permutation_p(left, right, seed=("a",))
    assert permutation_p(left[::-1], right[::-1], seed=("a",)) == p
    assert permutation_p([8 * x + 4 for x in left], [8 * x + 4 for x in right], seed=("a",)) == p
    assert permutation_p(left, right, seed=("b",)) != p
    assert permutation_p(left, right, seed=("b",)) == pytest.approx(p, abs=0.02)


def test_p_is_never_zero_and_one_for_equal_values() -> None:
    assert permutation_p([1e3 + i for i in range(30)], [float(i) for i in range(30)]) == 1e-4
    assert permutation_p([2.0] * 5, [2.0] * 6) == 1.0
    with pytest.raises(ValueError, match="two entities"):
        permutation_p([1.0], [2.0, 3.0])


def test_a_large_pool_holds_its_level() -> None:
    random = np.random.default_rng(2)
    found = [
        permutation_p(list(random.normal(size=40)), list(random.normal(size=2_000)))
        for _ in range(200)
    ]
    assert 2 <= sum(p <= 0.05 for p in found) <= 20  # 5 % of 200, 3.2 standard errors either way


def test_corrections_by_hand() -> None:
    """Sorted .01 .02 .03 .5: BH times 4, 2, 4/3, 1; Holm 4, 3, 2, 1 and never falling."""
    p = [0.03, None, 0.01, 0.5, 0.02]
    assert adjusted(p, "bh") == pytest.approx([0.04, None, 0.04, 0.5, 0.04])
    assert adjusted(p, "holm") == pytest.approx([0.06, None, 0.04, 0.5, 0.06])
    harmonic = 1 + 1 / 2 + 1 / 3 + 1 / 4
    assert adjusted(p, "by") == pytest.approx(
        [0.04 * harmonic, None, 0.04 * harmonic, min(0.5 * harmonic, 1.0), 0.04 * harmonic]
    )
    assert adjusted(p, "none") == p
    assert adjusted([None], "bh") == [None]
    with pytest.raises(ConfigurationError, match=r"sidak.*bh, by, holm"):
        adjusted(p, "sidak")


@pytest.mark.filterwarnings("ignore:Precision loss:RuntimeWarning")  # scipy's, of equal values
@given(VALUES, VALUES)
def test_welch_agrees_with_scipy(left: list[float], right: list[float]) -> None:
    estimate = welch(left, right)
    if estimate.error < 1e-6:
        return
    expected = stats.ttest_ind(left, right, equal_var=False).confidence_interval()
    assert estimate.interval() == pytest.approx((expected.low, expected.high), rel=1e-6, abs=1e-9)


def test_the_bootstrap_has_the_standard_error_of_the_formula() -> None:
    random = np.random.default_rng(5)
    left, right = list(random.normal(size=80)), list(random.normal(size=60))
    weights = tuple(
        poisson_weights([f"{side}{i}" for i in range(n)], 4_000, 0)
        for side, n in (("a", 80), ("b", 60))
    )
    found, known = bootstrapped(left, right, (weights[0], weights[1])), welch(left, right)
    assert found.difference == known.difference
    assert found.error == pytest.approx(known.error, rel=0.05)


def test_weights_belong_to_the_name() -> None:
    together = poisson_weights(["Ann", "Bob", "Cyd"], 500, 7)
    assert np.array_equal(poisson_weights(["Cyd", "Ann"], 500, 7), together[[2, 0]])
    assert not np.array_equal(poisson_weights(["Ann"], 500, 8), together[:1])
    assert together.mean() == pytest.approx(1.0, abs=0.1)
    assert together.var() == pytest.approx(1.0, abs=0.15)


def estimate(difference: float, error: float) -> Estimate:
    return Estimate(difference=difference, error=error, freedom=1e6)


@pytest.mark.parametrize(
    ("difference", "error", "p", "verdict", "printed"),
    [
        (0.5, 0.1, 0.001, "difference", "0.5 logit exceeds"),
        (0.01, 0.02, 0.6, "equivalent", "lies within ±0.1"),
        (0.05, 0.01, 0.001, "equivalent", "90 % interval"),
        (0.09, 0.02, 0.001, "inconclusive", "beyond chance"),
        (0.5, 0.4, 0.2, "inconclusive", "probably have been"),
    ],
)
def test_verdicts(difference: float, error: float, p: float, verdict: str, printed: str) -> None:
    found = judge(estimate(difference, error), p, 0.1)
    assert found.verdict == verdict
    assert printed in found.reason


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(
    ("both", "verdict"),
    [((0.5, 0.1), "difference"), ((0.5, 0.4), "inconclusive"), ((-0.5, 0.1), "inconclusive")],
)
def test_an_interval_over_documents_that_holds_0_is_a_veto(both, verdict: str, sign: int) -> None:
    over_both = estimate(sign * both[0], both[1])
    assert judge(estimate(0.5 * sign, 0.1), 0.001, 0.1, both=over_both).verdict == verdict


def test_nothing_is_concluded_about_too_few() -> None:
    assert judge(None, None, 0.1).verdict == "suppressed"


def test_the_detectable_difference_is_found_four_times_in_five() -> None:
    random = np.random.default_rng(11)
    size, found, rounds = 20, 0, 2_000
    truth = Estimate(difference=0.0, error=math.sqrt(2 / size), freedom=2 * (size - 1)).detectable
    for _ in range(rounds):
        low, high = welch(
            list(random.normal(truth, 1, size)), list(random.normal(0, 1, size))
        ).interval()
        found += low > 0 or high < 0
    assert found / rounds == pytest.approx(0.8, abs=4 * math.sqrt(0.16 / rounds))


@pytest.mark.parametrize("limit", [0.0, 0.1])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_an_interval_that_ends_on_the_limit_is_not_inside(limit: float, sign: float) -> None:
    at = estimate(sign * limit, 0.0)  # its interval is the difference alone
    assert not at.inside(limit)
    assert judge(at, 0.6, limit).verdict == "inconclusive"
    if limit:
        below = estimate(sign * math.nextafter(limit, 0.0), 0.0)
        assert below.inside(limit)
        assert judge(below, 0.6, limit).verdict == "equivalent"


# ---- shares over clusters, and the intervals of what two shares differ by


def alone(count: int, total: int) -> Share:
    return Share.of([("", total - count, 0), ("", count, count)])


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
