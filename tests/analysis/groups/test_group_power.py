"""Power and advice: what a run finds and shows, and the size at which a question is settled."""

import math
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.verdict_designs import Design, evidence_of
from benchmarks.verdicts import followed
from transexplain.analysis.groups.group_cells import references_of
from transexplain.analysis.groups.group_verdicts import GroupVerdict, group_verdicts
from transexplain.analysis.groups.intervals import Share
from transexplain.analysis.groups.measures import decided, effect, share_difference
from transexplain.analysis.groups.power import Precision, of_plan, of_rates

KNOWN = Precision(
    value=0.0, low=-0.1, high=0.1, texts=200, by_text=0.0004, names=24, by_name=0.0001, tested=4
)


def states(precision: Precision, truth: float, runs: int = 1_000) -> dict[str, float]:
    """The shares of simulated runs by the state of their measure, as verdicts decide it."""
    rng = np.random.default_rng(3)
    like, these = precision.like, precision.these
    counts = {"inside": 0, "outside": 0, "open": 0}
    for value in truth + like.error * rng.standard_t(like.freedom, runs):
        alike = replace(like, difference=float(value))
        read = replace(these, difference=float(value))
        one = effect("logit", 0.1, alike, read, enough=True)
        others = [replace(one, p=1.0)] * (precision.tested - 1)
        counts[decided([one, *others])[0].state] += 1
    return {state: count / runs for state, count in counts.items()}


def test_the_interval_that_is_shown_says_what_the_state_says() -> None:
    """Beyond the limit, within it, or neither: also where Holm's procedure rejects too little."""
    rng = np.random.default_rng(5)
    only_alone = 0
    for _ in range(300):
        comparisons = []
        for _ in range(int(rng.integers(1, 8))):
            sizes = rng.integers(20, 400, 2)
            rate = rng.uniform(0.1, 0.7)
            rates = rate + rng.choice([0.0, 0.15, 0.3]), rate
            own, other = (
                Share(
                    count=int(rng.binomial(size, rate)),
                    total=int(size),
                    effective=float(size),
                    freedom=math.inf,
                )
                for size, rate in zip(sizes, rates, strict=True)
            )
            comparisons.append(share_difference("rate", 0.05, own, other, 5))
        for comparison, measure in zip(comparisons, decided(comparisons), strict=True):
            low, high = measure.interval
            beyond = low > 0.05 or high < -0.05
            within = low > -0.05 and high < 0.05
            assert measure.state == ("outside" if beyond else "inside" if within else "open")
            only_alone += not beyond and comparison.inside[0] > 0.05
    assert only_alone > 10, "some are beyond the limit by themselves alone"


@pytest.mark.parametrize("precision", [KNOWN, replace(KNOWN, by_name=0.0, names=math.inf)])
def test_nine_of_ten_runs_find_and_show_what_is_promised(precision: Precision) -> None:
    assert states(precision, precision.finds)["outside"] == pytest.approx(0.9, abs=0.025)
    assert states(precision, precision.shows)["inside"] == pytest.approx(0.9, abs=0.025)


@pytest.mark.parametrize("value", [0.0, 0.07, -0.08, 0.2, -0.4])
def test_the_factor_is_the_inverse_of_the_power(value: float) -> None:
    small = replace(KNOWN, value=value, by_text=0.01, by_name=0.0, names=math.inf)
    factor = small.factor()
    assert factor > 1.0
    larger = small.at(factor)
    shown = larger.shown_outside if small.beyond else larger.shown_inside
    assert shown(small.expected) == pytest.approx(0.9, abs=0.01)


def test_no_number_of_texts_makes_up_for_few_names() -> None:
    few = replace(KNOWN, by_text=0.001, names=5, by_name=0.01)
    assert few.factor() is None
    assert few.factor(most=500) is not None


def test_a_share_of_which_nothing_was_seen_needs_texts() -> None:
    nothing = Precision(value=0.0, low=-math.inf, high=0.05, texts=30, by_text=0.0, unseen=3.0)
    assert nothing.shown_inside(0.0) == 0.0
    assert nothing.factor() == pytest.approx(2.0, abs=0.3)


def test_plans_promise_more_of_larger_runs() -> None:
    small, large = (of_plan(0.1, texts, math.inf, 8) for texts in (100, 1_000))
    assert large.finds < small.finds
    few, many = (of_rates(0.05, items, items, math.inf, 4) for items in (240, 5_000))
    assert many.finds < few.finds
    assert few.shows is None
    assert many.shows is not None


def verdict(design: Design, seed: int, names: int, *, templates: bool = False) -> GroupVerdict:
    """The verdict on the first group of a drawn corpus."""
    evidence = evidence_of(design, seed)
    known = replace(evidence, names=dict.fromkeys(design.named, names), templates=templates)
    return group_verdicts(known, references_of(design.named[-1], design.named))[0]


def test_rates_of_names_that_differ_are_limited_by_the_list() -> None:
    differing = Design(names=4, own=1.0, texts=6_000, swapped=10)
    row = verdict(differing, 2, 4)
    assert row.outcome == "open"
    assert "list is too short" in row.outcome_advice and "the difference is" in row.outcome_advice
    complete = verdict(replace(differing, complete=True), 2, 4)
    assert "list is too short" not in complete.outcome_advice
    few, many = (of_rates(0.05, 5_000, 5_000, names, 4) for names in (3, 24))
    assert few.finds > many.finds > of_rates(0.05, 5_000, 5_000, math.inf, 4).finds


def test_advice_on_texts_says_how_many_the_data_have() -> None:
    few = Design(texts=60, swapped=30, noise=0.6, own=0.0, complete=True)
    row = verdict(few, 1, 24)
    assert row.mention == "open"
    assert "data have 60" in row.mention_advice
    many = verdict(replace(few, texts=3_000), 1, 24)
    assert "raise `groups.check`" in many.mention_advice
    # more swaps find no more templates: all of them were compared
    advice = verdict(replace(few, texts=3_000), 1, 24, templates=True).mention_advice
    assert "data have 60" in advice and "groups.check" not in advice


def test_advice_followed_once_settles_most_questions() -> None:
    results = [
        result
        for name in ("complete list of 4, none", "rates, none", "rates, none, rare class")
        for seed in range(2)
        if (result := followed(name, seed)) is not None
    ]
    assert sum(settled for _, settled in results) >= 0.7 * len(results)
