"""Positions of a text as arrays: the same tokens, however they are asked for."""

import pickle
import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain_records import new_attribution

from transexplain.auditing.text_redaction import covered, joined
from transexplain.types.items import Attribution, PatchGrid, own_positions
from transexplain.types.tokens import FewSpellings, Overlaps, Token, Tokens, spellings_beside
from transexplain.types.words import largest, size_of, sizes_of, spans_of

TEXT = "Ünder a  tree"
LISTED = (
    Token(text="[CLS]", start=0, end=0, special=True),
    Token(text="Ünd", start=0, end=3, word=0),
    Token(text="er", start=3, end=5, word=0),
    Token(text="a", start=6, end=7, word=1),
    Token(text="▁", start=8, end=8),
    Token(text="tree", start=9, end=13, word=2),
    Token(text="[SEP]", start=0, end=0, special=True),
)


@pytest.fixture
def arrays() -> Tokens:
    """As an encoder makes them: pieces of the tokenizer, spelled as the text spells them."""
    listed = Tokens.of(LISTED)
    pieces = ["[CLS]", "und", "##er", "a", "▁", "tree", "[SEP]"]
    columns = {name: getattr(listed, name) for name in ("starts", "ends", "words", "special")}
    return Tokens(**columns, pieces=pieces, text=TEXT)


def test_arrays_hold_what_the_tokens_say(arrays: Tokens) -> None:
    assert tuple(arrays) == LISTED
    assert [arrays[place] for place in range(len(arrays))] == list(LISTED)
    assert arrays[-2] == LISTED[-2]
    assert arrays.texts == [token.text for token in LISTED]
    assert Tokens.of(arrays) is arrays


def test_they_equal_any_sequence_of_equal_tokens(arrays: Tokens) -> None:
    assert arrays == LISTED
    assert arrays == Tokens.of(list(LISTED))
    assert hash(arrays) == hash(LISTED)
    assert repr(arrays) == repr(LISTED)
    for place, other in enumerate(LISTED):
        changed = [*LISTED]
        changed[place] = replace(other, text="x", end=other.end + 1)
        assert arrays != tuple(changed)
        assert arrays != Tokens.of(changed)
    assert arrays != LISTED[:-1]
    assert arrays != "Ünder a tree"


def test_parts_and_other_spellings_keep_their_places(arrays: Tokens) -> None:
    assert arrays[1:4] == LISTED[1:4]
    assert arrays[::-1] == LISTED[::-1]
    assert arrays.at(np.array([5, 1])) == (LISTED[5], LISTED[1])
    assert len(arrays[3:3]) == 0
    assert pickle.loads(pickle.dumps(arrays)) == arrays
    blind = arrays.spelled([""] * len(arrays))
    assert list(blind) == [replace(token, text="") for token in LISTED]
    expected = [not token.special for token in LISTED]
    assert own_positions(arrays).tolist() == expected
    assert own_positions(LISTED, 9).tolist() == [*expected, False, False]


def test_spellings_that_a_text_lacks_are_kept_alone(arrays: Tokens) -> None:
    columns = {name: getattr(arrays, name) for name in ("starts", "ends", "words", "special")}
    few = FewSpellings(len(LISTED), {0: "[CLS]", 4: "▁", 6: "[SEP]"})
    found = Tokens(**columns, pieces=few, text=TEXT)
    assert found == arrays
    assert list(few) == ["[CLS]", "", "", "", "▁", "", "[SEP]"]
    assert (few[-1], few[1:5], len(few)) == ("[SEP]", ["", "", "", "▁"], 7)
    with pytest.raises(IndexError):
        few[7]
    assert found[4:6] == LISTED[4:6]
    assert pickle.loads(pickle.dumps(found)) == arrays
    assert spellings_beside([found, arrays], [TEXT, TEXT]) == [few.given] * 2
    assert spellings_beside([found], [None]) == spellings_beside([arrays], [None])
    assert spellings_beside([found], ["other words"]) == spellings_beside([arrays], ["other words"])


# ---- the largest word of many explanations at once, against the words of each by itself


def made_up(number: int) -> Attribution:
    """Tokens that overlap, leave the text, hold nothing but white space, or come out of order."""
    draw = random.Random(number)
    text = "".join(draw.choice("ab  \u3000") for _ in range(14))
    tokens, place, word = [], 0, 0
    for _ in range(draw.randint(0, 12)):
        start = draw.randint(max(0, place - 1), min(14, place + 2))
        end = min(16, start + draw.randint(0, 3))
        place = min(end, 13)
        word += draw.random() < 0.6
        own = None if draw.random() < 0.1 else word
        special = draw.random() < 0.15
        tokens.append(
            Token(text="[S]", start=0, end=0, special=True)
            if special
            else Token(text=text[start:end], start=start, end=end, word=own)
        )
    return new_attribution(
        item_id=str(number),
        class_name="yes",
        relevance=np.random.default_rng(number).normal(size=len(tokens)).astype(np.float32),
        features=Tokens.of(tokens) if number % 2 else tuple(tokens),
        text=None if number % 3 == 0 else text,
    )


def sizes(some: list[Attribution]) -> list[float]:
    return sizes_of(
        [one.features for one in some],
        [one.relevance for one in some],
        [one.text for one in some],
    ).tolist()


@pytest.mark.parametrize("count", [1, 3, 500])
def test_sizes_are_those_of_the_words_as_they_are_drawn(count: int) -> None:
    some = [made_up(number) for number in range(count)]
    expected = [largest(spans_of(one)[1]) for one in some]
    assert sizes(some) == expected
    assert [size_of(one) for one in some] == expected


def test_pictures_among_texts_keep_their_place() -> None:
    grid = PatchGrid(rows=1, cols=3, height=1, width=3)
    texts = [made_up(1), made_up(2)]
    values = np.array([[0.5, -7.0, 2.0]], dtype=np.float32)
    found = sizes_of(
        [texts[0].features, grid, texts[1].features],
        [texts[0].relevance, values, texts[1].relevance],
        [texts[0].text, None, texts[1].text],
    )
    assert found.tolist() == [size_of(texts[0]), 7.0, size_of(texts[1])]
    assert sizes_of([], [], []).tolist() == []


# ---- spans that overlap another, against a look at each of them


PLACES = st.tuples(st.integers(0, 30), st.integers(0, 30)).map(lambda pair: tuple(sorted(pair)))
SPANS = st.lists(PLACES.filter(lambda pair: pair[0] < pair[1]), max_size=12)


@given(SPANS, PLACES)
def test_spans_that_overlap_are_all_found(spans: list[tuple[int, int]], place: tuple) -> None:
    start, end = place
    expected = [at for at, (left, right) in enumerate(spans) if left < end and right > start]
    assert Overlaps(spans).of(start, end) == expected


@given(SPANS, PLACES)
def test_a_place_is_covered_where_a_span_has_a_character_of_it(
    spans: list[tuple[int, int]], place: tuple
) -> None:
    start, end = place
    together = joined(spans)
    inside = any(left < end and start < right for left, right in together)
    edge = start == end and any(left <= start <= right for left, right in together)
    assert covered(place, together) == (inside or edge)
