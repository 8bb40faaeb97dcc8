"""A cheap method corrected by an exact sample: formulas against loops, and what they promise."""

import json
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mixed_samples import Corpus, corpus, paired

from transexplain.bias.checked import Checked
from transexplain.bias.exact_sample import Agreement, ExactSample
from transexplain.bias.group_table import Rules, table_of
from transexplain.bias.mixed import class_agreements, mixed_groups, needed_share
from transexplain.bias.mixed_table import mixed_table
from transexplain.bias.prediction_powered import sampled, tuned

RULES = Rules(reference="B", practical=0.2, permutations=499, bare=True)


def noisy(group: str, value: float, draw: random.Random) -> float:
    return value + draw.gauss(0.3, 0.05)


def overstating(group: str, value: float, draw: random.Random) -> float:
    """Wrong about one group by half a logit."""
    return value + draw.gauss(0.5 if group == "A" else 0.0, 0.05)


def test_the_mean_and_its_variance_against_loops() -> None:
    rows = [paired(i // 2, "A", i % 3, 0.1 * i, 0.2 * i + (-1) ** i) for i in range(20)]
    weights = {("A", f"A{number}"): 1.0 / (number + 1) for number in range(3)}
    found = sampled(rows, weights, 0.25)
    w = [weights[one.group, one.entity] for one in rows]
    d = [one.exact - one.cheap for one in rows]
    mean = sum(a * b for a, b in zip(w, d, strict=True)) / sum(w)
    assert found.mean == pytest.approx(mean)
    assert found.items == 10
    squares = 0.0
    for item in range(10):
        mine = [i for i in range(20) if i // 2 == item]
        own = sum(w[i] for i in mine)
        without = sum(w[i] * d[i] for i in range(20) if i not in mine) / (sum(w) - own)
        squares += (mean - without) ** 2  # the jackknife: the mean without the item
    assert found.variance == pytest.approx(0.75 * squares)
    sizes = [sum(w[2 * item : 2 * item + 2]) for item in range(10)]
    freedom = sum(s * s for s in sizes) ** 2 / sum(s**4 for s in sizes)
    assert found.freedom == pytest.approx(min(freedom, 9))


def test_lambda_leaves_the_smallest_variance() -> None:
    [*rows] = corpus({"A": 0.2}, lambda _, x, draw: 2 * x + draw.gauss(0, 0.3)).rows
    weights = {(one.group, one.entity): 1.0 for one in rows}
    best = tuned(rows, weights)
    assert 0.0 < best < 1.0
    least = _linear(rows, weights, best)
    for other in (0.0, best - 0.05, best + 0.05, 1.0):
        assert least < _linear(rows, weights, other)


def _linear(rows: list, weights: dict, scale: float) -> float:  # type: ignore[type-arg]
    found = sampled(rows, weights, 0.0, scale=scale)
    return math.fsum(u * u for u in found.influences.values())


def test_a_method_that_says_nothing_is_left_out() -> None:
    made = corpus({"A": 0.2}, lambda _, x, draw: -x)
    sample, fraction = made.sample(0.3)
    [row] = mixed_groups(made.cells(), sample, fraction)
    assert row.weight == 0.0
    assert row.interval == row.alone_interval and row.corrected == row.alone


def test_the_same_method_twice_needs_no_correction() -> None:
    made = corpus({"A": 0.2, "B": 0.0}, lambda _, x, draw: x)
    sample, fraction = made.sample(0.2)
    for row in mixed_groups(made.cells(), sample, fraction):
        assert row.correction == pytest.approx(0.0, abs=1e-12)
        assert row.interval is not None
        assert row.interval == pytest.approx((row.cheap, row.cheap))
    plain = table_of(made.cells(), RULES)
    for ours, theirs in zip(mixed_table(made.cells(), RULES, sample, fraction), plain, strict=True):
        assert ours.verdict == theirs.verdict
        assert ours.entity_mean == pytest.approx(theirs.entity_mean)


def test_a_whole_sample_gives_the_exact_method() -> None:
    made = corpus({"A": 0.2, "B": 0.0}, overstating)
    sample, fraction = made.sample(1.1)
    assert fraction == 1.0
    exact = {row.group: row for row in table_of(made.cells(exact=True), RULES)}
    for row in mixed_groups(made.cells(), sample, fraction):
        assert row.corrected == pytest.approx(exact[row.group].mean)
        assert row.interval == pytest.approx((row.corrected, row.corrected))
    for one in mixed_table(made.cells(), RULES, sample, fraction):
        known = exact[one.group]
        assert one.entity_mean == pytest.approx(known.entity_mean)
        assert one.interval == pytest.approx(known.interval, rel=1e-6)
        if known.difference is not None:
            assert one.difference == pytest.approx(known.difference)
            assert one.difference_interval == pytest.approx(known.difference_interval, rel=1e-6)


def test_a_wrong_cheap_method_makes_no_wrong_claim() -> None:
    made = corpus({"A": 0.0, "B": 0.0}, overstating)
    cheap = {row.group: row for row in table_of(made.cells(), RULES)}
    assert cheap["A"].verdict == "difference"
    for seed in range(20):
        sample, fraction = made.sample(0.2, seed)
        found = {row.group: row for row in mixed_table(made.cells(), RULES, sample, fraction)}
        assert found["A"].verdict != "difference"
        assert abs(found["A"].difference or 9.0) < 0.15


def test_a_difference_that_the_cheap_method_hides_is_found() -> None:
    made = corpus({"A": 0.6, "B": 0.0}, lambda group, x, _: x - 0.6 * (group == "A"))
    assert all(row.verdict != "difference" for row in table_of(made.cells(), RULES))
    sample, fraction = made.sample(0.3)
    [row] = [one for one in mixed_table(made.cells(), RULES, sample, fraction) if one.p]
    assert row.verdict == "difference"
    assert row.difference == pytest.approx(0.6, abs=0.2)


def test_too_small_a_sample_corrects_nothing() -> None:
    made = corpus({"A": 0.5, "B": 0.0}, noisy)
    sample, fraction = made.sample(0.02)
    for group in mixed_groups(made.cells(), sample, fraction):
        assert group.interval is None and group.correction is None
        assert group.needed is not None and group.needed * group.documents >= 30
    [row] = [one for one in mixed_table(made.cells(), RULES, sample, fraction) if one.difference]
    assert (row.verdict, row.p) == ("inconclusive", None)
    assert "exact_sample: " in row.reason and "not corrected" in row.note


def test_rare_entities_need_a_larger_sample() -> None:
    made = corpus({"B": 0.0}, noisy)
    rare = [paired(10_000 + n, "A", n, 0.4, 0.5) for n in range(6)]
    often = [paired(20_000 + n, "A", 7, 0.4, 0.5) for n in range(400)]
    made = Corpus((*made.rows, *rare, *often))
    sample, fraction = made.sample(0.2)
    [row] = [one for one in mixed_table(made.cells(), RULES, sample, fraction) if one.difference]
    assert row.verdict == "inconclusive" and "seldom" in row.reason
    assert needed_share(5.0) == 1.0


def test_no_sample_at_all() -> None:
    made = corpus({"A": 0.5, "B": 0.0}, noisy)
    rows = mixed_table(made.cells(), RULES, ExactSample(), 0.0)
    assert {row.verdict for row in rows} == {"inconclusive", "suppressed"}


@pytest.mark.parametrize("cheap", [noisy, overstating])
def test_intervals_hold_the_exact_mean(cheap) -> None:  # type: ignore[no-untyped-def]
    made = corpus({"A": 0.3, "B": 0.0}, cheap, mentions=20)
    truth = {row.group: row.cheap for row in mixed_groups(made.cells(True), ExactSample(), 0.0)}
    cells, held, asked, widths = made.cells(), 0, 0, []
    for seed in range(400):
        for row in mixed_groups(cells, *made.sample(0.3, seed)):
            assert row.interval is not None and row.narrowing is not None
            held += row.interval[0] <= truth[row.group] <= row.interval[1]
            asked += 1
            widths.append(row.narrowing)
    assert 0.93 < held / asked < 0.97  # 800 intervals: 0.8 % is one standard error
    assert max(widths) < 0.6


PAIR = st.builds(
    paired,
    st.integers(0, 3),
    st.sampled_from("AB"),
    st.integers(0, 2),
    st.floats(-2, 2),
    st.floats(-2, 2),
)
AGREEMENT = st.builds(
    Agreement,
    item_id=st.sampled_from("xyz"),
    target=st.just("t"),
    class_name=st.sampled_from("cd"),
    correlation=st.none() | st.floats(-1, 1),
    error=st.none() | st.floats(0, 3),
    cheap=st.floats(-2, 2),
    exact=st.floats(-2, 2),
)
SAMPLE = st.builds(
    ExactSample,
    items=st.integers(0, 5),
    failed=st.integers(0, 5),
    agreements=st.lists(AGREEMENT, max_size=4),
    mentions=st.lists(PAIR, max_size=4),
)


@given(st.lists(SAMPLE, max_size=4), st.randoms())
def test_any_order_of_merging_gives_the_same(parts: list[ExactSample], draw: random.Random) -> None:
    texts = [json.dumps(Checked(exact=part).to_json()) for part in parts]
    one, other = Checked(), Checked()
    for text in texts:
        one.merge(Checked.from_json(json.loads(text)))
    draw.shuffle(texts)
    for text in texts:
        other.merge(Checked.from_json(json.loads(text)))
    assert one.to_json() == other.to_json()
    if one.exact and other.exact:
        assert class_agreements(one.exact.agreements) == class_agreements(other.exact.agreements)


def test_a_plain_run_keeps_nothing() -> None:
    assert "exact" not in Checked().to_json()
    assert Checked.from_json(Checked().to_json()).exact is None
