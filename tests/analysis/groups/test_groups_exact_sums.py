"""Exact sums: the same in any cut and order, of words, of places in texts, and of any numbers."""

import json
import math
import random
from collections import Counter, defaultdict
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain_records import new_attribution

from transexplain.analysis.groups.entity_totals import quantile, signed_bin
from transexplain.analysis.groups.shard_aggregate import ShardAggregate
from transexplain.analysis.groups.text_totals import TextBatch, part_rows, word_rows, words_of
from transexplain.store.exact_sums import UNITS, Sums, add_row, exact, exact_sums
from transexplain.types.items import Attribution
from transexplain.types.tokens import Token, Tokens

ROWS = st.lists(
    st.tuples(st.sampled_from(["a", "\ud800", ""]), st.floats(-9e14, 9e14), st.integers(-9, 9)),
    max_size=20,
)


def sums_of(rows: list[tuple[str, float, int]]) -> Sums:
    sums = Sums()
    for key, value, count in rows:
        units = exact(value)
        add_row(sums.table("t", ("stratum",)), (key, None, 7), [units, units * units, count])
    return sums


@given(ROWS, st.integers(0, 20), st.randoms(use_true_random=False))
def test_any_cut_and_order_gives_the_same_integers(
    rows: list[tuple[str, float, int]], cut: int, rng: random.Random
) -> None:
    whole = sums_of(rows)
    rng.shuffle(rows)
    merged = Sums()
    for part in (rows[:cut], rows[cut:]):
        merged.add_packed(json.loads(json.dumps(sums_of(part).packed())))
    assert merged.packed() == whole.packed()
    for (key, *_), (total, _, _) in merged.over("t", [("stratum",)]).items():
        expected = math.fsum(value for name, value, _ in rows if name == key)
        assert total / UNITS == pytest.approx(expected, rel=1e-12, abs=1e-5)


def test_sums_of_products_hold_for_a_thousand_million_items() -> None:
    """Each of a thousand mentions of just under 1e15: of all, 73 of the 76 digits are needed."""
    of_item = 1000 * exact(9.99e14)
    sums = Sums()
    add_row(sums.table("pairs"), ("a",), [of_item * of_item * 10**7])
    packed, total = sums.packed(), Sums()
    for _ in range(100):
        total.add_packed(packed)
    assert total.table("pairs") == {("a",): [of_item * of_item * 10**9]}


def test_merging_leaves_the_other_sums_alone() -> None:
    first, second = sums_of([("a", 1.0, 1)]), sums_of([("a", 2.0, 1), ("b", 4.0, 1)])
    before = second.packed()
    merged = Sums()
    for sums in (first, second, second):
        merged.merge(sums)
    assert second.packed() == before
    rows = merged.over("t", [("stratum",)])
    assert [rows[name, None, 7][::2] for name in "ab"] == [[5 * UNITS, 3], [8 * UNITS, 2]]


def test_only_the_totals_that_are_asked_for_are_kept() -> None:
    sums = sums_of([("a", 1.0, 1)])
    add_row(sums.table("t2"), ("a",), [1, 2, 3])
    some = Sums(["t2", "t3"])
    some.add_packed(sums.packed())
    assert some.names() == ["t2"]


# ---- histograms of signed numbers: exact merges, quantiles near those of the sorted list


NUMBERS = st.lists(st.floats(-1e6, 1e6, allow_subnormal=False), min_size=1, max_size=60)


def filled(values: list[float]) -> Counter[int]:
    return Counter(map(signed_bin, values))


@given(NUMBERS, st.sampled_from([0.05, 0.25, 0.5, 0.75, 0.95, 1.0]))
def test_quantiles_are_those_of_the_sorted_list_to_half_a_percent(
    values: list[float], share: float
) -> None:
    exact = sorted(values)[max(0, int(np.ceil(share * len(values) - 1e-9)) - 1)]
    found = quantile(filled(values), share)
    assert found == pytest.approx(exact, rel=0.005001, abs=0.0)


def test_ends_of_the_range_and_nothing() -> None:
    assert quantile({}, 0.5) == 0.0
    assert filled([0.0, -0.0]) == {0: 2}
    tiny, huge = 5e-324, 1.7e308
    assert quantile(filled([tiny, -huge]), 0.5) == pytest.approx(-huge, rel=0.006)
    assert quantile(filled([tiny]), 0.5) > 0.0
    with pytest.raises(ValueError, match=r"math domain|NaN|cannot convert"):
        filled([float("nan")])


# ---- totals of many texts at once, against the same totals word by word in plain Python


PARTS = 20
WORDS = ("Good", "good", "bad", "Straße", "ÜBER", "İz", "ΣΑΣ", "x" * 30)


def made_up(number: int, dtype: type = np.float32) -> Attribution:
    """A text of 0 to 30 words in up to 9 pieces, some of whose positions belong to no word."""
    draw = random.Random(number)
    text, tokens = "", [Token(text="[CLS]", start=0, end=0, special=True)]
    for word in range(draw.randint(0, 30)):
        text += " " * draw.randint(0, 2)
        spelled = draw.choice(WORDS)
        cuts = sorted({0, len(spelled), *draw.choices(range(len(spelled)), k=draw.randint(0, 9))})
        for start, end in pairwise(cuts):
            own = None if draw.random() < 0.1 else word
            tokens.append(
                Token(
                    text=spelled[start:end],
                    start=len(text) + start,
                    end=len(text) + end,
                    word=own,
                )
            )
        text += spelled
    tokens.append(Token(text="[SEP]", start=0, end=0, special=True))
    if draw.random() < 0.2:  # its text is not stored, and some words are blanked
        tokens = [*tokens[:2], *(Token(text="", start=0, end=0, word=99) for _ in range(2))]
    relevance = np.random.default_rng(number).normal(size=len(tokens)).astype(dtype)
    return new_attribution(
        item_id=f"row-{number}",
        target=draw.choice(["predicted", "class:no"]),
        class_name=draw.choice(["yes", "no"]),
        relevance=relevance,
        features=Tokens.of(tokens) if number % 2 else tuple(tokens),
        text=None if tokens[-1].word == 99 else text,
    )


def slow_words(attributions, kinds) -> dict[tuple[int, str], list[int]]:
    """[texts, mentions, relevance, |relevance|] by kind and word."""
    found: dict[tuple[int, str], list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for one, kind in zip(attributions, kinds, strict=True):
        seen = set()
        for word in one.words():
            name = word.text.lower()
            if not name and one.text is None:
                continue
            row, amount = found[kind, name], exact(word.relevance)
            row[0] += name not in seen
            seen.add(name)
            row[1:] = [row[1] + 1, row[2] + amount, row[3] + abs(amount)]
    return dict(found)


def slow_parts(attributions, kinds, count) -> list[dict[tuple[int], list[int]]]:
    found = [{(part,): [0] * 4 for part in range(PARTS)} for _ in range(count)]
    for one, kind in zip(attributions, kinds, strict=True):
        own = [v for v, t in zip(one.relevance, one.features, strict=True) if not t.special]
        seen = set()
        for place, value in enumerate(own):
            part = PARTS * (2 * place + 1) // (2 * len(own))
            amount, row = exact(float(value)), found[kind][part,]
            more = [part not in seen, 1, amount, abs(amount)]
            row[:] = map(sum, zip(row, more, strict=True))
            seen.add(part)
    return found


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("texts", [1, 2, 200])
def test_many_texts_give_the_totals_of_each(texts: int, dtype: type) -> None:
    given = [made_up(number, dtype) for number in range(texts)]
    kinds = np.array([len(one.item_id) % 3 for one in given])
    batch = TextBatch.join(given)
    found = word_rows(words_of(batch), kinds)
    rows = {(kind, word): row for kind, words in found for (word,), row in words.items()}
    assert rows == slow_words(given, kinds.tolist())
    assert part_rows(batch, kinds, 3, PARTS) == slow_parts(given, kinds.tolist(), 3)


def test_one_by_one_or_together_a_shard_has_the_same_bits() -> None:
    given = [made_up(number) for number in range(60)]
    together, apart = ShardAggregate(), ShardAggregate()
    together.add_all([], given)
    for one in reversed(given):
        apart.add_all([], [one])
    assert together.to_json() == apart.to_json()


@pytest.mark.parametrize("largest", [1.0, 4000.0, 1e6, 1e14])
def test_sums_are_exact_whatever_the_size(largest: float) -> None:
    values = np.random.default_rng(0).normal(size=5000) * largest
    values[:3] = [0.5 / UNITS, -0.5 / UNITS, 1.5 / UNITS]  # halves go to the even neighbour
    of = np.random.default_rng(1).integers(0, 7, size=5000)
    expected = [0] * 8
    for place, value in zip(of.tolist(), values.tolist(), strict=True):
        expected[place] += exact(value)
    assert exact_sums(values, of, 8) == expected


def test_more_numbers_than_a_float_can_add_up() -> None:
    values = np.full(2**21 + 5, 4095.9999999999995)
    found = exact_sums(values, np.zeros(len(values), dtype=np.intp), 1)
    assert found == [exact(4095.9999999999995) * len(values)]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e15])
def test_sums_of_what_is_not_finite_are_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="not finite"):
        exact_sums(np.array([1.0, bad]), np.array([0, 0]), 1)


def test_words_whose_numbers_do_not_ascend_are_the_same_words() -> None:
    one = made_up(7)
    tokens = Tokens.of(one.features)
    turned = replace(one, features=tokens[::-1], relevance=one.relevance[::-1].copy())
    found = [words_of(TextBatch.join([each])) for each in (one, turned)]
    assert found[0].relevance.tolist() == pytest.approx(found[1].relevance.tolist())
    assert found[0].of.tolist() == found[1].of.tolist()


def test_letters_whose_lower_case_is_longer_keep_their_places() -> None:
    text = "İstanbul and Ankara"
    words = [(0, 8), (9, 12), (13, 19)]
    tokens = [
        Token(text=text[a:b], start=a, end=b, word=place) for place, (a, b) in enumerate(words)
    ]
    one = replace(made_up(1), text=text, features=tokens, relevance=np.ones(3))
    plain = replace(one, text="Istanbul AND Ankara")
    found = words_of(TextBatch.join([one, plain]))
    assert found.texts == ["i\u0307stanbul", "and", "ankara", "istanbul", "and", "ankara"]


def test_kinds_of_which_few_have_a_word_are_counted_the_same() -> None:
    given = [made_up(number) for number in range(20)]
    found = words_of(TextBatch.join(given))
    kinds = np.arange(20) % 3
    rows = dict(word_rows(found, kinds))
    sparse = dict(word_rows(found, kinds * 10**6))
    assert {kind * 10**6: row for kind, row in rows.items()} == sparse
