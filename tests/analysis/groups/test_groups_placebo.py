"""Randomly sampled groups: the control finds nothing, whatever the real groups are like."""

import random

from entity_samples import totals_of

from transexplain.analysis.groups.group_cells import cells_of
from transexplain.analysis.groups.group_controls import _Lexicon, placebo
from transexplain.analysis.groups.group_table import Rules, group_table


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
    for dealt in _Lexicon([cell]).relabelled(seed=0, draw=1):
        for group, rows in dealt.groups.items():
            assert all((row.mean > 500.0) == group.startswith("far/") for row in rows)
            assert len(rows) == 12
