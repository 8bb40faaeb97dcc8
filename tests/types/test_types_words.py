"""The largest word of many explanations at once, against the words of each by itself."""

import random

import numpy as np
import pytest
from plain_records import new_attribution

from transexplain.types.items import Attribution, PatchGrid
from transexplain.types.tokens import Token, Tokens
from transexplain.types.words import largest, size_of, sizes_of, spans_of


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
