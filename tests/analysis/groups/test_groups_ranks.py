"""The rank of a mention among the other words of its item."""

from dataclasses import replace

import numpy as np
import pytest
from entity_samples import mention
from hypothesis import given
from hypothesis import strategies as st
from report_samples import image_attribution, text_attribution, tokens_of

from transexplain.analysis.groups.mention_matching import Match, mention_of_item, mentions_of
from transexplain.auditing.shard_mentions import ranks_in_item
from transexplain.types.items import Attribution
from transexplain.types.tokens import Token


def text(words: str, relevance: list[float]) -> Attribution:
    """`words` are apart by blanks; CLS and SEP are worth 9."""
    return text_attribution(words, tokens_of(words), [9.0, *relevance, 9.0])


def at(one: Attribution, start: int, end: int) -> list[float | None]:
    match = Match(group="A", entity="x", surface="x", start=start, end=end)
    return ranks_in_item(one, mentions_of(one, [match]))


def test_by_hand() -> None:
    one = text("he is a bad man", [-2.0, 0.5, 2.0, 3.0, 0.0])
    assert at(one, 0, 2) == [(2 + 0.5) / 4]  # above .5 and 0, level with 2
    assert at(one, 8, 11) == [1.0]
    assert at(one, 12, 15) == [0.0]


def test_a_mention_of_several_words_is_one_and_no_other() -> None:
    one = text("New York is big", [1.0, 1.5, 2.0, 3.0])
    assert at(one, 0, 8) == [0.5]  # 2.5 against 2 and 3


def test_pieces_of_a_word_are_added_up_before_words_are_compared() -> None:
    tokens = (
        Token(text="un", start=0, end=2, word=0),
        Token(text="kind", start=2, end=6, word=0),
        Token(text="Ann", start=7, end=10, word=3),  # numbers may leave gaps
    )
    one = text_attribution("unkind Ann", tokens, [5.0, -4.0, 2.0])
    assert at(one, 7, 10) == [1.0]  # the word is worth 1, not 5


def test_a_mention_without_other_words_has_no_rank() -> None:
    one = text("Ann", [1.0])
    assert at(one, 0, 3) == [None]
    whole = mention_of_item(text("he is", [1.0, 2.0]), "column/x", "x")
    assert ranks_in_item(text("he is", [1.0, 2.0]), [whole]) == [None]
    assert ranks_in_item(image_attribution([[1.0, 2.0]]), [mention("A", "x", 1.0)]) == [None]
    assert ranks_in_item(one, []) == []


@given(
    st.lists(st.sampled_from([-2.0, -1.0, 0.0, 0.5, 1.0, 2.0]), min_size=1, max_size=9),
    st.integers(0, 8),
)
def test_as_a_loop_over_words_says(values: list[float], place: int) -> None:
    place %= len(values)
    one = text(" ".join("ab"[i % 2] for i in range(len(values))), values)
    printed = replace(mention("A", "x", values[place]), start=2 * place, end=2 * place + 1)
    others = [abs(v) for i, v in enumerate(values) if i != place]
    points = [1.0 if v < abs(values[place]) else 0.5 * (v == abs(values[place])) for v in others]
    expected = pytest.approx(float(np.mean(points))) if others else None
    assert ranks_in_item(one, [printed]) == [expected]
