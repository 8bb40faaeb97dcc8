"""Positions of a text as arrays: the same tokens, however they are asked for."""

import pickle
from dataclasses import replace

import numpy as np
import pytest

from transexplain.types.items import own_positions
from transexplain.types.tokens import FewSpellings, Token, Tokens, spellings_beside

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


def test_parts_keep_their_text(arrays: Tokens) -> None:
    assert arrays[1:4] == LISTED[1:4]
    assert arrays[::-1] == LISTED[::-1]
    assert arrays.at(np.array([5, 1])) == (LISTED[5], LISTED[1])
    assert len(arrays[3:3]) == 0


def test_other_spellings_leave_the_places(arrays: Tokens) -> None:
    blind = arrays.spelled([""] * len(arrays))
    assert [token.text for token in blind] == [""] * len(LISTED)
    assert [replace(token, text="") for token in LISTED] == list(blind)


def test_a_process_can_hand_them_to_another(arrays: Tokens) -> None:
    again = pickle.loads(pickle.dumps(arrays))
    assert again == arrays
    assert again[1].text == "Ünd"


def test_own_positions_are_those_that_are_not_special(arrays: Tokens) -> None:
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
