"""Hidden regions: effects by hand, intervals that hold over pictures and clusters, verdicts."""

from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from entity_samples import verdict_of
from scipy.stats import ttest_ind, ttest_rel
from test_group_verdicts import even
from test_groups_counterfactuals import ANSWER
from test_groups_outcomes import CLASSES, INVITED

from transexplain.analysis.groups.counterfactuals import Compared, Counterfactual, Kind
from transexplain.analysis.groups.group_cells import references_of
from transexplain.analysis.groups.group_verdicts import GroupVerdict, with_measures
from transexplain.analysis.groups.hidden_regions import (
    HiddenRegion,
    region_table,
)
from transexplain.analysis.groups.outcomes import outcome_table
from transexplain.types.findings import Practical

REFERENCES = references_of("B", ["A", "B"])


def seen(
    document: str,
    group: str,
    change: float,
    *,
    ways: Sequence[float] = (0, 0, 0),
    before: float = 1.0,
    **more: str,
) -> HiddenRegion:
    """A region that adds `change` to make `before`; `ways` are what each differs by."""
    hidden = [before - change + way for way in ways]
    return HiddenRegion(
        document=document,
        place="AB".index(group),
        group=group,
        entity=document,
        predicted="yes",
        log_odds=(before,),
        without=tuple("yes" if one > 0 else "no" for one in hidden),
        hidden=tuple((one,) for one in hidden),
        **more,
    )


def compared(regions: list[HiddenRegion], stratum: str = "") -> Counterfactual:
    rows = with_measures(table(regions))
    [row] = [row for row in rows if row.stratum == stratum]
    assert (row.kind, row.group, row.reference, row.prediction) == ("region", "A", "B", "yes")
    return row


def table(regions: Sequence[HiddenRegion]) -> list[Compared]:
    return region_table(regions, [ANSWER], ("no", "yes"), REFERENCES, Practical())


def interval_of(regions: list[HiddenRegion]) -> tuple[float, float]:
    """The interval of the logit over all pictures, at 90 %."""
    [interval] = [
        comparison.inside
        for row, several in table(regions)
        for comparison in several
        if not row.stratum and comparison.name == "logit"
    ]
    return interval


def drawn(
    rng: np.random.Generator,
    effect: float = 0.0,
    *,
    counts: tuple[int, int] = (40, 40),
    both: bool = False,
    sizes: Sequence[int] = (1,),
    spreads: tuple[float, float] = (0.5, 0.5),
    each: float = 0.2,
) -> Iterator[HiddenRegion]:
    """Clusters of pictures of either group, or of both; a cluster of `sizes` pictures shares."""
    for side, group in enumerate("AB"):
        for cluster in range(counts[side]):
            name = f"{'' if both else group}{cluster}"
            # what both sides of one cluster share would cancel; half of it is their own
            own = spreads[side] * rng.normal() + (effect if group == "A" else 0.0)
            for n in range(sizes[cluster % len(sizes)]):
                change = own + each * rng.normal()
                yield seen(f"{name}-{n}", group, change, cluster=name)


def test_the_effect_is_the_difference_of_means_by_hand() -> None:
    row = compared(
        [
            seen("1", "A", 2.0, ways=(-0.3, 0.0, 0.3)),
            seen("1", "B", 0.5),
            seen("2", "A", 1.0),
            seen("3", "B", -0.5, ways=(0.3, 0.0, -0.3)),
        ]
    )
    assert row.effect == pytest.approx(1.5 - 0.0)
    assert (row.documents, row.clusters, row.entities, row.other_entities) == (3, 3, 2, 2)
    assert row.noise == pytest.approx(np.sqrt((0.09 + 0.0 + 0.0 + 0.09) / 4))
    # without the first region: -1.3, -1 and -0.7, predicted no; without the others 0 and above
    assert (row.changed_across, row.changed_within) == (pytest.approx(4 / 6 + 2 / 6), 0.0)
    assert row.shift == pytest.approx(1.0)
    assert not row.enough, "three pictures say nothing"
    assert [(one.document, one.change) for one in row.examples] == [
        ("1", pytest.approx(2.0)),
        ("2", pytest.approx(1.0)),
    ]
    assert not table([seen("1", "A", 1.0)])


def test_apart_it_is_welch_and_in_the_same_pictures_the_paired_test() -> None:
    rng = np.random.default_rng(2)
    left, right = rng.normal(0.4, 0.3, 12), rng.normal(0.0, 0.3, 12)
    pictures = range(12)
    apart = interval_of(
        [
            seen(f"{side}{n}", side, (left if side == "A" else right)[n])
            for side in "AB"
            for n in pictures
        ]
    )
    interval = ttest_ind(left, right, equal_var=False).confidence_interval(0.9)
    assert apart == pytest.approx((interval.low, interval.high), rel=0.01)
    same = interval_of(
        [seen(str(n), side, (left if side == "A" else right)[n]) for side in "AB" for n in pictures]
    )
    interval = ttest_rel(left, right).confidence_interval(0.9)
    assert same == pytest.approx((interval.low, interval.high))


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "design",
    [
        {},
        {"counts": (6, 40), "spreads": (0.8, 0.3)},
        {"counts": (8, 8), "sizes": (1, 1, 2, 9)},
        {"counts": (12, 30), "sizes": (5, 1)},
        {"counts": (10, 10), "both": True, "sizes": (3, 1)},
    ],
)
def test_intervals_cover_the_effect_over_pictures_and_clusters(design) -> None:
    covered, seeds = 0, 400
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        low, high = interval_of(list(drawn(rng, 0.3, **design)))
        covered += low <= 0.3 <= high
    assert covered >= 0.86 * seeds, "of intervals at 90 %"


def test_copies_of_a_picture_are_one_cluster() -> None:
    once = list(drawn(np.random.default_rng(3), 0.3, counts=(15, 15)))
    copies = [
        seen(f"{one.document} {n}", one.group, 1.0 - one.hidden[0][0], cluster=one.document)
        for one in once
        for n in range(10)
    ]
    assert interval_of(copies) == pytest.approx(interval_of(once))
    of_one = [seen(one.document, one.group, 0.1, cluster=one.group) for one in once]
    row = compared(of_one)
    assert not row.enough, "a side that is all one cluster tells nothing"


def judged(
    regions: Sequence[HiddenRegion], no_swaps: str = "", kind: Kind = "region"
) -> GroupVerdict:
    practical = Practical()
    return verdict_of(
        counterfactuals=with_measures(
            region_table(regions, [INVITED], CLASSES, REFERENCES, practical, kind)
        ),
        outcomes=with_measures(outcome_table(even(), [INVITED], CLASSES, REFERENCES, practical)),
        no_swaps=no_swaps,
        kind=kind,
    )


@pytest.mark.parametrize("kind", ["region", "substructure"])
def test_verdicts_speak_of_what_was_hidden(kind: Kind) -> None:
    rng = np.random.default_rng(6)
    found = judged(list(drawn(rng, -0.8)), kind=kind)
    none = judged(list(drawn(rng, counts=(400, 400), spreads=(0.1, 0.1))), kind=kind)
    few = judged(list(drawn(rng, counts=(3, 3))), kind=kind)
    loose = judged(list(drawn(rng, counts=(20, 20))), kind=kind)
    absent = judged([], no_swaps="groups.check is 0", kind=kind)
    verdicts = (found, none, few, loose, absent)
    states = [verdict.mention for verdict in verdicts]
    assert states == ["changes", "does not change", "open", "open", "open"]
    printed = [reason for verdict in verdicts for reason in verdict.mention_reasons]
    assert all(kind in one for one in printed[:2])
    assert not [one for one in printed if "swap" in one]


def test_any_order_gives_the_same() -> None:
    some = list(drawn(np.random.default_rng(7), 0.2, counts=(9, 9), sizes=(2, 1)))
    assert compared(some) == compared(some[::-1])
