"""Relevance and features survive their encoding."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from transexplain.errors import ItemError
from transexplain.store.columns import read_json
from transexplain.store.part_fields import EncodedMany, decode_all, encode_all


def encode(relevance: np.ndarray, payload: Any) -> EncodedMany:
    return encode_all([relevance], payload, ["a"])


def decode(encoded: EncodedMany) -> np.ndarray:
    return decode_all(encoded.values, encoded.scales, np.array([encoded.values.size]))


FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)


@given(hnp.arrays(np.float32, st.integers(0, 40), elements=FLOATS))
def test_float16_stays_within_its_bound(relevance: np.ndarray) -> None:
    encoded = encode(relevance, "float16")
    assert encoded.values.nbytes == 2 * relevance.size
    exact = relevance.astype(np.float64)
    error = np.abs(decode(encoded).astype(np.float64) - exact)
    # float16's rounding, float16's subnormals, and float32's own on the way out
    bound = 2**-11 * np.abs(exact) + 2**-25 * encoded.scales[0] + 2**-24 * np.abs(exact) + 2e-45
    assert (error <= bound).all()


@given(hnp.arrays(np.float32, hnp.array_shapes(max_dims=2, max_side=8), elements=FLOATS))
def test_float32_is_exact(relevance: np.ndarray) -> None:
    back = decode(encode(relevance, "float32"))
    assert back.dtype == np.float32
    assert np.array_equal(back, relevance.ravel())


@given(hnp.arrays(np.float64, st.integers(1, 20), elements=st.floats(-1e30, 1e30)))
def test_float64_is_rounded_to_float32_once(relevance: np.ndarray) -> None:
    assert np.array_equal(decode(encode(relevance, "float32")), relevance.astype(np.float32))


@pytest.mark.parametrize("payload", ["float16", "float32"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e300])
def test_relevance_that_cannot_be_stored_is_refused(payload: str, bad: float) -> None:
    with pytest.raises(ItemError, match="NaN, infinite") as caught:
        encode(np.array([0.5, bad, 1.0]), payload)
    assert caught.value.kind == "not-finite"


def test_the_bytes_are_little_endian_whatever_the_input() -> None:
    big = np.array([1.0, -0.5], dtype=">f8")
    assert encode(big, "float16").values.tobytes() == b"\x00\x3c\x00\xb8"
    assert encode(big, "float32").values.tobytes() == b"\x00\x00\x80\x3f\x00\x00\x00\xbf"


@pytest.mark.parametrize("tiny", [1e-45, 1e-50, 5e-324])
def test_the_smallest_numbers_do_not_divide_by_zero(tiny: float) -> None:
    back = decode(encode(np.array([tiny, 0.0]), "float16"))
    assert np.abs(back - [tiny, 0.0]).max() <= 2e-45


def test_zero_and_nothing_come_back() -> None:
    assert np.array_equal(decode(encode(np.zeros(3), "float16")), np.zeros(3))
    assert decode(encode(np.zeros(0), "float16")).shape == (0,)


@pytest.mark.parametrize("payload", ["float16", "float32"])
@given(
    st.lists(hnp.arrays(np.float32, hnp.array_shapes(max_dims=2, max_side=8), elements=FLOATS)),
    st.integers(0, 3),
)
def test_many_together_are_what_each_is_alone(
    payload: Any, relevance: list[np.ndarray], empty: int
) -> None:
    relevance = [*relevance, *[np.zeros(0, dtype=np.float32)] * empty]
    counts = np.array([one.size for one in relevance], dtype=np.int64)
    together = encode_all(relevance, payload, [""] * len(relevance))
    alone = [encode(one, payload) for one in relevance]
    assert together.values.tobytes() == b"".join(one.values.tobytes() for one in alone)
    assert together.scales.tolist() == [one.scales[0] for one in alone]
    flat = decode_all(together.values, together.scales, counts)
    each = [decode(one) for one in alone]
    assert flat.tobytes() == b"".join(one.tobytes() for one in each)


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e300])
def test_the_item_is_named_whose_relevance_is_refused(bad: float) -> None:
    with pytest.raises(ItemError, match="item 'b': relevance") as caught:
        encode_all([np.ones(2), np.array([0.5, bad])], "float16", ["a", "b"])
    assert caught.value.kind == "not-finite"


# ---- packed documents are read back as they were, whatever is in them


@pytest.mark.parametrize(
    "value",
    [
        {"a": [2**63, -(2**63) - 1, 3**200, -(3**200), 0]},
        {"\ud800 alone": "\udfff", "é": "\x00"},
        [0.1, -0.0, 5e-324, 1.7976931348623157e308, None, True, "", {}],
    ],
)
def test_documents_are_read_as_json_wrote_them(value: object) -> None:
    found = read_json(json.dumps(value).encode())
    assert found == value
    assert json.dumps(found) == json.dumps(value), "the types are the same, too"


@pytest.mark.parametrize("text", [b"", b"{", b"[1,]", b"\xff"])
def test_invalid_json_is_a_value_error(text: bytes) -> None:
    with pytest.raises(ValueError):
        read_json(text)
