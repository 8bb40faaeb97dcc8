"""Mention ablations as statistics: flips by entity, and changes beside the relevance they check."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transexplain.analysis.groups.mention_ablation import (
    MentionAblation,
    ablations_of,
)


def ablation(
    entity: str, flipped: bool = False, change: float = 0.0, relevance: float = 0.0, **other: str
) -> MentionAblation:
    values = {
        "item_id": f"i-{entity}-{flipped}-{change}",
        "target": "predicted",
        "class_name": "positive",
        "group": "A",
    }
    return MentionAblation(
        entity=entity, flipped=flipped, change=change, relevance=relevance, **(values | other)
    )


def test_a_row_by_hand() -> None:
    """Rates 0, 0, 0.5, 1, 1: variance 0.25, so 0.5 +- t(.975, 4) = 2.776445 times sqrt(0.05)."""
    found = ablations_of(
        [
            ablation("a", change=0.1, relevance=0.2),
            ablation("b", change=0.2, relevance=0.1),
            ablation("c", change=0.3, relevance=0.3),
            ablation("c", True, change=0.5, relevance=0.4),
            ablation("d", True, change=0.6, relevance=0.5),
            ablation("e", True, change=0.7, relevance=0.6),
        ]
    )
    assert found is not None and (found.items, found.changed) == (6, 3)
    [row] = found.rows
    assert (row.items, row.entities, row.changed, row.rate) == (6, 5, 3, 0.5)
    half = 2.776445 * 0.05**0.5
    assert half > 0.5
    assert row.interval == (0.0, 1.0), "a share is within 0 and 1"
    assert row.change == pytest.approx((0.1 + 0.2 + 0.4 + 0.6 + 0.7) / 5)
    assert row.change_interval is not None and row.change_interval[0] > 0
    assert row.correlation == pytest.approx(1 - 6 * 2 / (6 * 35))


def test_rates_of_entities_count_and_not_items() -> None:
    loud = [ablation("loud", True, item_id=str(n)) for n in range(200)]
    found = ablations_of([*loud, *(ablation(f"e{n}", item_id=f"q{n}") for n in range(9))])
    assert (found.items, found.changed, found.rows[0].rate) == (209, 200, 0.1)


@pytest.mark.parametrize(("flipped", "end"), [(False, 0.0), (True, 1.0)])
def test_a_rate_without_variance_is_not_certain(flipped: bool, end: float) -> None:
    found = ablations_of([ablation(f"e{n}", flipped) for n in range(10)])
    low, high = found.rows[0].interval or (9.0, 9.0)
    assert high - low == pytest.approx(0.27753, abs=1e-4), "Wilson's for 0 of 10"
    assert end in (low, high)
    few = ablations_of([ablation(f"e{n}", flipped) for n in range(4)])
    assert few is not None and few.rows[0].interval is None


def test_an_item_counts_once_whatever_was_explained() -> None:
    some = [
        ablation("a", True, item_id="i", class_name=name, group=group)
        for name in ("negative", "positive")
        for group in "AB"
    ]
    found = ablations_of(some)
    assert found is not None and (found.items, found.changed, len(found.rows)) == (1, 1, 4)
    assert ablations_of([]) is None


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans(), st.floats(-3, 3)), max_size=9))
def test_order_is_no_matter(values: list[tuple[str, bool, float]]) -> None:
    some = [ablation(e, f, c, item_id=str(n)) for n, (e, f, c) in enumerate(values)]
    assert ablations_of(some[::-1]) == ablations_of(some)
