"""Planted differences: large ones are found, tiny ones are not, and none is invented."""

import random

import numpy as np
import pytest
from entity_samples import POSITIVE, totals_of

from transexplain.analysis.groups.group_cells import Cell, cells_of
from transexplain.analysis.groups.group_controls import (
    _comparisons,
    _DealtEntities,
    placebo,
    planted,
)
from transexplain.analysis.groups.group_table import Rules, group_table, table_of
from transexplain.errors import ConfigurationError


def cells(sizes: dict[str, int], spread: float = 0.5, seed: int = 3) -> list[Cell]:
    draw = random.Random(seed)
    groups = {name: [draw.gauss(0, spread) for _ in range(n)] for name, n in sizes.items()}
    return cells_of(totals_of(groups))


def test_power_is_that_of_students_test() -> None:
    """A gap of 0.8 deviations, 30 against 30: 86 % of two-sided tests at 5 % (Cohen 1988)."""
    shares = [
        planted(cells({"A": 30, "B": 30}, 1.0, seed), Rules(reference="B"), 0.8)[1].share
        for seed in range(4)
    ]
    assert np.mean(shares) == pytest.approx(0.86, abs=0.08)


def test_suppressed_groups_get_nothing() -> None:
    assert planted(cells({"A": 4, "B": 60}), Rules(reference="B"), 5.0) == ()
    assert planted(cells({"A": 60, "B": 4}), Rules(), 5.0) == ()
    assert planted([], Rules(), 5.0) == ()
    [cell] = cells({"A": 4, "B": 30, "C": 30})
    for rules, expected in ((Rules(), ["B", "C"]), (Rules(reference="C"), ["B"])):
        found = _comparisons(cell, rules, rules.references([cell]))
        assert [one.group for one in found] == expected


def test_the_comparisons_are_those_of_the_table() -> None:
    totals = totals_of({"A": {f"n{i}": [float(i)] for i in range(9)}, "B": [1.0, 2.0] * 4})
    more = {"C": {f"n{i}": [float(i)] for i in range(4, 20)}, "D": [1.0]}
    totals = totals_of(more, POSITIVE, totals)
    for reference in (None, "A", "C"):
        rules = Rules(reference=reference, bare=True)
        for cell in cells_of(totals):
            tested = [row for row in table_of([cell], rules) if row.p is not None]
            mine = list(_comparisons(cell, rules, rules.references([cell])))
            assert [one.group for one in mine] == [row.group for row in tested]
            for one, row in zip(mine, tested, strict=True):
                gap = one.means[one.left].mean() - one.means[one.right].mean()
                assert gap == pytest.approx(row.difference)


@pytest.mark.parametrize("bad", [-1.0, 0.0, float("nan"), float("inf")])
def test_planted_differences_must_be_positive(bad: float) -> None:
    with pytest.raises(ConfigurationError, match="positive number"):
        planted(cells({"A": 9, "B": 9}), Rules(), bad)


# ---- randomly sampled groups: the control finds nothing, whatever the real groups are like


def biased() -> dict[str, list[float]]:
    draw = random.Random(9)
    return {
        "high": [draw.gauss(1.0, 0.5) for _ in range(20)],
        "low": [draw.gauss(0.0, 0.5) for _ in range(30)],
        "few": [draw.gauss(0.0, 0.5) for _ in range(6)],
    }


def test_random_lexicons_find_nothing_where_the_groups_differ() -> None:
    totals = totals_of(biased())
    assert {row.group for row in group_table(totals, Rules()) if row.flagged} >= {"high", "low"}
    found = placebo(cells_of(totals), Rules(), draws=100)
    assert (found.lexicons, found.comparisons) == (100, 300)
    assert 0.02 <= found.below / found.comparisons <= 0.09
    assert found.differences <= 9


def test_random_lexicons_are_the_same_for_the_same_seed() -> None:
    cells = cells_of(totals_of(biased()))
    assert placebo(cells, Rules(), 5) == placebo(cells, Rules(), 5)
    assert placebo(cells, Rules(), 10) != placebo(cells, Rules(seed=1), 10)


def test_sizes_and_overlaps_stay() -> None:
    shared = {f"n{i}": [float(i)] for i in range(8)}
    totals = totals_of({"A": shared, "B": {**shared, "x": [1.0], "y": [2.0]}})
    found = placebo(cells_of(totals), Rules(), 3)
    assert found.comparisons == 0, "A has no entity that B has not: nothing to compare"
    assert placebo([], Rules()).comparisons == 0


def test_random_lexicons_are_drawn_within_families() -> None:
    """Between families far apart, lots would make groups of both and hide what the control sees."""
    draw = random.Random(4)
    groups = {
        f"{family}/{name}": [draw.gauss(centre, 1.0) for _ in range(12)]
        for family, centre in (("near", 0.0), ("far", 1000.0))
        for name in "ab"
    }
    (cell,) = cells_of(totals_of(groups))
    for dealt in _DealtEntities([cell]).relabelled(seed=0, draw=1):
        for group, rows in dealt.groups.items():
            assert all((row.mean > 500.0) == group.startswith("far/") for row in rows)
            assert len(rows) == 12
