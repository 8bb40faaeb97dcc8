"""A group and its reference in the same entities, as regions of pictures are."""

import numpy as np
import pytest
from plain_records import new_mention
from scipy.stats import ttest_rel

from transexplain.analysis.groups.entity_totals import EntityTotals, Stratum
from transexplain.analysis.groups.group_cells import cells_of
from transexplain.analysis.groups.group_controls import placebo
from transexplain.analysis.groups.group_table import Rules, group_table
from transexplain.types.findings import GroupStatistic

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
