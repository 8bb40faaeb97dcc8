"""The randomised model beside the audited one, over the same items."""

import json
import random

from entity_samples import totals_of
from hypothesis import given
from hypothesis import strategies as st

from transexplain.bias.checked import Checked
from transexplain.bias.group_table import Rules
from transexplain.bias.randomised import RandomisedTotals, randomised_control
from transexplain.bias.removals import Removal
from transexplain.bias.swaps import Swap


def drawn(gap: float, seed: int = 1, size: int = 12) -> dict[str, list[float]]:
    draw = random.Random(seed)
    return {name: [draw.gauss(at, 0.2) for _ in range(size)] for name, at in (("A", gap), ("B", 0))}


def control(real: float, unlearnt: float) -> RandomisedTotals:
    return RandomisedTotals(
        items=24, real=totals_of(drawn(real)), randomised=totals_of(drawn(unlearnt, 2))
    )


def test_a_learnt_difference_does_not_survive() -> None:
    found = randomised_control(control(1.0, 0.0), Rules(reference="B"))
    assert found is not None
    assert (found.items, found.failed) == (24, 0)
    assert (found.differences, found.randomised_differences) == (1, 0)
    [row] = found.rows
    assert (row.group, row.entities) == ("A", 12)
    assert not row.survives(1.0)
    assert row.real.verdict == "difference" and row.real.sees_a_difference


def test_what_the_words_bring_survives_with_its_sign() -> None:
    found = randomised_control(control(1.0, 0.5), Rules(reference="B"))
    assert found is not None
    assert (found.differences, found.randomised_differences) == (1, 1)
    assert found.rows[0].survives(1.0)
    assert not found.rows[0].survives(-1.0)


def test_too_few_entities_and_no_items() -> None:
    few = RandomisedTotals(
        items=6, real=totals_of(drawn(1, size=3)), randomised=totals_of(drawn(1, size=3))
    )
    found = randomised_control(few, Rules())
    assert found is not None and (found.rows, found.differences) == ((), 0)
    assert randomised_control(RandomisedTotals(), Rules()) is None
    lost = randomised_control(RandomisedTotals(failed=3), Rules())
    assert lost is not None and (lost.items, lost.failed, lost.rows) == (0, 3, ())


PART = st.tuples(
    st.lists(st.floats(-9, 9, allow_subnormal=False), max_size=4),
    st.lists(st.tuples(st.sampled_from("abc"), st.booleans(), st.floats(-2, 2)), max_size=3),
)


def part(number: int, values: list[float], removed: list[tuple[str, bool, float]]) -> Checked:
    found = Checked(
        randomised=RandomisedTotals(
            items=len(values),
            failed=number,
            real=totals_of({"A": values}),
            randomised=totals_of({"A": [-value for value in values]}),
        )
    )
    for place, (entity, flipped, change) in enumerate(removed):
        name = {"item_id": f"{number}-{place}", "target": "t", "class_name": "c", "group": "A"}
        found.removals.append(
            Removal(**name, entity=entity, flipped=flipped, change=change, relevance=1.0)
        )
        found.swaps.append(
            Swap(**name, entity=entity, other="B", replacement="x", change=change, gap=0.0)
        )
    return found


@given(st.lists(PART, max_size=6), st.randoms(use_true_random=False))
def test_any_order_of_merging_gives_the_same_bits(
    parts: list[tuple[list[float], list[tuple[str, bool, float]]]], shuffle: random.Random
) -> None:
    whole, shuffled = Checked(), Checked()
    for number, one in enumerate(parts):
        whole.merge(part(number, *one))
    order = list(enumerate(parts))
    shuffle.shuffle(order)
    for number, one in order:
        shuffled.merge(Checked.from_json(json.loads(json.dumps(part(number, *one).to_json()))))
    assert json.dumps(shuffled.to_json()) == json.dumps(whole.to_json())
