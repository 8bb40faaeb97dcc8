"""The table within parts of the items: families of their own, what is left out, reversals."""

import pytest
from entity_samples import totals_of

from transexplain.analysis.groups.entity_totals import EntityTotals, Stratum
from transexplain.analysis.groups.group_splits import PARTS, Split, splits, with_reversals
from transexplain.analysis.groups.group_table import Rules, group_table
from transexplain.types.findings import GroupStatistic

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
