"""Words as frequent as a group's entities: by brute force, and what is left out."""

import math
import random
from collections.abc import Mapping, Sequence

import pytest
from entity_samples import POSITIVE, mention
from scipy.special import stdtrit

from transexplain.analysis.groups.background_words import with_backgrounds
from transexplain.analysis.groups.entity_totals import EntityTotals
from transexplain.analysis.groups.group_cells import cells_of
from transexplain.analysis.groups.group_table import Rules, group_table
from transexplain.analysis.groups.shard_aggregate import WordTotal
from transexplain.types.findings import Background, GroupStatistic
from transexplain.types.items import EntityGroup


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
