"""The randomised model beside the audited one, over the same items."""

import math
import random

import pytest
from entity_samples import randomised, totals_of
from scipy.stats import t as student

from transexplain.analysis.groups.entity_totals import DocumentSums, EntityRow, EntityTotals
from transexplain.analysis.groups.group_cells import cells_of
from transexplain.analysis.groups.group_controls import with_second
from transexplain.analysis.groups.group_table import Rules, group_table
from transexplain.analysis.groups.intervals import welch
from transexplain.analysis.groups.randomised_control import (
    RandomisedTotals,
    Ratio,
    randomised_control,
    ratio_of,
)
from transexplain.types.findings import GroupStatistic


def drawn(gap: float, seed: int = 1, size: int = 12) -> dict[str, list[float]]:
    draw = random.Random(seed)
    return {name: [draw.gauss(at, 0.2) for _ in range(size)] for name, at in (("A", gap), ("B", 0))}


def control(real: float, unlearnt: float) -> RandomisedTotals:
    return randomised(totals_of(drawn(real)), [totals_of(drawn(unlearnt, 2))], items=24)


def test_a_learnt_difference_does_not_survive() -> None:
    found = randomised_control(control(1.0, 0.0), Rules(reference="B"))
    assert (found.items, found.failed) == (24, 0)
    assert (found.differences, found.randomised_differences) == (1, 0)
    [row] = found.rows
    assert (row.group, row.entities) == ("A", 12)
    assert row.shown(1.0) != "material"
    assert row.real.verdict == "difference" and row.real.share_interval[0] > 0.0


def test_a_difference_that_randomised_models_share_survives_with_its_sign() -> None:
    found = randomised_control(control(1.0, 0.7), Rules(reference="B"))
    assert (found.differences, found.randomised_differences) == (1, 1)
    assert found.rows[0].shown(1.0) == "material"
    assert found.rows[0].shown(-1.0) == "unknown"
    opposite = randomised_control(control(1.0, -0.7), Rules(reference="B"))
    assert opposite is not None and opposite.rows[0].shown(1.0) == "small"


def test_a_sure_but_tiny_difference_is_no_material_part() -> None:
    def gap(size: float, seed: int) -> EntityTotals:
        draw = random.Random(seed)
        return totals_of(
            {n: [draw.gauss(at, 0.002) for _ in range(12)] for n, at in (("A", size), ("B", 0.0))}
        )

    totals = randomised(gap(1.0, 1), [gap(0.02, 2)], items=24)
    found = randomised_control(totals, Rules(reference="B", practical=0.001))
    [row] = found.rows
    assert row.randomised.share_interval[0] > 0.0  # beyond chance, and a fiftieth
    assert row.ratio == pytest.approx(0.02, abs=0.005)
    assert row.shown(1.0) == "small"


def test_draws_that_disagree_say_nothing() -> None:
    real = totals_of(drawn(1.0))
    agree = [totals_of(halves(0.8, seed)) for seed in (0, 1, 2)]
    apart = [totals_of(halves(gap, seed)) for seed, gap in enumerate((2.0, 0.8, -0.4))]
    rules = Rules(reference="B")
    one = randomised_control(randomised(real, agree, items=24), rules)
    other = randomised_control(randomised(real, apart, items=24), rules)
    assert one is not None and other is not None and one.draws == other.draws == 3
    assert one.rows[0].shown(1.0) == "material"
    assert other.rows[0].ratio == pytest.approx(one.rows[0].ratio, abs=0.3)
    assert other.rows[0].shown(1.0) == "unknown"


def halves(gap: float, number: int) -> dict[str, dict[str, list[float]]]:
    """Every third entity of `drawn`, around another gap."""
    draw = random.Random(number)
    return {
        name: {f"{name}{i}": [draw.gauss(at, 0.1)] for i in range(number, 12, 3)}
        for name, at in (("A", gap), ("B", 0.0))
    }


def test_too_few_entities_and_no_items() -> None:
    few = randomised(totals_of(drawn(1, size=3)), [totals_of(drawn(1, size=3))], items=6)
    found = randomised_control(few, Rules())
    assert found is not None and (found.rows, found.differences) == ((), 0)
    assert randomised_control(RandomisedTotals(), Rules()) is None
    lost = randomised_control(randomised(EntityTotals(), failed=3), Rules())
    assert lost is not None and (lost.items, lost.failed, lost.rows) == (0, 3, ())


# ---- the ratio of two differences: formulas against plain ones, and the coverage of its interval


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
        found = ratio_of(*drawn_ratio(draw, common))
        held += found is not None and (
            found.interval is None or found.interval[0] <= 0.5 <= found.interval[1]
        )
    assert held / requested > 0.92  # 300 of nominal 95 %: one standard error is 1.3 %


def drawn_ratio(
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


# ---- the same comparisons by a second lexicon: which entities are compared


A, B, C = [1.0, 2.0, 3.0, 4.0, 5.0], [0.0, 0.1, 0.2, 0.3, 0.4], [7.0, 7.1, 7.2, 7.3, 7.4]


def table(
    first: EntityTotals, second: EntityTotals, names: list[str], reference: str | None = None
) -> dict[str, GroupStatistic]:
    rules = Rules(reference=reference)
    rows = group_table(first, rules)
    found = with_second(rows, cells_of(first), cells_of(second), names, rules)
    return {row.group: row for row in found}


def numbered(name: str, values: list[float]) -> dict[str, list[float]]:
    return {f"{name}{i}": [value] for i, value in enumerate(values)}


def test_groups_of_the_second_lexicon_replace_groups_of_the_same_name() -> None:
    first = totals_of({"A": A, "B": B, "C": C})
    second = totals_of({"A": numbered("other", [v + 1 for v in A])})
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
    second = totals_of({"A": numbered("other", C), "B": numbered("base", A)})
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
    first = totals_of({"A": A, "B": numbered("b", [*B, 9.0])})
    second = totals_of({"A": {**numbered("other", A), "b5": [9.0]}})
    found = table(first, second, ["A"])["A"].robustness[-1]
    assert found.difference == pytest.approx(welch([*A, 9.0], B).difference)
