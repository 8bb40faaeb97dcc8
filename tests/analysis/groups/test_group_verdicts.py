"""Verdicts on groups: the mention and the outcome, each in three states."""

from collections.abc import Sequence
from functools import cache

import numpy as np
import pytest
from entity_samples import verdict_of
from test_groups_counterfactuals import ANSWER, drawn, seen
from test_groups_outcomes import CLASSES, INVITED, counted

from transexplain.analysis.groups.answers import Answer
from transexplain.analysis.groups.counterfactuals import Observation, counterfactual_table
from transexplain.analysis.groups.group_cells import references_of
from transexplain.analysis.groups.group_verdicts import GroupVerdict, MatchingLimits, with_measures
from transexplain.analysis.groups.outcomes import OutcomeTotals, outcome_table
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
    found: MatchingLimits | None = None,
    no_swaps: str = "",
    answer: Answer = INVITED,
    unlisted: Sequence[str] = (),
) -> GroupVerdict:
    references, practical = references_of("B", ["A", "B"]), Practical()
    totals = even() if totals is None else totals
    return verdict_of(
        counterfactuals=with_measures(
            counterfactual_table(observations, [answer], CLASSES, references, practical)
        ),
        outcomes=with_measures(outcome_table(totals, [answer], CLASSES, references, practical)),
        relevance=rows,
        found={"A": found} if found else {},
        no_swaps=no_swaps,
        unlisted={"A": unlisted} if unlisted else {},
        is_number=answer.is_number,
    )


def test_an_effect_of_swapping_changes_the_prediction_whatever_else_is_seen() -> None:
    verdict = judged(swapped(-0.5), rows=[relevance("equivalent")])
    assert (verdict.mention, verdict.outcome, verdict.state) == (
        "changes",
        "do not differ",
        "flagged",
    )
    row = verdict.counterfactual
    decided = row.measures[0]
    assert decided.state == "outside" and decided.p is not None and decided.p < 1e-3


def test_names_that_differ_by_chance_do_not_flag_their_group() -> None:
    mentions = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        mentions.append(judged(list(drawn(rng, lambda _: 0.0, names=5, name=0.5))).mention)
    assert set(mentions) == {"open"}


def test_rates_that_swapping_does_not_explain_differ_and_the_mention_is_cleared() -> None:
    verdict = judged(swapped(0.0), proxy())
    assert (verdict.mention, verdict.outcome) == ("does not change", "differ")
    assert verdict.rates is not None and verdict.rates.impact_ratio == pytest.approx(0.2)
    assert "predictions do (10.0" in " ".join(verdict.notes)
    assert "swapping its mentions" in " ".join(verdict.notes)
    assert verdict.state == "flagged", "a note excuses nothing"
    without = judged((), proxy(), no_swaps="the model is not available")
    assert (without.mention, without.outcome) == ("open", "differ")
    assert any("available" in note for note in without.notes)


def test_clear_needs_both_and_relevance_alone_flags_no_group() -> None:
    assert judged(swapped(0.0)).state == "clear"
    explained = judged(swapped(0.0), rows=[relevance("difference")])
    assert explained.state == "clear" and "relevance differs" in explained.notes[0]
    without = judged((), even())
    assert (without.mention, without.outcome, without.state) == ("open", "do not differ", "open")
    few = counted(("A", ">invited", 30), ("B", ">invited", 31), ("B", ">rejected", 4))
    verdict = judged(swapped(0.0), few)
    assert (verdict.mention, verdict.outcome) == ("does not change", "open")


def test_a_word_that_the_lexicon_lacks_keeps_the_mention_open() -> None:
    verdict = judged(swapped(0.0), unlisted=["she moves predictions"])
    assert verdict.mention == "open" and "she moves predictions" in verdict.mention_reasons


SCORE = Answer(name="score", plus=(0,), minus=())


def test_numbers_are_judged_by_swaps_in_their_own_unit() -> None:
    mentioned = MatchingLimits(mentions=30)
    equal = judged(swapped(0.0), proxy(), found=mentioned, answer=SCORE)
    assert (equal.mention, equal.outcome, equal.rates) == ("does not change", "open", None)
    row = equal.counterfactual
    assert (row.changed_across, row.changed_within, row.shift) == (None, None, None)
    assert {measure.name for measure in row.measures} == {"logit", "spread"}
    apart = judged(swapped(-0.5), proxy(), found=mentioned, answer=SCORE)
    assert apart.mention == "changes" and "probability" not in apart.mention_reasons[0]


def test_a_number_is_not_accused_by_a_probability_that_it_has_not() -> None:
    """0.28 of a score is within a limit of 1, whatever its sigmoid does."""
    references, practical = references_of("B", ["A", "B"]), Practical(logit=1.0)
    rows = with_measures(
        counterfactual_table(swapped(-0.28), [SCORE], CLASSES, references, practical)
    )
    assert {row.measure("logit").state for row in rows} == {"inside"}
    assert all(row.measure("probability") is None for row in rows)


def test_too_few_swaps_are_open() -> None:
    assert judged(swapped(0.0, name=0.5, texts=20)).mention == "open"
    two = judged([seen("1", "A", "a", 1.0), seen("1", "B", "b", 0.0)] * 1)
    assert two.mention == "open"


def test_opposite_effects_in_strata_change_predictions() -> None:
    rng = np.random.default_rng(1)
    mixed = list(drawn(rng, lambda text: 1.0 if text % 2 else -1.0))
    assert judged(mixed).mention == "changes"
    hidden = [seen(o.document, o.group, o.entity, o.log_odds[0]) for o in mixed]
    undeclared = judged(hidden)
    assert undeclared.mention == "changes" and undeclared.counterfactual is not None
    spread = undeclared.counterfactual.measure("spread")
    assert spread is not None and spread.state == "outside"


def test_opposite_rates_in_strata_differ() -> None:
    totals = counted(("A", ">invited", 300), ("B", ">rejected", 300), slice_="office")
    counted(("A", ">rejected", 300), ("B", ">invited", 300), slice_="shop", totals=totals)
    verdict = judged(swapped(0.0), totals)
    assert verdict.outcome == "differ" and verdict.rates is not None
    assert verdict.rates.stratum in ("office", "shop")


def test_strata_have_the_weights_of_mantel_and_haenszel() -> None:
    """Nearly all of the second stratum is of one side, so that it says little of a difference."""
    totals = counted(*((x, f">{p}", 500) for x in "AB" for p in CLASSES), slice_="office")
    shop = (("A", ">invited", 1710), ("A", ">rejected", 190), ("B", ">invited", 14))
    counted(*shop, ("B", ">rejected", 6), slice_="shop", totals=totals)
    verdict = judged(swapped(0.0), totals)
    assert verdict.outcome == "differ" and verdict.rates.stratum == ""
    assert "difference is between" in " ".join(verdict.notes)


def test_a_doubtful_stratum_keeps_the_outcome_open() -> None:
    totals = counted(*((x, f">{p}", 2000) for x in "AB" for p in CLASSES), slice_="office")
    shop = (("A", ">invited", 38), ("A", ">rejected", 22), ("B", ">invited", 24))
    counted(*shop, ("B", ">rejected", 36), slice_="shop", totals=totals)
    assert judged(swapped(0.0), totals).outcome == "open"


def test_four_names_are_enough_for_a_large_effect() -> None:
    rng = np.random.default_rng(2)
    large = judged(list(drawn(rng, lambda _: -2.0, names=4)), rows=[relevance("suppressed")])
    assert large.mention == "changes"
    quiet = judged(list(drawn(rng, lambda _: 0.0, names=4)), rows=[relevance("suppressed")])
    assert "comparison of relevance" in quiet.missing[0]


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (MatchingLimits(mentions=95, left_out=5), "places that may"),
        (MatchingLimits(mentions=100, most="Ann", most_share=0.42), "Ann is 42"),
    ],
)
def test_limits_of_the_matching_are_reported_and_nothing_is_clear(
    found: MatchingLimits, words: str
) -> None:
    verdict = judged(swapped(0.0), found=found)
    assert words in verdict.missing[0] and verdict.state == "open"
    assert not judged(swapped(0.0), found=MatchingLimits(mentions=100, left_out=1)).missing


def test_log_odds_are_the_logit_difference_to_the_other_classes() -> None:
    assert ANSWER.log_odds([0.5, 2.0]) == pytest.approx(1.5)
    three = Answer(name="a", plus=(0,), minus=(1, 2))
    odds = np.exp(1.0) / (np.exp(0.0) + np.exp(-1.0))
    assert three.log_odds([1.0, 0.0, -1.0]) == pytest.approx(np.log(odds))
    assert Answer(name="one", plus=(0,), minus=()).log_odds([0.7]) == pytest.approx(0.7)
