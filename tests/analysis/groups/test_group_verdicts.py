"""Verdicts on groups: answers first, rates second, relevance never by itself."""

from collections.abc import Sequence
from functools import cache

import numpy as np
import pytest
from test_groups_counterfactuals import ANSWER, drawn, seen
from test_groups_outcomes import CLASSES, INVITED, counted

from transexplain.analysis.groups.answers import Answer
from transexplain.analysis.groups.counterfactuals import Observation, counterfactual_table
from transexplain.analysis.groups.group_cells import references_of
from transexplain.analysis.groups.group_verdicts import (
    Evidence,
    Found,
    GroupVerdict,
    group_verdicts,
)
from transexplain.analysis.groups.outcome_totals import OutcomeTotals
from transexplain.analysis.groups.outcomes import outcome_table
from transexplain.types.findings import GroupStatistic, Practical
from transexplain.types.findings import Verdict as RelevanceVerdict


@cache
def even() -> OutcomeTotals:
    return counted(*((group, f">{printed}", 2000) for group in "AB" for printed in CLASSES))


@cache
def proxy() -> OutcomeTotals:
    return counted(
        ("A", "invited>invited", 40),
        ("A", "rejected>rejected", 360),
        ("B", "invited>invited", 200),
        ("B", "rejected>rejected", 200),
    )


def swapped(effect: float, *, name: float = 0.02, texts: int = 150) -> list[Observation]:
    return list(drawn(np.random.default_rng(4), lambda _: effect, name=name, texts=texts))


def relevance(verdict: RelevanceVerdict) -> GroupStatistic:
    return GroupStatistic(
        group="A",
        target="predicted",
        class_name="yes",
        mentions=100,
        documents=100,
        entities=20,
        mean=0.5,
        entity_mean=0.5,
        positive=0.9,
        interval=(0.4, 0.6),
        reference="B",
        difference=0.5,
        difference_interval=(0.4, 0.6),
        verdict=verdict,
    )


def judged(
    observations: Sequence[Observation] = (),
    totals: OutcomeTotals | None = None,
    *,
    rows: Sequence[GroupStatistic] = (),
    found: Found | None = None,
    no_swaps: str = "",
    answer: Answer = INVITED,
) -> GroupVerdict:
    references, practical = references_of("B", ["A", "B"]), Practical()
    evidence = Evidence(
        counterfactuals=counterfactual_table(observations, [answer], references, practical),
        outcomes=outcome_table(
            even() if totals is None else totals, [answer], CLASSES, references, practical
        ),
        relevance=rows,
        found={"A": found} if found else {},
        no_swaps=no_swaps,
        is_number=answer.is_number,
    )
    [verdict] = group_verdicts(evidence, references, practical)
    return verdict


@pytest.mark.exhaustive
def test_an_effect_of_swapping_is_different_answers_whatever_else_is_found() -> None:
    found = judged(swapped(-0.5), rows=[relevance("equivalent")])
    assert found.verdict == "different answers"
    assert "\N{MINUS SIGN}0.5" in found.reasons[0] and "logit (95 %" in found.reasons[0]
    assert found.p is not None and found.p < 1e-3
    assert found.counterfactual is not None and found.outcome is not None


def test_names_that_differ_by_chance_are_named_and_their_group_is_not_flagged() -> None:
    found = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        found.append(judged(list(drawn(rng, lambda _: 0.0, names=5, name=0.5))))
    assert {one.verdict for one in found} == {"inconclusive"}
    both = [one for one in found if "for these names" in one.reasons[0]]
    assert 2 < len(both) < 12, "only where these names do differ"
    assert all("names of each group would settle it" in one.reasons[0] for one in both)


def test_rates_that_swapping_does_not_explain_are_different_outcomes() -> None:
    found = judged(swapped(0.0), proxy())
    assert found.verdict == "different outcomes"
    assert "impact ratio 0.20" in found.reasons[0]
    assert found.reasons[1].startswith("swapping its mentions does not explain it")
    assert "labels say so of 10.0 % and 50.0 %" in found.reasons[2]
    without = judged((), proxy(), no_swaps="the model is not available")
    assert without.verdict == "different outcomes"
    assert "not known: the model is not available" in without.reasons[1]


def test_equivalent_needs_both_and_relevance_alone_flags_no_group() -> None:
    assert judged(swapped(0.0)).verdict == "equivalent"
    explained = judged(swapped(0.0), rows=[relevance("difference")])
    assert explained.verdict == "explained differently"
    assert judged((), even()).verdict == "inconclusive"
    few = counted(("A", ">invited", 30), ("B", ">invited", 25), ("B", ">rejected", 10))
    open_ = judged(swapped(0.0), few)
    assert open_.verdict == "inconclusive"
    assert "items that mention it would settle it" in open_.reasons[0]


SCORE = Answer(name="score", plus=(0,), minus=())


def test_numbers_are_judged_by_swaps_alone() -> None:
    mentioned = Found(mentions=30)
    equal = judged(swapped(0.0), proxy(), found=mentioned, answer=SCORE)
    assert equal.verdict == "equivalent" and equal.outcome is None
    assert equal.counterfactual is not None
    assert (equal.counterfactual.flips, equal.counterfactual.own_flips) == (None, None)
    assert not any(word in " ".join(equal.reasons) for word in ("rates", "answered", "; ;"))
    apart = judged(swapped(-0.5), proxy(), found=mentioned, answer=SCORE)
    assert apart.verdict == "different answers" and apart.outcome is None
    assert "points of probability" in apart.reasons[0] and "answer to" not in apart.reasons[0]
    nowhere = judged(swapped(0.0), even(), answer=SCORE)
    assert nowhere.verdict == "inconclusive" and nowhere.reasons == ("no item mentions it",)


def test_too_few_swaps_say_how_many_would_do() -> None:
    found = judged(swapped(0.0, name=0.5, texts=20))
    assert found.verdict == "inconclusive"
    assert "names of each group would settle it" in found.reasons[0]
    two = judged([seen("1", "A", "a", 1.0), seen("1", "B", "b", 0.0)] * 1)
    assert two.verdict == "inconclusive"


def test_opposite_effects_in_strata_are_different_answers() -> None:
    rng = np.random.default_rng(1)
    mixed = list(drawn(rng, lambda text: 1.0 if text % 2 else -1.0))
    found = judged(mixed)
    assert found.verdict == "different answers"
    hidden = [seen(o.document, o.group, o.entity, o.log_odds[0]) for o in mixed]
    undeclared = judged(hidden)
    assert undeclared.verdict == "different answers"
    assert "up or down, depending on the text" in undeclared.reasons[0]


def test_opposite_rates_in_strata_are_different_outcomes() -> None:
    totals = counted(("A", ">invited", 300), ("B", ">rejected", 300), slice_="office")
    totals.merge(counted(("A", ">rejected", 300), ("B", ">invited", 300), slice_="shop"))
    found = judged(swapped(0.0), totals)
    assert found.verdict == "different outcomes" and found.stratum in ("office", "shop")


def test_four_names_are_enough_for_a_large_effect() -> None:
    rng = np.random.default_rng(2)
    found = judged(list(drawn(rng, lambda _: -2.0, names=4)), rows=[relevance("suppressed")])
    assert found.verdict == "different answers"
    quiet = judged(list(drawn(rng, lambda _: 0.0, names=4)), rows=[relevance("suppressed")])
    assert "too few entities for a comparison of relevance" in quiet.missing[0]


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (Found(mentions=95, left_out=5), "5 % of the places that may mention it were left out"),
        (Found(mentions=100, most="Ann", most_share=0.42), "Ann is 42 % of its mentions"),
    ],
)
def test_limits_of_the_matching_are_reported(found: Found, words: str) -> None:
    assert words in judged(swapped(0.0), found=found).missing[0]
    assert not judged(swapped(0.0), found=Found(mentions=100, left_out=1)).missing


def test_log_odds_are_the_logit_difference_to_the_other_classes() -> None:
    assert ANSWER.log_odds([0.5, 2.0]) == pytest.approx(1.5)
    three = Answer(name="a", plus=(0,), minus=(1, 2))
    odds = np.exp(1.0) / (np.exp(0.0) + np.exp(-1.0))
    assert three.log_odds([1.0, 0.0, -1.0]) == pytest.approx(np.log(odds))
    assert Answer(name="one", plus=(0,), minus=()).log_odds([0.7]) == pytest.approx(0.7)
