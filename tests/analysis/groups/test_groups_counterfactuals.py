"""Swapped names: effects by hand, intervals that hold, effects that differ between texts."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from transexplain.analysis.groups.answers import Answer
from transexplain.analysis.groups.counterfactuals import (
    Compared,
    Counterfactual,
    Observation,
    counterfactual_table,
)
from transexplain.analysis.groups.group_cells import references_of
from transexplain.analysis.groups.group_verdicts import with_measures
from transexplain.analysis.groups.measures import Comparison
from transexplain.types.findings import Practical

ANSWER = Answer(name="yes", plus=(1,), minus=(0,))


def seen(
    document: str, group: str, entity: str, value: float, positions: int = 9, **more: Any
) -> Observation:
    return Observation(
        document=document,
        group=group,
        entity=entity,
        positions=positions,
        predicted="yes" if value > 0 else "no",
        log_odds=(value,),
        **more,
    )


CLASSES = ("no", "yes")
LOGIT = ("logit", "probability")


def table(observations: list[Observation], **options: bool) -> list[Compared]:
    references = references_of("B", ["A", "B"])
    return counterfactual_table(observations, [ANSWER], CLASSES, references, Practical(), **options)


def compared(observations: list[Observation], stratum: str = "") -> Counterfactual:
    rows = with_measures(table(observations))
    [row] = [row for row in rows if row.stratum == stratum]
    assert (row.group, row.reference, row.prediction) == ("A", "B", "yes")
    return row


def states(row: Counterfactual) -> dict[str, str]:
    return {measure.name: measure.state for measure in row.measures}


def effect_of(observations: list[Observation], **options: bool) -> Comparison:
    """The comparison of the logit over all texts."""
    [comparison] = [
        comparison
        for row, several in table(observations, **options)
        for comparison in several
        if not row.stratum and comparison.name == "logit"
    ]
    return comparison


def drawn(
    rng: np.random.Generator,
    effect: Callable[[int], float],
    *,
    texts: int = 150,
    names: int = 24,
    name: float = 0.1,
    noise: float = 0.05,
) -> Iterator[Observation]:
    """Two names of either group in each text; names have effects of their own."""
    own = {f"{group}{n}": name * rng.normal() for group in "AB" for n in range(names)}
    for text in range(texts):
        base = 2 * rng.normal()
        for group in "AB":
            for n in rng.choice(names, 2, replace=False):
                entity = f"{group}{n}"
                value = base + own[entity] + (effect(text) if group == "A" else 0.0)
                value += noise * rng.normal()
                stratum = "even" if text % 2 == 0 else "odd"
                yield seen(str(text), group, entity, value, slice=stratum)


def test_the_effect_is_the_mean_over_texts_by_hand() -> None:
    row = compared(
        [
            seen("1", "A", "a", 2.0),
            seen("1", "A", "aa", 1.0),
            seen("1", "B", "b", 0.5),
            seen("2", "A", "a", -1.0),
            seen("2", "B", "b", 1.0),
            seen("2", "B", "bb", 0.0),
            seen("3", "A", "a", 9.0),  # no name of B was put into it
        ]
    )
    assert row.effect == pytest.approx(((1.5 - 0.5) + (-1.0 - 0.5)) / 2)
    assert (row.documents, row.entities, row.other_entities) == (2, 2, 2)
    # text 1: yes, yes against yes: none changes; text 2: no against yes and no: one of two
    assert row.changed_across == pytest.approx(0.25)
    # text 1: none of two pairs; text 2: the pair of B
    assert row.changed_within == pytest.approx(0.5)
    assert row.shift == pytest.approx((0.0 + (0.0 - 0.5)) / 2)
    # deviations within sides: text 1 (+-.5), text 2 (+-.5); one degree of freedom each
    assert row.noise == pytest.approx(np.sqrt((0.5 + 0.5) / 2))
    assert {measure.interval for measure in row.measures} == {None}, "two texts say nothing"
    assert set(states(row).values()) == {"open"}
    assert row.examples[0].change == pytest.approx(-2.0)
    assert (row.examples[0].entity, row.examples[0].replacement) == ("a", "b")


@pytest.mark.exhaustive
@pytest.mark.parametrize("true", [0.0, -0.3])
def test_intervals_cover_an_effect_over_names_and_texts(true: float) -> None:
    covered = accused = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        observations = list(drawn(rng, lambda _: true, texts=80, names=12))
        inside = effect_of(observations).inside
        covered += inside[0] <= true <= inside[1]
        accused += states(compared(observations))["logit"] == "outside"
    assert covered >= 0.85 * 200, "of intervals at 90 %"
    assert accused <= 2 if true == 0.0 else accused > 80


@pytest.mark.exhaustive
def test_names_that_differ_by_chance_are_no_effect_of_their_group() -> None:
    """Six names a side with effects of their own: their means differ, their groups do not."""
    accused = differ = 0
    for seed in range(200):
        rng = np.random.default_rng(700 + seed)
        observations = list(drawn(rng, lambda _: 0.0, texts=100, names=6, name=0.4))
        accused += any(states(compared(observations))[name] == "outside" for name in LOGIT)
        these = effect_of(observations, complete=True).inside
        differ += not -0.1 <= these[0] <= these[1] <= 0.1
    assert differ > 100, "these names do differ"
    assert accused <= 0.05 * 200 + 6


def test_a_complete_list_of_names_is_no_sample_of_others() -> None:
    names = list(drawn(np.random.default_rng(5), lambda _: -0.3, name=0.5))
    sample, complete = effect_of(names), effect_of(names, complete=True)
    assert complete.inside == complete.outside(0.9) == sample.outside(0.9)
    assert np.ptp(complete.inside) < 0.7 * np.ptp(sample.inside)


@pytest.mark.exhaustive
def test_names_that_differ_among_themselves_are_no_effect_that_varies() -> None:
    wrong = 0
    for seed in range(100):
        rng = np.random.default_rng(100 + seed)
        row = compared(list(drawn(rng, lambda _: 0.0, name=0.6, noise=0.0)))
        wrong += states(row)["spread"] == "outside"
    assert wrong <= 5


def test_a_template_and_an_item_of_one_name_are_two_texts() -> None:
    item = [seen("1", "A", "a", 1.0), seen("1", "B", "b", 0.0)]
    template = [
        seen("1", "A", "a", 5.0, template=True, own=True),
        seen("1", "B", "b", 1.0, template=True, own=True),
    ]
    row = compared([*item, *template])
    assert (row.documents, row.clusters, row.effect) == (2, 2, pytest.approx(2.5))


def test_a_cluster_that_is_called_as_a_text_is_not_that_text() -> None:
    texts = [
        (seen(name, "A", "a", value, cluster=cluster), seen(name, "B", "b", 0.0, cluster=cluster))
        for name, value, cluster in (("1", 1.0, ""), ("2", 2.0, "1"), ("3", 3.0, "\x001"))
    ]
    assert compared([one for pair in texts for one in pair]).clusters == 3


def test_copies_of_a_text_are_one_cluster() -> None:
    """Thirty texts each copied ten times: the interval is that of thirty."""
    rng = np.random.default_rng(8)
    thirty = list(drawn(rng, lambda text: 0.4 * float(np.sin(text * 7.0)), texts=30, name=0.0))
    copies = [
        seen(f"{one.document} {n}", one.group, one.entity, one.log_odds[0], cluster=one.document)
        for one in thirty
        for n in range(10)
    ]
    ten = compared(copies)
    assert (ten.documents, ten.clusters) == (300, 30)
    once, again = effect_of(thirty).inside, effect_of(copies).inside
    assert again == pytest.approx(once, rel=0.02)
    apart = effect_of([seen(o.document, o.group, o.entity, o.log_odds[0]) for o in copies]).inside
    assert apart[1] - apart[0] < once[1] - once[0]
    alone = compared(
        [seen(o.document, o.group, o.entity, o.log_odds[0], cluster="all") for o in thirty]
    )
    assert not alone.enough, "texts that are all one cluster tell nothing"


def test_word_pieces_are_measured_within_a_group() -> None:
    observations = []
    for text in range(20):
        for group in "AB":
            for pieces in (1, 3):
                value = 0.1 * pieces + text / 10
                name = f"{group}{pieces}"
                observations.append(seen(str(text), group, name, value, positions=8 + pieces))
    row = compared(observations)
    assert row.per_position == pytest.approx(0.1)
    assert row.effect == pytest.approx(0.0)


def test_any_order_gives_the_same() -> None:
    some = list(drawn(np.random.default_rng(1), lambda _: 0.2, texts=20))
    assert compared(some) == compared(some[::-1])


def test_one_name_a_side_is_compared_over_texts() -> None:
    observations = [
        seen(str(text), group, group.lower(), base + (0.5 if group == "A" else 0.0))
        for text, base in enumerate(np.random.default_rng(2).normal(size=30))
        for group in "AB"
    ]
    row = compared(observations)
    assert (row.entities, row.other_entities) == (1, 1)
    assert row.effect == pytest.approx(0.5) and row.noise is None
    assert states(row)["logit"] == "outside"


def test_changed_predictions_decide_although_logits_hardly_move() -> None:
    """Small logits and borderline decisions: a fifth of predictions change."""
    rng = np.random.default_rng(6)
    row = compared(
        [
            seen(str(text), group, f"{group}{n}", base + (0.04 if group == "A" else -0.04))
            for text, base in enumerate(rng.uniform(-0.18, 0.18, 200))
            for group in "AB"
            for n in range(2)
        ]
    )
    assert row.changed_across == pytest.approx(0.22, abs=0.07) and row.changed_within == 0.0
    assert states(row)["changed"] == "outside" and states(row)["logit"] != "outside"
    assert row.shift == pytest.approx(row.changed_across)


def test_predictions_that_change_within_a_group_as_well_do_not_decide() -> None:
    rng = np.random.default_rng(7)
    row = compared(list(drawn(rng, lambda _: 0.0, texts=300, noise=2.0)))
    assert row.changed_across is not None and row.changed_across > 0.2
    assert states(row)["changed"] != "outside"


def test_no_change_in_few_texts_is_no_proof_of_none() -> None:
    few = [seen(str(text), group, group, 5.0) for text in range(20) for group in "AB"]
    many = [seen(str(text), group, group, 5.0) for text in range(200) for group in "AB"]
    assert states(compared(few))["changed"] == "open", "up to 3 of 20 may change"
    assert states(compared(many))["changed"] == "inside"


@pytest.mark.parametrize(("shared", "state"), [(0.0, "inside"), (3.0, "open")])
def test_texts_of_few_clusters_count_as_far_as_they_differ(shared: float, state: str) -> None:
    """No prediction changes; texts that lie where their cluster lies say little of others."""
    rng = np.random.default_rng(7)
    places = 20.0 + shared * rng.standard_normal(8)
    observations = []
    for text in range(200):
        value = places[text % 8] + rng.normal()
        for group, entity in (("A", f"a{text % 9}"), ("B", f"b{text % 9}")):
            moved = value + rng.normal(0.0, 0.02)
            observations.append(
                seen(f"t{text}", group, entity, moved, cluster=f"author {text % 8}")
            )
    changed = compared(observations).measure("changed")
    assert changed is not None and changed.value == 0.0
    assert changed.state == state, changed.interval
