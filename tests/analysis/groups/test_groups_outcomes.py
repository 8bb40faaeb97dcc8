"""Answers by the groups that items mention: counted exactly, compared with the right items."""

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from plain_records import new_outcome

from transexplain.analysis.groups.answers import Answer, probability
from transexplain.analysis.groups.group_cells import references_of
from transexplain.analysis.groups.group_verdicts import with_measures
from transexplain.analysis.groups.measures import Measure, MeasureName
from transexplain.analysis.groups.outcomes import Outcome, OutcomeTotals, outcome_table
from transexplain.store.exact_sums import UNITS, Sums, exact
from transexplain.types.findings import Practical

ITEM = new_outcome(predicted="invited", logits=(0.0, 1.0))
CLASSES = ("rejected", "invited")
INVITED = Answer(name="invited", plus=(1,), minus=(0,))


def counted(
    *rows: tuple[str, str, int], totals: OutcomeTotals | None = None, **more: Any
) -> OutcomeTotals:
    """(groups, a letter each; "label>predicted"; how many) -> totals of such items."""
    totals = totals or OutcomeTotals()
    for groups, answer, count in rows:
        label, _, predicted = answer.rpartition(">")
        for number in range(count):
            outcome = new_outcome(
                item_id=f"{groups} {answer} {number}",
                label=label or None,
                predicted=predicted,
                logits=(0.0, 2.0 if predicted == "invited" else -2.0),
            )
            totals.add(outcome, set(groups), answers=(INVITED,), **more)
    return totals


def table(totals: OutcomeTotals, names: str = "AB", reference: Any = None) -> list[Outcome]:
    references = references_of(reference, list(names))
    return with_measures(outcome_table(totals, [INVITED], CLASSES, references, Practical()))


def measure(row: Outcome, name: MeasureName = "rate") -> Measure:
    return row.measure(name)


ITEMS = (
    ("A", "invited>rejected", 30),
    ("A", "rejected>rejected", 82),
    ("A", "invited>invited", 8),
    ("B", "invited>invited", 80),
    ("B", "rejected>invited", 7),
    ("B", "rejected>rejected", 33),
    ("", "rejected>rejected", 500),
)


def test_rates_and_errors_by_hand() -> None:
    [row] = table(counted(*ITEMS), reference="B")
    assert (row.group, row.reference, row.prediction, row.stratum) == ("A", "B", "invited", "")
    assert (row.own.selected.count, row.own.selected.total) == (8, 120)
    assert (row.other.selected.count, row.other.selected.total) == (87, 120)
    assert row.impact_ratio == pytest.approx(8 / 87)
    p = measure(row).p
    assert measure(row).state == "outside" and p is not None and p < 1e-9
    assert measure(row, "true positive rate").state == "outside"
    assert row.measure("impact ratio") is None, "no class is declared favourable"
    own = row.own
    assert own.labelled is not None and own.labelled.share == 38 / 120
    assert own.error is not None and own.error.count == 30
    assert own.true_positive is not None and own.true_positive.share == 8 / 38
    assert own.false_positive is not None and own.false_positive.count == 0
    assert own.precision is not None and own.precision.share == 1.0
    # two logits apart: probability 0.881 where invited, 0.119 where not
    mean = (8 * 0.880797 + 112 * 0.119203) / 120
    assert own.probability.value == pytest.approx(mean, abs=1e-5)
    assert own.calibration == pytest.approx(mean - 38 / 120, abs=1e-5)


def test_items_that_mention_both_count_on_both_sides_of_one_group_and_not_of_many() -> None:
    totals = counted(("A", ">invited", 20), ("B", ">rejected", 20), ("AB", ">invited", 10))
    against_one = table(totals, reference="B")
    assert [(r.own.selected.total, r.other.selected.total) for r in against_one] == [(30, 30)]
    three = counted(("A", ">invited", 20), ("B", ">rejected", 20), ("AC", ">invited", 10))
    rows = {row.group: row for row in table(three, "ABC")}
    assert (rows["A"].own.selected.total, rows["A"].other.selected.total) == (30, 20)


def test_a_group_alone_is_compared_with_items_that_do_not_mention_it() -> None:
    [row] = table(counted(("A", ">invited", 20), ("", ">rejected", 30)), "A")
    assert (row.own.selected.total, row.other.selected.total) == (20, 30)


def test_a_rate_of_nobody_has_no_ratio_and_few_items_no_interval() -> None:
    [row] = table(counted(("A", ">invited", 20), ("B", ">rejected", 20)), reference="B")
    assert row.impact_ratio is None and measure(row).state == "outside"
    [row] = table(counted(("A", ">invited", 5), ("B", ">rejected", 50)), reference="B")
    assert measure(row).interval is None and measure(row).state == "open"
    assert not table(counted(("A", ">invited", 50)), reference="B"), "nobody mentions B"


def test_without_logits_rates_are_known_and_probabilities_are_not() -> None:
    outcome = new_outcome(predicted="invited", logits=(1.5,))
    totals = OutcomeTotals()
    for group in ("A", "B"):
        for _ in range(12):
            totals.add(outcome, {group}, answers=(INVITED,))
    [row] = table(totals, reference="B")
    assert row.own.selected.share == 1.0 and row.own.probability is None
    assert row.own.labelled is None and row.own.error is None


def test_items_counted_together_have_the_sums_of_each() -> None:
    many = [random.Random(seed).gauss(0, 4) for seed in range(3000)]
    answers = (INVITED, Answer(name="all", plus=(0, 1), minus=(2,)))
    totals, entry = OutcomeTotals(), [0] * 6
    for number, value in enumerate(many):
        outcome = replace(ITEM, item_id=str(number), logits=(0.5, value, -0.25))
        totals.add(outcome, {"A"}, answers=answers)
        chances = [float(probability(one.odds_of(outcome.logits))) for one in answers]
        parts = [exact(part) for one in chances for part in (one, one * one)]
        entry = [have + more for have, more in zip(entry, [1, 1, *parts], strict=True)]
        if number == 1500:  # whatever is counted by then
            assert totals
    [(situation, tally)] = totals
    assert situation.groups == ("A",)
    assert (tally.items, tally.measured) == (3000, 3000)
    assert tally.probabilities == tuple(one / UNITS for one in entry[2::2])
    assert tally.squares == tuple(one / UNITS for one in entry[3::2])


def drawn(seed: int, *, own: float, together: int = 1, sampled: bool = True) -> OutcomeTotals:
    """400 items a group with `together` of its 12 names each, which have effects of their own."""
    rng, totals = np.random.default_rng(seed), OutcomeTotals()
    for group in "AB":
        effects = own * rng.normal(size=12)
        for _ in range(400):
            cast = rng.choice(12, together, replace=False)
            value = 2.0 * rng.normal() + effects[cast].sum()
            totals.add(
                replace(ITEM, predicted=CLASSES[int(value > 0)]),
                {group},
                answers=(INVITED,),
                names=[(group, f"{group} {name}") for name in cast] if sampled else (),
            )
    return totals


@pytest.mark.parametrize(("own", "together"), [(0.0, 1), (0.6, 3)])
def test_intervals_hold_the_truth_of_names_that_are_a_sample(own: float, together: int) -> None:
    def held(*, sampled: bool) -> int:
        """In how many of 80 corpora the interval holds 0, the truth of other names."""
        references, count = references_of("B", ["A", "B"]), 0
        for seed in range(80):
            totals = drawn(seed, own=own, together=together, sampled=sampled)
            [(_, [rate])] = outcome_table(totals, [INVITED], CLASSES, references, Practical())
            low, high = rate.outside(0.95)
            count += low <= 0.0 <= high
        return count

    assert 70 <= held(sampled=True) <= 80, "95 %, less three standard errors"
    assert not own or held(sampled=False) < 65, "items of one name are alike"


def test_names_of_other_groups_and_single_names_change_no_interval() -> None:
    alone = table(drawn(1, own=1.0, sampled=False), reference="B")
    other, single = drawn(1, own=1.0, sampled=False), OutcomeTotals()
    for predicted in CLASSES * 50:
        outcome = replace(ITEM, predicted=predicted)
        other.add(outcome, {"C"}, answers=(INVITED,), names=[("C", predicted)])
        single.add(outcome, {"A"}, answers=(INVITED,), names=[("A", "their only name")])
        single.add(outcome, {"B"}, answers=(INVITED,), names=[("B", "his only name")])
    assert table(other, reference="B") == alone
    [row] = table(single, reference="B")
    [same] = table(counted(*((g, f">{c}", 50) for g in "AB" for c in CLASSES)), reference="B")
    assert row.own.selected == same.own.selected
    assert (
        table(drawn(1, own=1.0), reference="B")[0].own.selected.interval[0]
        < (alone[0].own.selected.interval[0])
    )


def test_names_merge_to_the_same_bits_in_any_order_and_are_counted_apart() -> None:
    parts = [drawn(seed, own=0.5, together=2) for seed in range(4)]
    first, last = together(parts), together(parts[::-1])
    assert list(first) == list(last) and first.by_name() == last.by_name()
    assert sum(tally.items for _, tally in first) == 3200
    assert sum(items for _, items in first.by_name()) == 6400
    assert first.answers == {1}
    plain = together([drawn(seed, own=0.5, together=2, sampled=False) for seed in range(4)])
    assert list(plain) == list(first) and not plain.by_name()


def together(parts: Sequence[OutcomeTotals]) -> OutcomeTotals:
    """Their sums, as they are saved and read."""
    sums = Sums()
    for part in parts:
        part.count_waiting()
        sums.add_packed(part.sums.packed())
    return OutcomeTotals(sums)


def test_more_names_than_numbers_share_them() -> None:
    totals = OutcomeTotals()
    for number in range(12_000):
        totals.add(ITEM, {"A"}, answers=(INVITED,), names=[("A", f"name {number}")])
    assert len(totals.by_name()) <= 4096
    assert sum(items for _, items in totals.by_name()) == 12_000
