"""Totals straight from what is stored are those that merging the shards gives, to the bit."""

import json
import random
from dataclasses import replace

import numpy as np
import pytest
from entity_samples import POSITIVE, mention
from hypothesis import given
from hypothesis import strategies as st
from test_groups_aggregates import image, outcome, text

from transexplain.analysis.groups.answers import Answer
from transexplain.analysis.groups.class_totals import ALL, GapTotals
from transexplain.analysis.groups.exact_totals import (
    ExactColumn,
    integers,
    limbs_of,
    packed,
    unpacked_rows,
)
from transexplain.analysis.groups.merged_aggregates import merged_aggregates
from transexplain.analysis.groups.shard_aggregate import ShardAggregate
from transexplain.errors import ConfigurationError
from transexplain.types.items import Ledger

#: squares of the larger ones, and some sums of them, are beyond 64 bits in units of 2**-50
RELEVANCE = st.floats(-1e6, 1e6, allow_nan=False, width=32)
ITEMS = st.lists(
    st.tuples(
        st.sampled_from([None, "yes", "no"]),
        st.lists(
            st.tuples(st.sampled_from("ABC"), st.sampled_from("aAbcÉ"), RELEVANCE),
            min_size=1,
            max_size=5,
        ),
    ),
    max_size=12,
)


ANSWER = Answer(name="yes", plus=(0,), minus=(1,))


def part(items: list) -> ShardAggregate:
    total = ShardAggregate()
    for label, words in items:
        values = [value for *_, value in words]
        written = text(" ".join(word for _, word, _ in words), values)
        total.add(outcome(label), [written, image([values], class_name=str(label))])
        found = [mention(group, word, value) for group, word, value in words]
        for stratum in (POSITIVE, POSITIVE._replace(label=label or "")):
            ranks = [0.5] * len(found)
            total.entities.add(stratum, found, 9.0, ranks, cluster=label or "")
        total.second.add(POSITIVE, found[:1], magnitude=9.0)
        total.add_dropped([(found[0].group, found[0].entity)])
        groups = {one.group for one in found}
        total.outcomes.add(outcome(label), groups, answers=(ANSWER,), cluster=label or "")
    return total


def slowly(payloads: list) -> ShardAggregate:
    total = ShardAggregate()
    for payload in payloads:
        total.merge(ShardAggregate.from_json(payload))
    return total


@given(ITEMS, st.integers(1, 5), st.randoms(use_true_random=False))
def test_the_same_bits_in_any_cut_and_order(items: list, size: int, rng: random.Random) -> None:
    parts = [part(items[at : at + size]) for at in range(0, len(items), size)]
    rng.shuffle(parts)
    payloads = json.loads(json.dumps([one.to_json() for one in parts]))
    before = json.dumps(payloads)
    found = merged_aggregates(iter(payloads))
    assert json.dumps(found.to_json()) == json.dumps(slowly(payloads).to_json())
    assert json.dumps(payloads) == before, "what was read is left alone"
    assert json.dumps(found.to_json()) == json.dumps(part(items).to_json())


def test_no_shard_at_all() -> None:
    assert merged_aggregates([]).to_json() == ShardAggregate().to_json()


DAMAGE = [
    ({"names": ["a", "b"]}, "limbs in 2 rows"),
    ({"names": []}, "limbs in 0 rows"),
    ({"names": None}, "names|NoneType"),
    ({"numbers": "AAAA"}, "multiple of element size|limbs in"),
    ({"numbers": "*"}, "[Bb]ase64|padding"),
    ({"numbers": 3}, "numbers|ASCII string"),
    ({"limbs": [1, 1, 1]}, "columns|limbs"),
    ({"limbs": [1, 1, 0, 0]}, "limbs"),
    ({"limbs": [1, 1, 40, 1]}, "limbs"),
    ({"limbs": ["1", 1, 1, 1]}, "limbs|not supported"),
]


@pytest.mark.parametrize(("changed", "words"), DAMAGE)
@pytest.mark.parametrize("place", ["words", "entities", "meetings", "outcomes"])
def test_damaged_columns_are_refused(place: str, changed: dict, words: str) -> None:
    payload = json.loads(json.dumps(part([(None, [("A", "a", 1.0)])]).to_json()))
    if place in ("words", "outcomes"):
        damaged = payload[place][0]
    else:
        damaged = payload["entities"][0][place]
        if isinstance(changed.get("names"), list):
            changed = {"names": {"A": changed["names"]}}
    damaged |= changed
    for read in (ShardAggregate.from_json, lambda content: merged_aggregates([content])):
        with pytest.raises(ConfigurationError, match=f"cannot be read: .*({words})"):
            read(payload)


def test_a_name_that_comes_twice_is_refused() -> None:
    payload = part([("yes", [("A", "a", 1.0), ("A", "b", 1.0)])]).to_json()
    payload["words"][0]["names"] = ["a", "a"]
    with pytest.raises(ConfigurationError, match="a name twice"):
        merged_aggregates([payload])


def test_a_situation_that_is_none_is_refused() -> None:
    payload = part([("yes", [("A", "a", 1.0)])]).to_json()
    assert payload["outcomes"][0]["names"] == ['[["A"],"yes","","yes","no"]']
    for name in ("", "[]", '["A"]', "[[]]"):
        payload["outcomes"][0]["names"] = [name]
        for read in (ShardAggregate.from_json, lambda content: merged_aggregates([content])):
            with pytest.raises(ConfigurationError, match="cannot be read"):
                read(payload)


def test_another_version_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="version 1"):
        merged_aggregates([ShardAggregate().to_json() | {"version": 1}])


NUMBERS = st.one_of(
    st.integers(-(2**63) - 2, 2**63 + 2),
    st.sampled_from([2**63 - 1, -(2**63), 2**62, -(2**62), 2**200, -(2**200), 2**31, -(2**31)]),
    st.integers(-9, 9),
)


@given(st.lists(st.tuples(NUMBERS, NUMBERS), max_size=9))
def test_rows_come_back_from_columns(rows: list[tuple[int, int]]) -> None:
    content = json.loads(json.dumps(packed(rows, 2)))
    assert list(unpacked_rows(content, len(rows), 2)) == list(map(list, rows))


def test_columns_by_hand() -> None:
    assert limbs_of([2**31 - 1, -(2**31)]).tolist() == [[2**31 - 1, -(2**31)]]
    assert limbs_of([2**31, -1]).tolist() == [[2**31, 2**32 - 1], [0, -1]]
    assert limbs_of([2**64, -1]).tolist() == [[0, 2**32 - 1]] * 2 + [[1, -1]]
    assert packed([[1, -1]], 2) == {"limbs": [1, 1], "numbers": "AQAAAP////8="}
    assert integers(np.array([[2**40], [1]])) == [2**40 + 2**32], "limbs that have grown"


@given(st.lists(st.dictionaries(st.integers(0, 3_000), NUMBERS, max_size=4), max_size=12))
def test_a_column_adds_integers_of_any_size(rows: list[dict[int, int]]) -> None:
    column, expected = ExactColumn(), [0] * 3_001
    for row in rows:
        column.add(np.array(list(row), dtype=np.intp), limbs_of(list(row.values())), 3_001)
        for place, number in row.items():
            expected[place] += number
    assert column.sums(3_001) == expected


def test_a_column_outgrows_64_bits_by_addition_alone() -> None:
    column = ExactColumn()
    for _ in range(40):
        column.add(np.array([7, 2]), limbs_of([2**60 + 1, -(2**60) - 3]), 9)
    assert column.sums(9) == [0, 0, -40 * (2**60 + 3), 0, 0, 0, 0, 40 * (2**60 + 1), 0]


def ledger(gap: float, magnitude: float = 2.0) -> Ledger:
    return Ledger(
        inputs=0.0,
        special=0.0,
        embeddings=0.0,
        biases=0.0,
        rules=0.0,
        total=0.0,
        gap=gap,
        magnitude=magnitude,
    )


def test_gaps_by_hand() -> None:
    bare = text("a", [1.0])
    one, other = replace(bare, ledger=ledger(4e-17)), replace(bare, ledger=ledger(-1e-17, 0.0))
    first, second = GapTotals(), GapTotals()
    first.add([one, other], {"A", "B"})
    second.add([one], {"A"})
    second.add([bare], {"C"})
    for merged in (
        GapTotals().merge(first).merge(second),
        GapTotals.from_json(json.loads(json.dumps(second.to_json()))).merge(first),
    ):
        found = merged.means()
        assert {group: items for group, (items, _) in found.items()} == {ALL: 2, "A": 2, "B": 1}
        assert found["A"][1] == found[ALL][1] == pytest.approx(5e-17 / 3, rel=1e-12)
        assert found["B"][1] == pytest.approx(1.5e-17, rel=1e-12)
