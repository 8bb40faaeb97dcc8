"""A group and its reference in the same entities, as regions of pictures are."""

import numpy as np
import pytest
from scipy.stats import ttest_rel

from transexplain.analysis.groups.entity_totals import EntityTotals, Stratum
from transexplain.analysis.groups.group_cells import cells_of
from transexplain.analysis.groups.group_controls import placebo
from transexplain.analysis.groups.group_table import Rules, group_table
from transexplain.analysis.groups.resampling import sign_flip_p
from transexplain.types.findings import GroupStatistic
from transexplain.types.items import Mention

STRATUM = Stratum("predicted", "three")
RULES = Rules(reference="other")


def regions(effect: float, pictures: int = 40, *, luck: float = 3.0, seed: int = 0) -> EntityTotals:
    """A corner and two others in each of the pictures, which differ far more than the corners."""
    random, totals = np.random.default_rng(seed), EntityTotals()
    for number in range(pictures):
        base = luck * random.normal()
        values = [("corner", base + effect), ("other", base), ("other", base)]
        mentions = [
            Mention(
                item_id=f"picture-{number}",
                target="predicted",
                rank=0,
                class_name="three",
                group=group,
                entity=f"picture-{number}",
                surface="",
                start=0,
                end=0,
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
        Mention(
            item_id=f"lone-{number}",
            target="predicted",
            rank=0,
            class_name="three",
            group="other",
            entity=f"lone-{number}",
            surface="",
            start=0,
            end=0,
            relevance=float(number),
        )
        for number in range(5)
    ]
    for one in apart:
        totals.add(STRATUM, [one], 10.0)
    found = row(totals)
    assert found.note.startswith("10 entities shared with the reference count for the group only")


def test_p_is_that_of_sign_flips_over_the_pictures() -> None:
    totals = regions(0.1, pictures=8)
    (cell,) = cells_of(totals)
    changes = [
        a.mean - b.mean for a, b in zip(cell.groups["corner"], cell.groups["other"], strict=True)
    ]
    assert row(totals).p == pytest.approx(sign_flip_p(changes))
