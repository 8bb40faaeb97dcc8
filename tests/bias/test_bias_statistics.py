import math
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from transexplain.bias.statistics import group_table, t_interval, welch_interval
from transexplain.types import GroupStatistic


@dataclass(frozen=True, kw_only=True)
class Entity:
    group: str
    entity: str
    mean: float
    mentions: int = 1
    documents: int = 1
    target: str = "predicted"
    class_name: str = "positive"


def group(name: str, means: list[float], **more) -> list[Entity]:
    return [Entity(group=name, entity=f"{name}{i}", mean=m, **more) for i, m in enumerate(means)]


def table(
    entities: list[Entity], reference: str | None = None, practical: float = 0.1
) -> dict[str, GroupStatistic]:
    rows = group_table(entities, reference=reference, practical=practical)
    assert len({row.group for row in rows}) == len(rows)
    return {row.group: row for row in rows}


def test_golden_row_by_hand() -> None:
    """Means 1..5 against -2..2, worked out with a printed table of Student's t.

    Each side: variance 2.5, squared error .5; t(.975, 4) = 2.776445, half width 1.963243.
    Difference 3, squared error 1, Welch's freedom 1 / (.25/4 + .25/4) = 8; t(.975, 8) = 2.306004.
    """
    rows = table(group("A", [1, 2, 3, 4, 5]) + group("B", [2, 1, 0, -1, -2]))
    row = rows["A"]
    assert row.entity_mean == 3.0
    assert row.interval == pytest.approx((3 - 1.963243, 3 + 1.963243), abs=1e-6)
    assert row.difference == 3.0
    assert row.difference_interval == pytest.approx((3 - 2.306004, 3 + 2.306004), abs=1e-6)
    assert row.flagged
    assert (row.reference, row.note) == ("all other groups", "")
    assert rows["B"].difference == -3.0
    assert rows["B"].flagged


def test_welch_freedom_by_hand() -> None:
    """Sizes 5 and 3, squared errors .5 and 1: freedom 1.5**2 / (.25/4 + 1/2) = 4 exactly."""
    interval = welch_interval([1, 2, 3, 4, 5], [0, 3, 0])
    assert interval == pytest.approx((2 - 2.776445 * 1.5**0.5, 2 + 2.776445 * 1.5**0.5), abs=1e-5)


def test_counts_and_the_two_means_by_hand() -> None:
    entities = [
        Entity(group="A", entity="x", mean=1.0, mentions=3, documents=2),
        Entity(group="A", entity="y", mean=-2.0, mentions=1, documents=1),
    ]
    row = table(entities)["A"]
    assert (row.mentions, row.documents, row.entities) == (4, 3, 2)
    assert row.mean == (3 * 1.0 - 2.0) / 4
    assert row.entity_mean == -0.5
    given_counts = group_table(
        entities,
        reference=None,
        practical=0.1,
        documents={("predicted", "positive", "A"): 2},
    )
    assert given_counts[0].documents == 2


def test_suppressed_below_five_entities_on_either_side() -> None:
    rows = table(group("A", [1.0] * 4) + group("B", [0.0] * 5))
    assert rows["A"].interval is None
    assert rows["A"].note == "fewer than 5 entities"
    assert rows["B"].interval == (0.0, 0.0)
    assert rows["B"].note == "reference has fewer than 5 entities"
    for row in rows.values():
        assert (row.difference, row.difference_interval, row.flagged) == (None, None, False)


def test_exactly_five_on_both_sides_is_enough() -> None:
    rows = table(group("A", [1.0] * 5) + group("B", [0.0] * 5))
    assert rows["A"].difference_interval == (1.0, 1.0)
    assert rows["A"].flagged


@pytest.mark.parametrize(
    ("shift", "practical", "flagged"),
    [(0.5, 0.1, True), (-0.5, 0.1, True), (0.5, 0.5, False), (0.05, 0.1, False), (0.0, 0.0, False)],
)
def test_flagged_needs_both_certainty_and_size(
    shift: float, practical: float, flagged: bool
) -> None:
    spread = [-0.01, 0.0, 0.01, -0.02, 0.02]
    entities = group("A", [s + shift for s in spread]) + group("B", spread)
    assert table(entities, practical=practical)["A"].flagged is flagged


def test_a_large_but_uncertain_difference_is_not_flagged() -> None:
    entities = group("A", [9.0, -8.0, 7.0, -6.0, 5.0]) + group("B", [0.0] * 5)
    row = table(entities)["A"]
    assert row.difference == pytest.approx(1.4)
    assert not row.flagged


def test_a_named_reference_is_the_only_one_compared_to() -> None:
    entities = group("A", [1.0] * 5) + group("B", [50.0] * 5) + group("C", [0.5] * 5)
    rows = table(entities, reference="C")
    assert rows["A"].difference == 0.5
    assert rows["A"].reference == "C"
    assert rows["C"].difference is None
    assert (rows["C"].note, rows["C"].flagged) == ("the reference itself", False)


def test_an_absent_reference_is_said() -> None:
    row = table(group("A", [1.0] * 5), reference="Z")["A"]
    assert (row.difference, row.note) == (None, "no reference entity was mentioned")


def test_entities_shared_between_groups_count_on_one_side_only() -> None:
    def named(name: str, words: str, mean: float) -> list[Entity]:
        return [Entity(group=name, entity=word, mean=mean) for word in words]

    entities = named("some", "abcde", 1.0) + named("all", "abcdefghij", 0.0)
    entities += named("again", "fghij", 0.0) + named("far", "k", 5.0)
    row = table(entities)["some"]
    assert row.difference == pytest.approx(1.0 - 5.0 / 6.0)  # f..j once each, and k
    assert row.note == "5 entities shared with the reference count for the group only"


def test_classes_and_targets_are_apart() -> None:
    entities = group("A", [1.0] * 5) + group("A", [2.0] * 5, class_name="negative")
    entities += group("B", [0.0] * 5) + group("B", [0.0] * 5, target="all")
    rows = group_table(entities, reference=None, practical=0.1)
    got = {(row.target, row.class_name, row.group): row.difference for row in rows}
    assert got == {
        ("predicted", "positive", "A"): 1.0,
        ("predicted", "positive", "B"): -1.0,
        ("predicted", "negative", "A"): None,
        ("all", "positive", "B"): None,
    }


MEANS = st.lists(st.floats(-5, 5).map(lambda v: round(v, 3)), min_size=5, max_size=30)


@given(MEANS, MEANS)
def test_intervals_are_scipys(left: list[float], right: list[float]) -> None:
    if len(set(left)) < 2 or len(set(right)) < 2:
        return
    ours = welch_interval(left, right)
    theirs = stats.ttest_ind(left, right, equal_var=False).confidence_interval(0.95)
    assert ours == pytest.approx((theirs.low, theirs.high), rel=1e-8, abs=1e-9)
    student = stats.ttest_1samp(left, 0.0).confidence_interval(0.95)
    assert t_interval(left) == pytest.approx((student.low, student.high), rel=1e-8, abs=1e-9)


def test_no_variance_on_one_side_gives_the_other_sides_freedom() -> None:
    left = [1.0, 2.0, 3.0, 4.0, 5.0]
    low, high = welch_interval(left, [0.0] * 9)
    assert (low, high) == pytest.approx(t_interval(left))


@given(MEANS, st.floats(1e-150, 1e150))
def test_intervals_scale_with_their_unit(means: list[float], unit: float) -> None:
    other = [mean * mean for mean in means]
    low, high = welch_interval(means, other)
    scaled = welch_interval([m * unit for m in means], [m * unit for m in other])
    assert math.isfinite(scaled[0])
    assert scaled == pytest.approx((low * unit, high * unit), rel=1e-6, abs=1e-9 * unit)


def test_nothing_in_nothing_out() -> None:
    assert group_table([], reference=None, practical=0.1) == []
