"""Token overlap by hand, and with evidence that was planted."""

import random
from dataclasses import replace
from math import log
from typing import Any

import numpy as np
import pytest
from benches import case_of

from transexplain.errors import ConfigurationError
from transexplain.evaluating.metrics.metric_table import Case
from transexplain.evaluating.metrics.token_overlap import COUNTS, overlap, token_overlap
from transexplain.types.tokens import Token


def case_of_words(words: list[str], relevance: list[float], name: str = "news") -> Case:
    text = " ".join(words)
    case = case_of(relevance)
    starts = np.cumsum([0, *(len(word) + 1 for word in words)])
    tokens = [
        Token(text=word, start=int(start), end=int(start) + len(word), word=place)
        for place, (word, start) in enumerate(zip(words, starts, strict=False))
    ]
    features: Any = case.attribution.features
    attribution = replace(
        case.attribution, features=(features[0], *tokens, features[-1]), text=text, class_name=name
    )
    return replace(case, attribution=attribution)


def test_the_words_of_an_item() -> None:
    case = case_of_words(
        ["Oil", "falls", "as", "oil", "is", "x"], [1.5, 2.0, -1.0, 1.0, 0.25, 0.0], "trade"
    )
    scored = token_overlap(case, keep=3)
    assert scored.value is None
    assert scored.detail == {
        "class": "trade",
        "words": ["oil", "falls", "is", "x", "as"],
        "relevance": [2.5, 2.0, 0.25],
    }
    assert token_overlap(case, keep=5).detail["relevance"] == [2.5, 2.0, 0.25], "none against it"


def test_pieces_of_a_word_are_summed() -> None:
    case = case_of_words(["un", "real"], [1.0, -0.25])
    pieces = tuple(
        token if token.special else replace(token, word=0) for token in case.attribution.features
    )
    case = replace(case, attribution=replace(case.attribution, features=pieces))
    detail = token_overlap(case).detail
    assert (detail["words"], detail["relevance"]) == (["un real"], [0.75])


def test_an_item_without_words() -> None:
    case = case_of([1, 2])
    bare = tuple(replace(token, word=None) for token in case.attribution.features)
    case = replace(case, attribution=replace(case.attribution, features=bare))
    assert token_overlap(case).reason == "the item comes without words"


@pytest.mark.parametrize("keep", [0, 1.5, True])
def test_wrong_parameters(keep: Any) -> None:
    with pytest.raises(ConfigurationError, match="keep is a whole number"):
        token_overlap(case_of([1, 2]), keep=keep)


def detail(name: str, words: str, *relevance: float) -> dict[str, Any]:
    return {"class": name, "words": words.split(), "relevance": list(relevance)}


def test_the_lists_by_hand() -> None:
    details = [
        detail("A", "oil bank rare the", 3.0, 1.0, 9.0, 5.0),
        detail("A", "oil deal the", 2.0, 4.0),
        detail("B", "bank game the", 2.0, 1.0),
        detail("B", "game deal the bank", 1.0, 0.5),
    ]
    # items that hold them: oil 2, bank 3, deal 2, game 2, the 4 (log 1 = 0), rare 1 (left out)
    scores = {
        "A": {"oil": 5 * log(2), "deal": 4 * log(2), "bank": log(4 / 3)},
        "B": {"bank": 2 * log(4 / 3), "game": 2 * log(2), "deal": 0.5 * log(2)},
    }
    lists = {name: sorted(words, key=lambda w: -words[w]) for name, words in scores.items()}
    assert lists == {"A": ["oil", "deal", "bank"], "B": ["game", "bank", "deal"]}
    found = overlap(details)
    assert found.detail == {
        "lists": lists,
        "scores": {
            name: pytest.approx([scores[name][word] for word in words])
            for name, words in lists.items()
        },
        "shared": [{"classes": ["A", "B"], "words": ["deal", "bank"]}],
    }
    # three words each, two in common, at every requested number of words
    assert found.curve == pytest.approx((2 / 3,) * len(COUNTS))
    assert found.value == pytest.approx(2 / 3)
    assert overlap(details[::-1]) == found


def test_the_shorter_list_counts() -> None:
    # A lists 8 words, B lists 2 of them and C one of its own; equal scores go by the alphabet
    many = "a b c d e f g h"
    details = [
        detail("A", many, *[1.0] * 8),
        detail("A", many, *[1.0] * 8),
        detail("B", "a h", 1.0, 1.0),
        detail("C", "z", 1.0),
        detail("C", "z", 1.0),
    ]
    # log(5 / 3) for a and h, log(5 / 2) for the others: A is b c d e f g a h, B is a h
    found = overlap(details)
    assert found.detail["lists"]["A"] == list("bcdefgah")
    # of the pairs A-B, A-C and B-C only the first shares words: none of 5, both of 10
    assert found.curve == pytest.approx((0, *[1 / 3] * 7))
    assert found.value == pytest.approx(7 / 24)


def test_the_first_words_are_cut_at_the_count() -> None:
    names = [f"w{n:02}" for n in range(12)]
    up, down = names, names[::-1]
    details = []
    for words, name in ((up, "A"), (down, "B")):
        relevance = [float(12 - place) for place in range(12)]
        details.append({"class": name, "words": words, "relevance": relevance})
    # a third item without any of them, so that the inverse document frequency is not 0
    details.append(detail("A", "other", 1.0))
    found = overlap(details)
    # first 5 of 12 from both ends: none; first 10: all but two on either side: 8
    assert found.curve == pytest.approx((0, 0.8, *[1] * 6))


def test_fewer_than_two_classes() -> None:
    one = [detail("A", "a b", 1.0, 1.0)] * 2
    reason = "fewer than two classes have words that stand in several items"
    for details in ([], one, [*one, {}], [*one, detail("B", "a b")]):
        found = overlap(details)
        assert (found.value, found.reason) == (None, reason)


def test_planted_evidence_is_distinguished_from_random_relevance() -> None:
    draw = random.Random(0)
    filler = [f"filler{n}" for n in range(60)]
    evidence = {name: [f"{name}{n}" for n in range(8)] for name in ("sport", "trade", "war")}
    faithful, blind = [], []
    for number in range(150):
        name = list(evidence)[number % 3]
        words = [*draw.sample(evidence[name], 3), *draw.sample(filler, 15)]
        draw.shuffle(words)
        known = [1.0 if word in evidence[name] else 0.0 for word in words]
        faithful.append(token_overlap(case_of_words(words, known, name)).detail)
        drawn = [draw.gauss(0, 1) for _ in words]
        blind.append(token_overlap(case_of_words(words, drawn, name)).detail)
    found = overlap(faithful)
    assert found.value == 0
    assert {name: set(words) for name, words in found.detail["lists"].items()} == {
        name: set(words) for name, words in evidence.items()
    }
    noise = overlap(blind)
    assert noise.value is not None
    # the words of other classes are as likely to be listed as one's own, where all hold them
    assert noise.value > 0.3
    assert min(noise.curve[-4:]) > 0.4
