"""The group table: hand-worked rows, who is compared with whom, and what the verdicts depend on."""

import random

import numpy as np
import pytest
from entity_samples import POSITIVE, mention, totals_of
from plain_records import new_mention
from scipy.stats import ttest_rel

from transexplain.analysis.groups.entity_totals import EntityTotals, Stratum
from transexplain.analysis.groups.group_cells import cells_of
from transexplain.analysis.groups.group_controls import placebo
from transexplain.analysis.groups.group_table import (
    PARTS,
    Rules,
    Split,
    group_table,
    splits,
    with_reversals,
)
from transexplain.types.findings import GroupStatistic


def table(totals: EntityTotals, **rules: object) -> dict[str, GroupStatistic]:
    rows = group_table(totals, Rules(**rules))
    assert len({row.group for row in rows}) == len(rows)
    return {row.group: row for row in rows}


def test_golden_row_by_hand() -> None:
    """Means 1..5 against -2..2, worked out with a printed table of Student's t.

    Each side: variance 2.5, squared error .5; t(.975, 4) = 2.776445, half width 1.963243.
    Difference 3, squared error 1, Welch's freedom 1 / (.25/4 + .25/4) = 8; t(.975, 8) = 2.306004,
    t(.8, 8) = .888890. Of the 252 labellings 10 have a t as large: p is near .040.
    """
    rows = table(totals_of({"A": [1, 2, 3, 4, 5], "B": [2, 1, 0, -1, -2]}))
    row = rows["A"]
    assert row.entity_mean == 3.0
    assert row.interval == pytest.approx((3 - 1.963243, 3 + 1.963243), abs=1e-6)
    assert row.difference == 3.0
    assert row.difference_interval == pytest.approx((3 - 2.306004, 3 + 2.306004), abs=1e-6)
    assert row.interval_by == "t"
    assert row.detectable == pytest.approx(2.306004 + 0.888890, abs=1e-5)
    assert row.p == pytest.approx(10 / 252, abs=0.008)
    assert row.adjusted_p == pytest.approx(max(row.p, rows["B"].p or 0), abs=1e-12)
    assert row.verdict == "difference"
    assert row.flagged
    assert row.reference == "all other groups"
    assert (
        row.note == "every entity is mentioned once: its effect cannot be separated from its item"
    )
    assert rows["B"].difference == -3.0


def test_counts_and_the_two_means_by_hand() -> None:
    row = table(totals_of({"A": {"x": [1.0, 2.0, 0.0], "y": [-2.0]}}))["A"]
    assert (row.mentions, row.documents, row.entities) == (4, 4, 2)
    assert row.mean == 0.25
    assert row.entity_mean == -0.5
    assert row.positive == 0.5


def test_rank_and_quantiles_by_hand() -> None:
    totals = EntityTotals()
    for entity, amounts, ranks in (("x", [1.0, 2.0, 0.0], [1.0, 0.5, 0.0]), ("y", [-2.0], [0.25])):
        for amount, rank in zip(amounts, ranks, strict=True):
            totals.add(POSITIVE, [mention("A", entity, amount)], 2.0, [rank])
    row = table(totals)["A"]
    assert row.rank == (0.5 + 0.25) / 2, "entities weigh alike"
    spread = [getattr(row.quantiles, name) for name in ("low", "lower", "median", "upper", "high")]
    assert spread == pytest.approx([-2.0, -2.0, 0.0, 1.0, 2.0], rel=0.005)
    unranked = table(totals_of({"A": [1.0] * 5}))["A"]
    assert unranked.rank is None and unranked.quantiles is not None


def test_suppressed_below_five_entities_on_either_side() -> None:
    rows = table(totals_of({"A": [1.0] * 4, "B": [0.0] * 5}))
    assert rows["A"].interval is None
    assert rows["A"].note == "fewer than 5 entities"
    assert rows["B"].interval == (0.0, 0.0)
    assert rows["B"].note == "reference has fewer than 5 entities"
    for row in rows.values():
        assert (row.difference, row.difference_interval, row.p) == (None, None, None)
        assert (row.verdict, row.flagged) == ("suppressed", False)


def test_mentions_of_one_entity_prove_nothing() -> None:
    """500 mentions of each of five names, one of which stands out: Welch over mentions is sure."""
    names = {f"a{i}": [0.3 if i else 4.0] * 500 for i in range(5)}
    row = table(totals_of({"A": names, "B": [0.2, 0.4, 0.3, 0.1, 0.5]}))["A"]
    assert row.difference == pytest.approx(0.74)
    assert row.p is not None and row.p > 0.2
    assert row.verdict == "inconclusive"


@pytest.mark.parametrize(
    ("shift", "practical", "verdict"),
    [
        (0.5, 0.1, "difference"),
        (-0.5, 0.1, "difference"),
        (0.5, 0.5, "inconclusive"),
        (0.05, 0.1, "equivalent"),
        (0.0, 0.1, "equivalent"),
    ],
)
def test_a_difference_needs_both_certainty_and_size(shift: float, practical: float, verdict: str):
    spread = [-0.01, 0.0, 0.01, -0.02, 0.02, 0.005]
    totals = totals_of({"A": [s + shift for s in spread], "B": spread})
    assert table(totals, practical=practical)["A"].verdict == verdict


def test_a_named_reference_is_the_only_one_compared_to() -> None:
    rows = table(totals_of({"A": [1.0] * 5, "B": [50.0] * 5, "C": [0.5] * 5}), reference="C")
    assert rows["A"].difference == 0.5
    assert rows["A"].reference == "C"
    assert rows["C"].difference is None
    assert (rows["C"].note, rows["C"].flagged) == ("the reference itself", False)


def test_an_absent_reference_is_reported() -> None:
    row = table(totals_of({"A": [1.0] * 5}), reference="Z")["A"]
    assert (row.difference, row.note) == (None, "no reference entity was mentioned")


def test_entities_shared_between_groups_count_on_one_side_only() -> None:
    def named(words: str, value: float) -> dict[str, list[float]]:
        return {word: [value] for word in words}

    groups = {"some": named("abcde", 1.0), "all": named("abcdefghij", 0.0)}
    row = table(totals_of({**groups, "again": named("fghij", 0.0), "far": named("k", 5.0)}))["some"]
    assert row.difference == pytest.approx(1.0 - 5.0 / 6.0)  # f..j once each, and k
    assert row.note.startswith("5 entities shared with the reference count for the group only; ")


def test_classes_and_targets_are_apart_and_strata_are_not() -> None:
    five, none = [1.0] * 5, [0.0] * 5
    totals = totals_of({"A": five, "B": none}, Stratum("predicted", "positive", "positive", "x"))
    totals_of({"A": [3.0] * 5}, Stratum("predicted", "positive", "negative", "y"), totals)
    totals_of({"B": none}, Stratum("all", "positive"), totals)
    got = {
        (row.target, row.class_name, row.group): row.difference
        for row in group_table(totals, Rules())
    }
    assert got == {
        ("all", "positive", "B"): None,
        ("predicted", "positive", "A"): 2.0,
        ("predicted", "positive", "B"): -2.0,
    }


def test_the_family_is_the_whole_table() -> None:
    draw = random.Random(4)
    groups = {f"g{i}": [draw.gauss(0, 1) for _ in range(8)] for i in range(12)}
    groups["odd"] = [draw.gauss(1.4, 1) for _ in range(8)]
    plain, strict = (table(totals_of(groups), correction=how) for how in ("none", "holm"))
    assert plain["odd"].adjusted_p == plain["odd"].p
    assert strict["odd"].p == plain["odd"].p
    assert strict["odd"].adjusted_p == pytest.approx(min(1.0, 13 * (plain["odd"].p or 0)))


def test_large_groups_are_resampled_and_say_so() -> None:
    draw = random.Random(1)
    groups = {name: [draw.gauss(0, 1) for _ in range(40)] for name in "AB"}
    row = table(totals_of(groups))["A"]
    assert row.interval_by == "bootstrap"
    again = table(totals_of({"B": groups["B"], "A": groups["A"]}))["A"]
    assert again == row, "the order of groups does not matter"


def test_robustness_rows() -> None:
    totals = totals_of({"A": [1, 2, 3, 4, 5], "B": [2, 1, 0, -1, -2]})
    share, mentions = table(totals)["A"].robustness
    assert (share.name, share.difference) == ("share of |R|", 1.5)  # magnitude 2 in each item
    assert mentions.difference == 3.0
    # one mention per document and entity: all three variances are one, 2 * 10 / 25 * 5 / 4
    half = 2.776445 * (2 * 10 / 25 * 5 / 4) ** 0.5
    assert mentions.interval == pytest.approx((3 - half, 3 + half), abs=1e-5)


def clustered(shift: float, clusters: int) -> EntityTotals:
    """Ten names a group, each once in each of its `clusters`, which add far more than names do."""
    draw, totals = random.Random(2), EntityTotals()
    for group in "AB":
        for cluster in range(clusters):
            added = draw.gauss(shift if group == "A" else 0.0, 0.5)
            for name in range(10):
                reported = [mention(group, f"{group}{name}", added + draw.gauss(0.0, 0.05))]
                totals.add(POSITIVE, reported, 2.0, cluster=f"{group}{cluster}")
    return totals


def test_names_alone_do_not_decide_where_clusters_are_few() -> None:
    row = table(clustered(0.8, 3))["A"]
    assert row.p is not None and row.p < 0.001
    assert row.verdict == "inconclusive"
    assert "entities and documents" in row.reason
    assert row.robustness[-1].name == "over mentions, by entity and cluster"
    low, high = row.robustness[-1].interval
    assert low <= 0.0 <= high
    assert table(clustered(0.8, 40))["A"].verdict == "difference"
    assert table(clustered(-0.8, 40))["A"].flagged


def test_one_cluster_is_suppressed_and_says_so() -> None:
    rows = table(clustered(5.0, 1))
    for row in rows.values():
        assert (row.verdict, row.difference, row.p) == ("suppressed", None, None)
        assert row.note == "all mentions of a side are in one cluster"
        assert row.reason == "all mentions of a side are in one cluster"


def test_uneven_mentions_are_noted() -> None:
    names = {f"a{i}": [0.1 * i] * 2 for i in range(8)} | {"Ada": [0.3] * 9}
    rows = table(totals_of({"A": names, "B": {f"b{i}": [0.0, 0.1] for i in range(5)}}))
    assert rows["A"].note == "'Ada' has 36% of the group's mentions"
    assert rows["B"].note == ""


FAMILIES = {
    "gender/female": [1.0, 2.0, 3.0, 4.0, 5.0],
    "gender/male": [2.0, 1.0, 0.0, -1.0, -2.0],
    "nation/french": [60.0, 61.0, 62.0, 63.0, 64.0],
    "nation/german": [60.0, 61.0, 62.0, 63.0, 65.0],
}


def test_a_group_is_compared_with_its_family() -> None:
    """The nations would move the reference of the genders by 40; the golden row stays."""
    rows = table(totals_of(FAMILIES))
    alone = table(totals_of({name: FAMILIES[name] for name in ("gender/female", "gender/male")}))
    female = rows["gender/female"]
    assert female.reference == "all other groups of gender"
    assert (female.difference, female.p) == (3.0, alone["gender/female"].p)
    assert female.difference_interval == alone["gender/female"].difference_interval
    assert rows["nation/german"].difference == pytest.approx(0.2)


def test_relatives_that_nobody_mentions_are_still_the_family() -> None:
    some = {name: values for name, values in FAMILIES.items() if name != "nation/french"}
    row = table(totals_of(some), groups=tuple(FAMILIES))["nation/german"]
    assert (row.reference, row.difference) == ("all other groups of nation", None)
    assert row.note == "no reference entity was mentioned"


# ---- the table within parts of the items: families of their own, what is left out, reversals


UP = [1.0, 1.1, 0.9, 1.05, 0.95]
DOWN = [0.0, 0.1, -0.1, 0.05, -0.05]


def all_of(totals: EntityTotals, **rules: object) -> tuple[list[GroupStatistic], dict[str, Split]]:
    found = Rules(**rules)
    rows = group_table(totals, found)
    return rows, {split.by: split for split in splits(totals, rows, found)}


def at(predicted: str, label: str = "", part: str = "") -> Stratum:
    return Stratum("all", "yes", predicted, label, part)


def test_parts_are_the_tables_of_their_strata() -> None:
    totals = totals_of({"A": UP, "B": DOWN}, at("yes", "yes", "old"))
    totals_of({"A": DOWN, "B": UP}, at("no", "yes", "new"), totals)
    totals_of({"A": UP, "B": UP}, at("no", "no", "new"), totals)
    _, found = all_of(totals)
    assert list(found) == ["predicted class", "label", "slice"]
    for by, value, strata in (
        ("predicted class", "no", [at("no", "yes", "new"), at("no", "no", "new")]),
        ("label", "right", [at("yes", "yes", "old"), at("no", "no", "new")]),
        ("label", "wrong", [at("no", "yes", "new")]),
        ("slice", "old", [at("yes", "yes", "old")]),
    ):
        (part,) = [part for part in found[by].parts if part.value == value]
        alone = EntityTotals()
        for stratum in strata:
            for row in totals.rows([stratum]):
                name = {row.group: {row.entity: [row.mean]}}
                totals_of(name, Stratum("all", "yes"), alone)
        expected = group_table(alone, Rules())
        assert [(r.group, r.mentions, r.difference, r.p) for r in part.rows] == [
            (r.group, r.mentions, r.difference, r.p) for r in expected
        ]
    assert [part.value for part in found["label"].parts] == ["right", "wrong"]


def test_a_split_is_one_family_of_its_own() -> None:
    totals = totals_of({"A": UP, "B": DOWN}, at("yes"))
    totals_of({"A": DOWN, "B": UP}, at("no"), totals)
    rows, found = all_of(totals, correction="holm")
    inside = [row for part in found["predicted class"].parts for row in part.rows]
    least = min(row.p or 1.0 for row in inside)
    assert len(inside) == 4
    assert min(row.adjusted_p or 1.0 for row in inside) == pytest.approx(4 * least)
    assert all(row.adjusted_p == min(1.0, 2 * (row.p or 1.0)) for row in rows), "not of the split's"


def test_a_split_with_one_part_is_left_out() -> None:
    totals = totals_of({"A": UP, "B": DOWN}, Stratum("predicted", "yes", "yes"))
    totals_of({"A": UP, "B": DOWN}, Stratum("predicted", "no", "no"), totals)
    assert all_of(totals)[1] == {}
    totals_of({"A": UP, "B": DOWN}, Stratum("all", "no", "no"), totals)
    totals_of({"A": UP, "B": DOWN}, Stratum("all", "no", "yes"), totals)
    (split,) = all_of(totals)[1].values()
    assert {row.target for part in split.parts for row in part.rows} == {"all"}


def test_items_without_label_or_slice_are_in_no_part() -> None:
    totals = totals_of({"A": UP, "B": DOWN}, at("yes", "", ""))
    totals_of({"A": UP, "B": DOWN}, at("yes", "yes", "old"), totals)
    assert all_of(totals)[1] == {}


def test_fewer_than_five_entities_are_suppressed_in_a_part() -> None:
    totals = totals_of({"A": UP, "B": DOWN}, at("yes"))
    totals_of({"A": UP[:4], "B": DOWN}, at("no"), totals)
    rows, found = all_of(totals)
    (no, yes) = found["predicted class"].parts
    assert {row.verdict for row in no.rows} == {"suppressed"}
    assert {row.verdict for row in yes.rows} == {"difference"}
    assert list(found["predicted class"].apart(rows)) == []


def test_parts_whose_verdict_is_another_one_are_reported() -> None:
    totals = totals_of({"A": UP, "B": DOWN}, at("yes"))
    totals_of({"A": UP, "B": UP}, at("no"), totals)
    rows, found = all_of(totals)
    apart = list(found["predicted class"].apart(rows))
    assert {row.group: row.verdict for row in rows} == {"A": "difference", "B": "difference"}
    assert [(value, row.group) for value, row in apart] == [("no", "A"), ("no", "B")]
    assert {row.verdict for _, row in apart} == {"equivalent"}
    wide = [v * 20 for v in DOWN]
    totals = totals_of({"A": UP, "B": DOWN}, at("yes"))
    totals_of({"A": wide, "B": wide[1:] + wide[:1]}, at("no"), totals)
    rows, found = all_of(totals)
    reported = {value for value, _ in found["predicted class"].apart(rows)}
    assert reported == {"yes"}, "inconclusive in no: fewer entities, less certainty"


def test_a_difference_that_turns_around_in_every_part() -> None:
    """Simpson: A is mentioned mostly where everything adds much, but less there than B."""

    def named(group: str, values: list[float], times: int) -> dict[str, list[float]]:
        return {f"{group}{i}": [value] * times for i, value in enumerate(values)}

    much, little = [5.0, 5.1, 4.9, 5.05, 4.95], [0.0, 0.1, -0.1, 0.05, -0.05]
    more = [[v + 0.5 for v in side] for side in (much, little)]
    totals = totals_of({"A": named("A", much, 9), "B": named("B", more[0], 1)}, at("yes"))
    totals_of({"A": named("A", little, 1), "B": named("B", more[1], 9)}, at("no"), totals)
    rows, found = all_of(totals)
    turned = found["predicted class"].reversals
    assert [(one.group, one.target, one.class_name) for one in turned] == [
        ("A", "all", "yes"),
        ("B", "all", "yes"),
    ]
    assert turned[0].overall == pytest.approx(4.5 - 1.0)
    assert turned[0].parts == {"no": pytest.approx(-0.5), "yes": pytest.approx(-0.5)}
    noted = list(with_reversals(rows, found.values()))
    assert noted[0].note == "the sign is the other one within every predicted class"
    small = splits(totals, rows, Rules(practical=4.0))
    assert [one.reversals for one in small] == [()], "too small to matter on either side"
    same = totals_of({"A": UP, "B": DOWN}, at("yes"))
    totals_of({"A": UP, "B": DOWN}, at("no"), same)
    rows, found = all_of(same)
    assert found["predicted class"].reversals == ()
    assert list(with_reversals(rows, found.values())) == rows


def test_the_parts_with_most_mentions_are_kept() -> None:
    totals = EntityTotals()
    for number in range(PARTS + 3):
        group = {"A": {"x": [1.0] * (number + 1)}}
        totals_of(group, at("yes", "", f"part {number:02}"), totals)
    split = all_of(totals)[1]["slice"]
    assert [part.value for part in split.parts] == [f"part {n:02}" for n in range(3, PARTS + 3)]
    assert split.omitted == 3


# ---- a group and its reference in the same entities, as regions of pictures are


STRATUM = Stratum("predicted", "three")
RULES = Rules(reference="other")


def regions(effect: float, pictures: int = 40, *, luck: float = 3.0, seed: int = 0) -> EntityTotals:
    """A corner and two others in each of the pictures, which differ far more than the corners."""
    random, totals = np.random.default_rng(seed), EntityTotals()
    for number in range(pictures):
        base = luck * random.normal()
        values = [("corner", base + effect), ("other", base), ("other", base)]
        mentions = [
            new_mention(
                item_id=f"picture-{number}",
                class_name="three",
                group=group,
                entity=f"picture-{number}",
                relevance=value + 0.3 * random.normal(),
            )
            for group, value in values
        ]
        totals.add(STRATUM, mentions, 10.0)
    return totals


def row(totals: EntityTotals) -> GroupStatistic:
    (found,) = (one for one in group_table(totals, RULES) if one.group == "corner")
    return found


def test_each_picture_is_compared_with_itself() -> None:
    totals = regions(0.3)
    found = row(totals)
    (cell,) = cells_of(totals)
    corner = [one.mean for one in cell.groups["corner"]]
    other = [one.mean for one in cell.groups["other"]]
    twin = ttest_rel(corner, other)
    low, high = twin.confidence_interval()
    assert found.difference == pytest.approx(np.mean(corner) - np.mean(other))
    assert found.difference_interval == pytest.approx((low, high))
    assert found.p == pytest.approx(twin.pvalue, abs=2e-3)
    assert found.verdict == "difference"
    assert found.note == "within 40 entities that both groups have"
    (share,) = found.robustness
    assert share.difference == pytest.approx((found.difference or 0.0) / 10)


def test_too_few_shared_pictures_are_suppressed() -> None:
    found = row(regions(5.0, pictures=4))
    assert (found.p, found.verdict) == (None, "suppressed")


def test_the_test_and_its_placebo_hold_their_level() -> None:
    rejected = sum((row(regions(0.0, 12, seed=seed)).p or 1.0) <= 0.05 for seed in range(200))
    assert 2 <= rejected <= 20  # 5 % of 200, 3.2 standard errors either way
    control = placebo(cells_of(regions(2.0)), RULES, draws=100)
    assert control.comparisons == 100
    assert control.below <= 13


def test_where_enough_of_the_reference_stands_apart_it_is_compared_with_that() -> None:
    totals = regions(0.3, pictures=10)
    apart = [
        new_mention(
            item_id=f"lone-{number}",
            class_name="three",
            group="other",
            entity=f"lone-{number}",
            relevance=float(number),
        )
        for number in range(5)
    ]
    for one in apart:
        totals.add(STRATUM, [one], 10.0)
    found = row(totals)
    assert found.note.startswith("10 entities shared with the reference count for the group only")
