"""Punctuation and function words are shown, but do not head lists of words."""

import pytest

from transexplain.reports.sections.class_views import WordRow, _top
from transexplain.reports.sections.rare_words import RareWord, cloud, says_little


@pytest.mark.parametrize("word", ["the", "The", ",", "...", "\u201c", "of", "'s", "his", "\u3002"])
def test_words_that_say_little(word: str) -> None:
    assert says_little(word)


@pytest.mark.parametrize(
    "word", ["not", "never", "no", "very", "film", "5", "n't", "good", "\u597d"]
)
def test_words_that_may_say_much(word: str) -> None:
    assert not says_little(word)


def row(word: str, mean: float) -> WordRow:
    return WordRow(
        word=word,
        mean=mean,
        total=mean,
        mentions=9,
        documents=9,
        magnitude=9.0,
        function=says_little(word),
    )


def test_they_stand_last_and_push_no_other_out() -> None:
    words = [row(",", 9.0), row("the", 8.0), *(row(f"w{n:02}", 7.0 - n / 10) for n in range(30))]
    found = [one.word for one in _top(words, lambda one: one.mean)]
    assert found[:2] == ["w00", "w01"] and found[-2:] == [",", "the"]
    telling = found[:-2]
    assert telling == [f"w{n:02}" for n in range(len(telling))] and len(telling) > 5


def test_weak_ones_are_not_listed() -> None:
    words = [*(row(f"w{n:02}", 7.0) for n in range(40)), row("the", 0.1)]
    assert "the" not in [one.word for one in _top(words, lambda one: one.mean)]


def test_the_cloud_has_none() -> None:
    words = [
        RareWord(word=word, score=2.0, mean=1.0, rarity=2.0, mentions=9, documents=7)
        for word in ("the", ",", "good")
    ]
    assert [one.word for one in cloud(words)] == ["good"]
