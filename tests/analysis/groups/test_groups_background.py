"""Words as frequent as a group's entities: by brute force, and what is left out."""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from entity_samples import POSITIVE, mention
from hypothesis import given
from hypothesis import strategies as st
from report_samples import image_attribution, text_attribution, tokens_of
from scipy.special import stdtrit

from transexplain.analysis.groups.entity_totals import EntityTotals
from transexplain.analysis.groups.group_cells import cells_of
from transexplain.analysis.groups.group_controls import with_backgrounds
from transexplain.analysis.groups.group_table import Rules, group_table
from transexplain.analysis.groups.mention_matching import Match, mention_of_item, mentions_of
from transexplain.analysis.groups.shard_aggregate import WordTotal
from transexplain.auditing.shard_mentions import ranks_in_item
from transexplain.types.findings import Background, GroupStatistic
from transexplain.types.items import Attribution, EntityGroup
from transexplain.types.tokens import Token


def word(text: str, documents: int, mean: float, mentions: int | None = None) -> WordTotal:
    mentions = mentions or documents
    return WordTotal(
        word=text, documents=documents, mentions=mentions, relevance=mean * mentions, magnitude=9.0
    )


def totals(entities: Mapping[str, tuple[int, float]], group: str = "A") -> EntityTotals:
    """entity -> (documents, mean)."""
    found = EntityTotals()
    for entity, (documents, mean) in entities.items():
        for _ in range(documents):
            found.add(POSITIVE, [mention(group, entity, mean)], magnitude=1.0)
    return found


def background(
    entities: Mapping[str, tuple[int, float]],
    words: Sequence[WordTotal],
    groups: Sequence[EntityGroup] = (EntityGroup(name="A", terms=()),),
) -> Background | None:
    of = totals(entities)
    rows = group_table(of, Rules())
    (row,) = with_backgrounds(rows, cells_of(of), lambda *_: words, groups)
    return row.background


NAMES = [f"name{letter}" for letter in "abcdefgh"]


def test_golden_by_hand() -> None:
    """Five entities of one frequency: the plain mean of the words, and Welch over both."""
    entities = dict(zip(NAMES, [(4, v) for v in (1.0, 2.0, 3.0, 4.0, 5.0)], strict=False))
    words = [word(f"w{'x' * i}", 2 + i, float(i)) for i in range(7)]  # 2 to 8 documents
    found = background(entities, words)
    assert (found.words, found.entities, found.mean) == (7, 5, 3.0)
    assert found.difference == pytest.approx(0.0)
    # variance of 0..6 is 14/3, of 1..5 it is 2.5
    of_words, of_names = 14 / 3 / 7, 2.5 / 5
    half = float(stdtrit(6, 0.975)) * math.sqrt(of_words)
    assert found.interval == pytest.approx((3 - half, 3 + half))
    freedom = (of_words + of_names) ** 2 / (of_words**2 / 6 + of_names**2 / 4)
    half = float(stdtrit(freedom, 0.975)) * math.sqrt(of_words + of_names)
    assert found.difference_interval == pytest.approx((-half, half))


@pytest.mark.parametrize("seed", range(5))
def test_the_weighted_mean_is_that_of_a_double_loop(seed: int) -> None:
    draw = random.Random(seed)
    entities = {name: (draw.choice([1, 2, 3, 5, 9, 60]), draw.gauss(0, 1)) for name in NAMES}
    words = [
        word("w" * (i + 1), draw.randint(1, 20), draw.gauss(0, 1), draw.randint(20, 30))
        for i in range(60)
    ]
    sets = {
        name: [w for w in words if n / 2 <= w.documents <= 2 * n]
        for name, (n, _) in entities.items()
    }
    able = {name: of for name, of in sets.items() if len(of) >= 5}
    found = background(entities, words)
    if len(able) < 5:
        assert found is None
        return
    means = {n: sum(w.relevance / w.mentions for w in of) / len(of) for n, of in able.items()}
    weights = {
        w.word: sum(1 / len(of) for of in able.values() if w in of) / len(able) for w in words
    }
    centres = {
        w.word: sum(means[n] / len(of) for n, of in able.items() if w in of) / len(able)
        for w in words
    }
    assert found.entities == len(able)
    assert found.words == sum(weight > 0 for weight in weights.values())
    assert found.mean == pytest.approx(sum(means.values()) / len(able))
    gaps = [entities[n][1] - means[n] for n in able]
    assert found.difference == pytest.approx(sum(gaps) / len(able))
    number = 1 / sum(weight**2 for weight in weights.values())
    squared = sum(
        (weights[w.word] * w.relevance / w.mentions - centres[w.word]) ** 2 for w in words
    )
    half = float(stdtrit(number - 1, 0.975)) * math.sqrt(squared * number / (number - 1))
    assert found.interval == pytest.approx((found.mean - half, found.mean + half))


def test_words_of_the_groups_and_marks_are_no_background() -> None:
    entities = dict.fromkeys(NAMES[:5], (4, 1.0))
    kept = [word(w, 4, 2.0) for w in ("one", "two", "three", "four", "five")]
    out = [word(w, 4, 99.0) for w in ("states", "united", "straße", "!", "12", "namea")]
    groups = [
        EntityGroup(name="A", terms=("United States",)),
        EntityGroup(name="B", terms=("STRASSE",)),
    ]
    found = background(entities, [*kept, *out], groups)
    assert found is not None and (found.words, found.mean) == (5, 2.0)
    assert found.interval == (2.0, 2.0)


def test_too_few_words_or_entities_are_no_background() -> None:
    words = [word("w" * (i + 1), 4, 0.0) for i in range(5)]
    five = dict.fromkeys(NAMES[:5], (4, 1.0))
    assert background(five, words) is not None
    assert background(five, words[:4]) is None
    assert background({**five, NAMES[0]: (90, 1.0)}, words) is None, "four have words as frequent"
    assert background(dict.fromkeys(NAMES[:4], (4, 1.0)), words) is None
    assert background(five, []) is None


def test_groups_of_whole_items_have_no_background() -> None:
    of = totals(dict.fromkeys(NAMES[:5], (4, 1.0)), "column/x")
    words = [word("w" * (i + 1), 4, 0.0) for i in range(5)]
    rows: list[GroupStatistic] = group_table(of, Rules())
    named = [EntityGroup(name="A", terms=("a",))]
    assert list(with_backgrounds(rows, cells_of(of), lambda *_: words, named)) == rows


def test_the_interval_of_the_difference_covers_what_it_should() -> None:
    """Entities and words alike, rarer ones lower: 0 is inside in about 95 % of 400 corpora."""
    draw, inside, runs = random.Random(3), 0, 400

    def drawn() -> tuple[int, float]:
        documents = min(30, int(draw.paretovariate(1.0)))
        return documents, draw.gauss(0.1 * math.log(documents), 0.3)

    for _ in range(runs):
        entities = {name: drawn() for name in NAMES}
        words = [word("w" * (i + 1), *drawn()) for i in range(60)]
        found = background(entities, words)
        inside += found.difference_interval[0] <= 0.0 <= found.difference_interval[1]
    assert 0.92 <= inside / runs <= 0.98


# ---- the rank of a mention among the other words of its item


def text(words: str, relevance: list[float]) -> Attribution:
    """`words` are apart by blanks; CLS and SEP are worth 9."""
    return text_attribution(words, tokens_of(words), [9.0, *relevance, 9.0])


def at(one: Attribution, start: int, end: int) -> list[float | None]:
    match = Match(group="A", entity="x", surface="x", start=start, end=end)
    return ranks_in_item(one, mentions_of(one, [match]))


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
