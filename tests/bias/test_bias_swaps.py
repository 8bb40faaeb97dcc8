"""Swaps as statistics: by entity, signed, and beside the attribution that they check."""

import random

import pytest

from transexplain.bias.swaps import Swap, swap_table, swaps_to_json


def swap(entity: str, change: float, gap: float, **other: str) -> Swap:
    values = {
        "item_id": f"i-{entity}-{change}-{gap}",
        "target": "predicted",
        "class_name": "positive",
        "group": "A",
        "other": "B",
        "replacement": "bob",
    }
    return Swap(entity=entity, change=change, gap=gap, **(values | other))


def test_a_row_by_hand() -> None:
    """Entity means 1, 2, 3, 4, 5, 3: of 64 signings two are as far from 0.

    Variance 2, so an interval of 3 +- t(.975, 5) = 2.570582 times sqrt(2 / 6).
    """
    swaps = [swap(f"e{i}", i + d, 0.5 * i) for i in range(1, 6) for d in (-0.25, 0.25)]
    swaps += [swap("e1", 1.0, -3.0), swap("e5", 5.0, 2.5), swap("e6", 3.0, 1.5)]
    [row] = swap_table(swaps)
    assert (row.swaps, row.entities, row.change) == (13, 6, 3.0)
    half = 2.570582 * (2 / 6) ** 0.5
    assert row.interval == pytest.approx((3 - half, 3 + half), abs=1e-6)
    assert row.p == pytest.approx(2 / 64)
    assert row.gap == pytest.approx(((0.5 + 0.5 - 3) / 3 + 1 + 1.5 + 2 + 2.5 + 1.5) / 6)
    assert [one.gap for one in row.against] == [-3.0]
    assert row.correlation is not None and row.correlation > 0.5


def test_mentions_of_one_entity_are_one_voice() -> None:
    swaps = [swap("loud", 2.0 + i / 1000, 1.0, item_id=str(i)) for i in range(300)]
    swaps += [swap(f"e{i}", (-1.0) ** i / 10, 0.0) for i in range(6)]
    [row] = swap_table(swaps)
    assert row.p is not None and row.p > 0.2
    assert row.supports(1.0) is False


def test_support_needs_certainty_and_the_same_sign() -> None:
    draw = random.Random(1)
    [row] = swap_table([swap(f"e{i}", draw.gauss(1, 0.3), 0.5) for i in range(20)])
    assert row.supports(0.4) is True
    assert row.supports(-0.4) is False
    [few] = swap_table([swap(f"e{i}", 1.0, 0.5) for i in range(4)])
    assert (few.interval, few.p, few.supports(0.4)) == (None, None, None)
    assert row.correlation is None, "all gaps are the same"


def test_groups_and_classes_are_apart_and_order_is_no_matter() -> None:
    swaps = [
        swap(f"e{i}", float(i), float(i % 3), group=group, class_name=name)
        for i in range(7)
        for group in "AB"
        for name in ("negative", "positive")
    ]
    rows = swap_table(swaps)
    assert [(row.class_name, row.group) for row in rows] == [
        ("negative", "A"),
        ("negative", "B"),
        ("positive", "A"),
        ("positive", "B"),
    ]
    assert swap_table(swaps[::-1]) == rows
    assert swaps_to_json(swaps[::-1]) == swaps_to_json(swaps)
    assert swap_table([]) == []
