"""Two runs over the same mentions: hand-worked tables, and a test that keeps its level."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from entity_samples import mention
from scipy.stats import permutation_test

from transexplain.analysis.groups.group_table import Rules
from transexplain.analysis.groups.paired_runs import GroupShift, PairedTotals, shift_table
from transexplain.analysis.groups.resampling import sign_flip_p

Pairs = Mapping[str, Mapping[str, Sequence[tuple[float, float]]]]


def totals_of(groups: Pairs) -> PairedTotals:
    """group -> entity -> (before, after) of each mention, every mention in an item of its own."""
    totals = PairedTotals()
    for group, entities in groups.items():
        for entity, pairs in entities.items():
            for number, (before, after) in enumerate(pairs):
                item = f"{entity}-{number}"
                totals.add(
                    [mention(group, entity, before, item)], [mention(group, entity, after, item)]
                )
    return totals


def moved(group: str, changes: Sequence[float]) -> Mapping[str, Sequence[tuple[float, float]]]:
    return {f"{group}{number}": [(1.0, 1.0 + change)] for number, change in enumerate(changes)}


def rows(totals: PairedTotals, **rules: object) -> dict[str, GroupShift]:
    return {row.group: row for row in shift_table(totals, Rules(**rules))}


def test_a_table_worked_by_hand() -> None:
    found = rows(
        totals_of(
            {"a": moved("a", [1, 2, 3, 4, 5, 6]), "b": moved("b", [-1, 1, -1, 1, -1, 1])},
        ),
        practical=0.1,
        reference="b",
    )
    a, b = found["a"], found["b"]
    assert (a.entities, a.mentions, a.documents) == (6, 6, 6)
    assert (a.before, a.after, a.change) == (1.0, 4.5, 3.5)
    # t(5) at 97.5 % is 2.570582; the changes' deviation is sqrt(3.5)
    half = 2.570582 * (3.5 / 6) ** 0.5
    assert a.interval == pytest.approx((3.5 - half, 3.5 + half), abs=1e-6)
    assert a.p == pytest.approx(2 / 64), "only no flip and all flips reach the sum of 21"
    assert b.p == pytest.approx(1.0), "every sum is as far from 0 as 0"
    assert (a.adjusted_p, b.adjusted_p) == pytest.approx((2 * 2 / 64, 1.0))
    assert a.verdict == "inconclusive", "0.0625 once adjusted over two rows"
    assert a.apart == pytest.approx(3.5), "the reference did not move on average"
    assert a.apart_p is not None and a.apart_p < 0.02
    assert (b.apart, b.note) == (None, "the reference itself")


def test_the_mean_of_an_entity_is_over_its_mentions_and_the_group_s_over_its_entities() -> None:
    often = {"often": [(0.0, 1.0)] * 8, "once": [(0.0, 3.0)]}
    row = rows(totals_of({"g": often}))["g"]
    assert (row.mentions, row.entities, row.change) == (9, 2, 2.0)
    assert (row.verdict, row.interval, row.p) == ("suppressed", None, None)


def test_mentions_without_a_pair_are_counted_and_left_out() -> None:
    totals = PairedTotals()
    here = mention("g", "Ann", 1.0)
    elsewhere = replace(here, start=9, end=12)
    for_another = replace(here, class_name="negative")
    totals.add([here, elsewhere], [replace(here, relevance=2.0), for_another])
    assert totals.unpaired == 2
    (row,) = shift_table(totals, Rules())
    assert (row.class_name, row.mentions, row.change) == ("positive", 1, 1.0)


def test_five_entities_can_never_be_beyond_chance_and_the_note_says_so() -> None:
    row = rows(totals_of({"g": moved("g", [9.0] * 5)}))["g"]
    assert row.p == pytest.approx(0.0625)
    assert "0.0625 can come" in row.note
    assert row.verdict == "inconclusive"


@pytest.mark.parametrize("entities", [6, 40])
def test_a_model_that_did_not_change_is_equivalent(entities: int) -> None:
    row = rows(totals_of({"g": moved("g", [0.0] * entities)}))["g"]
    assert (row.change, row.p, row.verdict) == (0.0, 1.0, "equivalent")


def test_a_planted_change_is_found_and_an_unchanged_group_is_not_flagged() -> None:
    random = np.random.default_rng(5)
    noise = {name: random.normal(0.0, 0.05, 30) for name in "ab"}
    found = rows(
        totals_of({"a": moved("a", noise["a"] + 0.4), "b": moved("b", noise["b"])}), reference="b"
    )
    assert (found["a"].verdict, found["b"].verdict) == ("difference", "equivalent")
    assert found["a"].apart_verdict == "difference"
    low, high = found["a"].interval or (0.0, 0.0)
    assert low < 0.4 < high


def test_p_is_that_of_scipy_and_does_not_depend_on_the_order() -> None:
    changes = np.random.default_rng(2).normal(0.3, 1.0, 12)
    theirs = permutation_test((changes,), np.mean, permutation_type="samples", n_resamples=9999)
    assert sign_flip_p(changes) == pytest.approx(theirs.pvalue)
    many = np.random.default_rng(3).normal(0.3, 1.0, 50)
    assert sign_flip_p(many, seed=("x",)) == sign_flip_p(many[::-1], seed=("x",))
    drawn = permutation_test(
        (many,), np.mean, permutation_type="samples", n_resamples=9999, rng=np.random.default_rng(1)
    )
    assert sign_flip_p(many) == pytest.approx(drawn.pvalue, abs=0.01)


@pytest.mark.parametrize("entities", [7, 20])
def test_the_level_holds_where_nothing_changed_on_average(entities: int) -> None:
    random = np.random.default_rng(7)
    heavy = random.standard_t(2, (600, entities))
    rejected = np.mean([sign_flip_p(one, permutations=199) <= 0.05 for one in heavy])
    # 600 draws at 5 %: a standard error of 0.9 %
    assert 0.005 < rejected < 0.05 + 3 * 0.009


def test_no_change_at_all_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one"):
        sign_flip_p([])
