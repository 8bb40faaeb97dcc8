"""Relevance and features survive their encoding."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from old_rows import encode, pack

from transexplain.errors import ItemError
from transexplain.store import codec
from transexplain.store.codec import decode, decode_all, encode_all
from transexplain.types.items import PatchGrid
from transexplain.types.tokens import Token

FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)


@given(hnp.arrays(np.float32, st.integers(0, 40), elements=FLOATS))
def test_float16_stays_within_its_bound(relevance: np.ndarray) -> None:
    encoded = encode(relevance, "float16")
    assert len(encoded.blob) == 2 * relevance.size
    exact = relevance.astype(np.float64)
    error = np.abs(decode(encoded).astype(np.float64) - exact)
    # float16's rounding, float16's subnormals, and float32's own on the way out
    bound = 2**-11 * np.abs(exact) + 2**-25 * encoded.scale + 2**-24 * np.abs(exact) + 2e-45
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
    with pytest.raises(ItemError, match="NaN, infinite or beyond") as caught:
        encode(np.array([0.5, bad, 1.0]), payload)
    assert caught.value.kind == "not-finite"


def test_the_bytes_are_little_endian_whatever_the_input() -> None:
    big = np.array([1.0, -0.5], dtype=">f8")
    assert encode(big, "float16").blob == b"\x00\x3c\x00\xb8"
    assert encode(big, "float32").blob == b"\x00\x00\x80\x3f\x00\x00\x00\xbf"


@pytest.mark.parametrize("tiny", [1e-45, 1e-50, 5e-324])
def test_the_smallest_numbers_do_not_divide_by_zero(tiny: float) -> None:
    back = decode(encode(np.array([tiny, 0.0]), "float16"))
    assert np.abs(back - [tiny, 0.0]).max() <= 2e-45


def test_zero_and_nothing_come_back() -> None:
    assert np.array_equal(decode(encode(np.zeros(3), "float16")), np.zeros(3))
    assert decode(encode(np.zeros(0), "float16")).shape == (0,)


TOKENS = st.builds(
    Token,
    text=st.text(alphabet=st.characters(), max_size=6),
    start=st.integers(0, 10_000),
    end=st.integers(0, 10_000),
    special=st.booleans(),
    word=st.none() | st.integers(0, 500),
)


@given(st.lists(TOKENS, max_size=30).map(tuple))
def test_tokens_come_back(tokens: tuple[Token, ...]) -> None:
    assert codec.unpack(pack(tokens)) == tokens
    assert codec.count(tokens) == len(tokens)


def test_a_grid_comes_back() -> None:
    grid = PatchGrid(rows=3, cols=5, height=48, width=80, prefix=2)
    assert codec.unpack(pack(grid)) == grid
    assert codec.count(grid) == 15


def test_tokens_with_surrogates_and_nul_come_back() -> None:
    odd = (Token(text="\ud800\x00\n", start=2, end=5, word=0),)
    assert codec.unpack(pack(odd)) == odd


def test_tokens_take_a_few_bytes_each() -> None:
    words = [
        "the",
        "quick",
        "brown",
        "fox",
        "jumps",
        "over",
        "the",
        "lazy",
        "dog",
        "and",
        "runs",
        "away",
        "from",
        "it",
    ] * 8
    starts = np.cumsum([0, *(len(word) + 1 for word in words[:-1])])
    tokens = tuple(
        Token(text=word, start=start, end=start + len(word), word=number)
        for number, (word, start) in enumerate(zip(words, starts, strict=True))
    )
    assert len(pack(tokens)) < 8 * len(tokens)


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
    assert together.values.tobytes() == b"".join(one.blob for one in alone)
    assert together.scales.tolist() == [one.scale for one in alone]
    flat = decode_all(together.values, together.scales, counts)
    each = [decode(one) for one in alone]
    assert flat.tobytes() == b"".join(one.tobytes() for one in each)


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e300])
def test_the_item_is_named_whose_relevance_is_refused(bad: float) -> None:
    with pytest.raises(ItemError, match="item 'b': relevance is NaN, infinite or beyond") as caught:
        encode_all([np.ones(2), np.array([0.5, bad])], "float16", ["a", "b"])
    assert caught.value.kind == "not-finite"
