"""Outcomes by group: each item once, rates by hand."""

import pytest
from entity_samples import mention

from transexplain.bias.entity_totals import EntityTotals, Stratum
from transexplain.bias.outcomes import ALL_ITEMS, GroupOutcome, outcomes


def counted(*items: tuple[str, str, str, int], target: str = "predicted") -> EntityTotals:
    """(groups, label, predicted, how many) -> totals of such items."""
    totals = EntityTotals()
    for groups, label, predicted, count in items:
        for class_name in ("no", "yes") if target == "all" else (predicted,):
            stratum = Stratum(target, class_name, predicted, label)
            for _ in range(count):
                totals.add(stratum, [mention(g, g.lower(), 1.0) for g in groups], 1.0)
    return totals


ITEMS = (("A", "yes", "no", 3), ("A", "yes", "yes", 5), ("AB", "no", "no", 2), ("B", "", "yes", 10))
ANSWERS = {("yes", "no"): 4, ("yes", "yes"): 16, ("no", "no"): 10, (None, "yes"): 10}


def by_name(found: tuple[GroupOutcome, ...]) -> dict[str, GroupOutcome]:
    assert len({one.group for one in found}) == len(found)
    return {one.group: one for one in found}


@pytest.mark.parametrize("target", ["predicted", "all"])
def test_rates_by_hand(target: str) -> None:
    found = by_name(outcomes(counted(*ITEMS, target=target), ANSWERS, None))
    assert list(found) == [ALL_ITEMS, "A", "B"]
    a, b, everyone = found["A"], found["B"], found[ALL_ITEMS]
    assert (a.items, b.items, everyone.items) == (10, 12, 40)
    assert a.error is not None and (a.error.count, a.error.total) == (3, 10)
    assert b.error is not None and (b.error.count, b.error.total) == (0, 2), (
        "unlabelled do not count"
    )
    rates = {one.class_name: one for one in a.selection}
    assert rates["yes"].rate.share == 0.5
    assert rates["yes"].impact_ratio == pytest.approx(0.5 / (26 / 40))
    # Wilson's interval of 5 in 10 by hand: (.5 + z2/20 +- z sqrt(.025 + z2/400)) / (1 + z2/10)
    assert rates["yes"].rate.interval == pytest.approx((0.236593, 0.763407), abs=1e-5)


def test_a_reference_group_is_the_base() -> None:
    found = by_name(outcomes(counted(*ITEMS), ANSWERS, "B"))
    assert list(found) == ["B", "A"]
    assert {one.class_name: one.impact_ratio for one in found["B"].selection} == {
        "no": 1.0,
        "yes": 1.0,
    }
    ratios = {one.class_name: one.impact_ratio for one in found["A"].selection}
    assert ratios["yes"] == pytest.approx(0.5 / (10 / 12))
    assert outcomes(counted(*ITEMS), ANSWERS, "never mentioned")[0].group == ALL_ITEMS


def test_a_class_that_the_reference_never_gets_has_no_ratio() -> None:
    found = by_name(outcomes(counted(("A", "", "yes", 1), ("B", "", "no", 1)), {}, "B"))
    no, yes = found["A"].selection
    assert (no.class_name, no.rate.count, no.impact_ratio) == ("no", 0, 0.0)
    assert (yes.class_name, yes.rate.count, yes.impact_ratio) == ("yes", 1, None)
    assert found["A"].error is None
    assert outcomes(EntityTotals(), {}, None) == ()
