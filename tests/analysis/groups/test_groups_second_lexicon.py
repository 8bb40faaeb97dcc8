"""The same comparisons by a second lexicon: which entities are compared."""

import pytest
from entity_samples import totals_of

from transexplain.analysis.groups.entity_totals import EntityTotals
from transexplain.analysis.groups.group_cells import cells_of
from transexplain.analysis.groups.group_controls import with_second
from transexplain.analysis.groups.group_table import Rules, group_table
from transexplain.analysis.groups.intervals import welch
from transexplain.types.findings import GroupStatistic

A, B, C = [1.0, 2.0, 3.0, 4.0, 5.0], [0.0, 0.1, 0.2, 0.3, 0.4], [7.0, 7.1, 7.2, 7.3, 7.4]


def table(
    first: EntityTotals, second: EntityTotals, names: list[str], reference: str | None = None
) -> dict[str, GroupStatistic]:
    rules = Rules(reference=reference)
    rows = group_table(first, rules)
    found = with_second(rows, cells_of(first), cells_of(second), names, rules)
    return {row.group: row for row in found}


def named(name: str, values: list[float]) -> dict[str, list[float]]:
    return {f"{name}{i}": [value] for i, value in enumerate(values)}


def test_groups_of_the_second_lexicon_replace_groups_of_the_same_name() -> None:
    first = totals_of({"A": A, "B": B, "C": C})
    second = totals_of({"A": named("other", [v + 1 for v in A])})
    rows = table(first, second, ["A"])
    last = rows["A"].robustness[-1]
    expected = welch([v + 1 for v in A], [*B, *C])
    assert (last.name, last.unit) == ("second lexicon", "")
    assert last.difference == pytest.approx(expected.difference)
    assert last.interval == pytest.approx(expected.interval())
    plain = {row.group: row for row in group_table(first, Rules())}
    assert rows["B"] == plain["B"], "a group that it has not stays as it is"
    assert rows["A"].difference == plain["A"].difference
    assert rows["A"].robustness[:-1] == plain["A"].robustness


def test_the_reference_is_replaced_too() -> None:
    first = totals_of({"A": A, "B": B})
    second = totals_of({"A": named("other", C), "B": named("base", A)})
    rows = table(first, second, ["A", "B"], reference="B")
    assert rows["A"].robustness[-1].difference == pytest.approx(7.2 - 3.0)
    assert rows["B"].robustness == (), "the reference itself"


def test_too_few_entities_are_reported() -> None:
    first = totals_of({"A": A, "B": B})
    rows = table(first, totals_of({"A": [1.0] * 4}), ["A"])
    assert rows["A"].note.endswith("; second lexicon: fewer than 5 entities on a side")
    assert len(rows["A"].robustness) == 2
    nothing = table(first, EntityTotals(), ["A"])
    assert nothing["A"].note == rows["A"].note, "its words are never mentioned"


def test_entities_of_both_sides_count_for_the_group() -> None:
    first = totals_of({"A": A, "B": named("b", [*B, 9.0])})
    second = totals_of({"A": {**named("other", A), "b5": [9.0]}})
    found = table(first, second, ["A"])["A"].robustness[-1]
    assert found.difference == pytest.approx(welch([*A, 9.0], B).difference)
