"""Exact tables: the same rows in any cut and order, and rows that are never changed in place."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transexplain.analysis.groups.exact_totals import (
    UNITS,
    Counts,
    ExactTable,
    exact,
    merge_each,
)
from transexplain.errors import ConfigurationError

ROWS = st.lists(
    st.tuples(st.sampled_from("abc"), st.floats(-1e9, 1e9), st.integers(-9, 9)), max_size=20
)


def table(rows: list[tuple[str, float, int]]) -> ExactTable[str]:
    found: ExactTable[str] = ExactTable()
    for key, value, count in rows:
        found.add(key, [exact(value), count])
    return found


@given(ROWS, st.integers(0, 20), st.randoms(use_true_random=False))
def test_any_cut_and_order_gives_the_same_integers(
    rows: list[tuple[str, float, int]], cut: int, rng: random.Random
) -> None:
    whole = table(rows)
    rng.shuffle(rows)
    assert table(rows[:cut]).merge(table(rows[cut:])) == whole
    for key, (total, _) in whole.items():
        expected = math.fsum(value for name, value, _ in rows if name == key)
        assert total / UNITS == pytest.approx(expected, abs=1e-5)


def test_merging_leaves_the_other_table_alone() -> None:
    first, second = table([("a", 1.0, 1)]), table([("a", 2.0, 1), ("b", 4.0, 1)])
    merged: ExactTable[str] = ExactTable()
    merged.merge(first).merge(second).merge(second)
    assert first == {"a": [UNITS, 1]}
    assert second == {"a": [2 * UNITS, 1], "b": [4 * UNITS, 1]}
    assert merged == {"a": [5 * UNITS, 3], "b": [8 * UNITS, 2]}


def test_rows_of_two_lengths_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="1 numbers, where"):
        table([("a", 1.0, 1)]).add("a", [1])


def test_tables_by_key_share_nothing_with_what_they_are_merged_from() -> None:
    mine: dict[str, Counts[str]] = {"x": Counts({"a": 1})}
    theirs = {"x": Counts({"a": 2}), "y": Counts({"b": 1})}
    merge_each(mine, theirs, Counts)
    mine["y"].add("b")
    assert mine == {"x": {"a": 3}, "y": {"b": 2}}
    assert theirs == {"x": {"a": 2}, "y": {"b": 1}}
