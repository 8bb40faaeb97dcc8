"""The randomised model beside the audited one, over the same items."""

import json
import random
from collections import Counter

import pytest
from entity_samples import randomised, totals_of
from hypothesis import given
from hypothesis import strategies as st

from transexplain.analysis.groups.counterfactuals import Observation
from transexplain.analysis.groups.entity_totals import EntityTotals
from transexplain.analysis.groups.group_table import Rules
from transexplain.analysis.groups.hidden_regions import HiddenRegion
from transexplain.analysis.groups.mention_ablation import MentionAblation
from transexplain.analysis.groups.mixed_audits import (
    ExactSample,
    MethodAgreement,
    PairedMentions,
)
from transexplain.analysis.groups.randomised_control import RandomisedTotals, randomised_control
from transexplain.analysis.groups.shard_aggregate import ControlResults, ShardAggregate


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


def test_a_difference_that_may_be_nothing_has_no_ratio() -> None:
    found = randomised_control(control(0.0, 1.0), Rules(reference="B"))
    [row] = found.rows
    assert row.ratio_interval is None and row.shown(row.real.share) == "unknown"


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


PART = st.tuples(
    st.lists(st.floats(-9, 9, allow_subnormal=False), max_size=4),
    st.lists(st.tuples(st.sampled_from("abc"), st.booleans(), st.floats(-2, 2)), max_size=3),
)


def sample(number: int, values: list[float]) -> ExactSample:
    of = {"item_id": f"{number}", "target": "t", "class_name": "c"}
    rows = [
        MethodAgreement(
            **of, correlation=value if value > 0 else None, error=None, cheap=value, exact=1.0
        )
        for value in values
    ]
    more = {"predicted": "c", "label": "", "slice": "", "group": "A", "entity": "x", "mentions": 1}
    mentions = [PairedMentions(**of, **more, cheap=value, exact=1.0) for value in values]
    return ExactSample(items=len(values), failed=1, agreements=rows, mentions=mentions)


def part(
    number: int, values: list[float], removed: list[tuple[str, bool, float]]
) -> ControlResults:
    regions = [HiddenRegion(document="d", place=number, group="A", entity="x", log_odds=(0.5,))]
    found = ControlResults(
        regions=regions,
        unpaired=Counter({"A": number}),
        exact=sample(number, values),
        randomised=randomised(
            totals_of({"A": values}),
            [totals_of({"A": [scale * v for v in values]}) for scale in (-1.0, 2.0, 0.5)],
            items=len(values),
            failed=number,
        ),
    )
    for place, (entity, flipped, change) in enumerate(removed):
        name = {"item_id": f"{number}-{place}", "target": "t", "class_name": "c", "group": "A"}
        found.ablations.append(
            MentionAblation(**name, entity=entity, flipped=flipped, change=change, relevance=1.0)
        )
        rows = found.candidates if flipped else found.observations
        rows.append(
            Observation(document=name["item_id"], group="A", entity=entity, log_odds=(change,))
        )
    return found


@given(st.lists(PART, max_size=6), st.randoms(use_true_random=False))
def test_any_order_of_merging_gives_the_same_bits(
    parts: list[tuple[list[float], list[tuple[str, bool, float]]]], shuffle: random.Random
) -> None:
    whole, shuffled = ShardAggregate(), ShardAggregate()
    for number, one in enumerate(parts):
        whole.checked.merge(part(number, *one))
    order = list(enumerate(parts))
    shuffle.shuffle(order)
    for number, one in order:
        saved = ShardAggregate()
        saved.checked.merge(part(number, *one))
        shuffled.add_json(json.loads(json.dumps(saved.to_json())))
    assert json.dumps(shuffled.to_json()) == json.dumps(whole.to_json())
    assert len(shuffled.checked.regions) == len(parts)
    assert sum(shuffled.checked.unpaired.values()) == sum(range(len(parts)))
