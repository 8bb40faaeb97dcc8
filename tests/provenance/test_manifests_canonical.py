"""The canonical form: one text for one value, and none for what is no JSON."""

import hashlib
import json
import math
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transexplain.provenance.manifest import canonical, sha256_of

KEYS = st.text(st.characters(), max_size=6)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False) | st.integers()
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(st.characters(), max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=20,
)


def shuffled(value: Any, draw: random.Random) -> Any:
    """The same value, its keys in another order and its lists as tuples."""
    if isinstance(value, dict):
        entries = [(key, shuffled(entry, draw)) for key, entry in value.items()]
        draw.shuffle(entries)
        return dict(entries)
    if isinstance(value, list):
        return tuple(shuffled(entry, draw) for entry in value)
    return value


@given(VALUES, st.randoms(use_true_random=False))
def test_order_of_keys_changes_nothing(value: Any, draw: random.Random) -> None:
    assert canonical(shuffled(value, draw)) == canonical(value)


@given(VALUES)
def test_it_is_utf8_json_that_reads_back(value: Any) -> None:
    text = canonical(value).decode("utf-8")
    assert json.loads(text) == value
    assert canonical(json.loads(text)) == canonical(value)


@given(VALUES, VALUES)
def test_two_values_have_one_hash_only_where_they_are_one(one: Any, other: Any) -> None:
    assert (sha256_of(one) == sha256_of(other)) == (typed(one) == typed(other))


def typed(value: Any) -> Any:
    """A value with its type, so that 1, 1.0 and True differ, and 0.0 and -0.0."""
    if isinstance(value, dict):
        return {key: typed(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [typed(entry) for entry in value]
    return type(value).__name__, math.copysign(1.0, value) if value == 0 else None, value


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_floats_are_the_shortest_digits_that_read_back(number: float) -> None:
    text = canonical([number]).decode()[1:-1]
    assert text == repr(number)
    assert math.copysign(1.0, float(text)) == math.copysign(1.0, number)


def test_the_form_by_example() -> None:
    value = {"z": [1.0, 1e-7, 1], "é": "Zoë\n\ud800", "a": {"b": None, "B": True}}
    expected = '{"a":{"B":true,"b":null},"z":[1.0,1e-07,1],"é":"Zoë\\n\\ud800"}'.encode()
    assert canonical(value) == expected
    assert sha256_of(value) == hashlib.sha256(expected).hexdigest()


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_of_json_is_refused(number: float) -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        canonical({"a": [number]})


@pytest.mark.parametrize("value", [{1: "a"}, {"a": [{None: 1}]}, {"a": {2.0: 1}}])
def test_keys_that_are_no_text_are_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="is not text"):
        canonical(value)


def test_what_json_has_no_form_for_is_refused() -> None:
    with pytest.raises(TypeError):
        canonical({"a": b"bytes"})
