"""The ratio of two differences: formulas against plain ones, and the coverage of its interval."""

import math
import random

import pytest
from scipy.stats import t as student

from transexplain.analysis.groups.entity_totals import DocumentSums, EntityRow
from transexplain.analysis.groups.intervals import welch
from transexplain.analysis.groups.randomised_control import Ratio, ratio_of

NONE = DocumentSums(relevance=0.0, left=0.0, right=0.0, mentions=0)


def row(group: str, number: int, share: float, mentions: int = 1) -> EntityRow:
    return EntityRow(
        group=group,
        entity=f"{group}{number}",
        documents=mentions,
        mentions=mentions,
        mean=0.0,
        squares=0.0,
        share=share,
        positive=0,
        by_document=NONE,
    )


def named(rows: list[EntityRow]) -> dict[tuple[str, str], EntityRow]:
    return {(one.group, one.entity): one for one in rows}


def test_one_draw_against_fieller_by_hand() -> None:
    draw = random.Random(3)
    left, right = (
        [row(g, i, draw.gauss(m, 0.2)) for i in range(8)] for g, m in (("A", 1), ("B", 0))
    )
    random_rows = [
        row(one.group, i % 8, draw.gauss(0.3, 0.2)) for i, one in enumerate([*left, *right])
    ]
    found = ratio_of(left, right, [named(random_rows)])
    x, y = [[one.share for one in side] for side in (left, right)]
    u, v = [one.share for one in random_rows[:8]], [one.share for one in random_rows[8:]]
    real, unlearnt = welch(x, y), welch(u, v)
    both = sum(
        sum((a - sum(p) / 8) * (b - sum(q) / 8) for a, b in zip(p, q, strict=True)) / 56
        for p, q in ((x, u), (y, v))
    )
    assert found is not None and found.interval is not None
    assert found.ratio == pytest.approx(unlearnt.difference / real.difference)
    quantile = float(student.ppf(0.975, 7))
    for end in found.interval:  # where the t statistic of random - end * real is the quantile
        variance = unlearnt.error**2 - 2 * end * both + end**2 * real.error**2
        statistic = (unlearnt.difference - end * real.difference) / math.sqrt(variance)
        assert abs(statistic) == pytest.approx(quantile)


def test_a_real_difference_that_may_be_nothing_has_no_interval() -> None:
    left, right = (
        [row(g, i, (-1) ** i + 0.01 * m) for i in range(6)] for g, m in (("A", 1), ("B", 0))
    )
    found = ratio_of(left, right, [named([*left, *right])])
    assert found == Ratio(ratio=1.0, interval=None)
    same = [row("B", i, one.share) for i, one in enumerate(left)]
    assert ratio_of(left, same, [named([*left, *same])]) is None
    assert ratio_of(left[:1], right, [named([*left, *right])]) is None


def test_entities_that_both_sides_have_are_compared_with_themselves() -> None:
    left = [row("A", i, 1.0 + i) for i in range(6)]
    right = [
        EntityRow(
            **{**{f: getattr(one, f) for f in one.__slots__}, "group": "B", "share": float(i)}
        )
        for i, one in enumerate(left)
    ]
    found = ratio_of(left, right, [named([*left, *right])])
    assert found is not None and found.interval == pytest.approx((1.0, 1.0))


@pytest.mark.parametrize("common", [0.0, 0.1])
def test_the_interval_holds_the_ratio(common: float) -> None:
    draw, held, requested = random.Random(1), 0, 300
    for _ in range(requested):
        found = ratio_of(*drawn(draw, common))
        held += found is not None and (
            found.interval is None or found.interval[0] <= 0.5 <= found.interval[1]
        )
    assert held / requested > 0.92  # 300 of nominal 95 %: one standard error is 1.3 %


def drawn(
    draw: random.Random, common: float
) -> tuple[list[EntityRow], list[EntityRow], list[dict[tuple[str, str], EntityRow]]]:
    """A real difference of 0.3; three draws show 0.15 with chances of their own in common."""
    gaps = [0.15 + draw.gauss(0.0, common) for _ in range(3)]
    sides: dict[str, list[EntityRow]] = {"A": [], "B": []}
    draws: list[dict[tuple[str, str], EntityRow]] = [{}, {}, {}]
    for group, sign in (("A", 1), ("B", 0)):
        for number in range(12):
            own, mentions = draw.gauss(0.0, 0.1), draw.choice((1, 3, 6))
            sides[group].append(row(group, number, 0.3 * sign + own, mentions))
            parts = [draw.randrange(3) for _ in range(mentions)]
            for place, gap in enumerate(gaps):
                if n := parts.count(place):
                    share = gap * sign + own / 2 + draw.gauss(0.0, 0.1 / math.sqrt(n))
                    draws[place][group, f"{group}{number}"] = row(group, number, share, n)
    return sides["A"], sides["B"], draws
