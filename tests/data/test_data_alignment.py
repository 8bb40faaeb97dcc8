"""Tokens of other programs: where they stand in the text, and which words they make."""

import unicodedata

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from transexplain.data.attribution_rows import as_tokens, find_spans, fold
from transexplain.errors import ItemError


def found(text: str, *tokens: str) -> list[str]:
    spans = find_spans(text, tokens, [None] * len(tokens))
    return [text[start:end] for start, end in spans]


@pytest.mark.parametrize(
    ("text", "tokens", "parts"),
    [
        (
            "unbelievably good",
            ["un", "##believ", "##ably", "good"],
            ["un", "believ", "ably", "good"],
        ),
        ("a nice film", ["<s>", "a", "Ġnice", "Ġfilm", "</s>"], ["", "a", "nice", "film", ""]),
        ("a nice film", ["▁a", "▁ni", "ce", "▁", "film"], ["a", "ni", "ce", "", "film"]),
        ("Hello world!", ["", "Hello ", "world", "!", ""], ["", "Hello", "world", "!", ""]),
        # signs that look like marks
        ("C## and [SEP] ▁x", ["C", "##", "and", "[SEP]", "▁x"], ["C", "##", "and", "[SEP]", "▁x"]),
        ("ann an", ["ann", "an"], ["ann", "an"]),
        # case, accents, which belong to their letters, and compatibility forms
        ("Café ÉTÉ", ["cafe", "ete"], ["Café", "ÉTÉ"]),
        ("cafe\u0301 x", ["café", "x"], ["cafe\u0301", "x"]),
        ("ﬁne…", ["fi", "ne", "..."], ["ﬁ", "ne", "…"]),
        ("I❤️you 👩‍👩‍👧!", ["i", "❤️", "you", "👩‍👩‍👧", "!"], ["I", "❤️", "you", "👩‍👩‍👧", "!"]),
        # an unknown token takes what lies between
        ("see 東京 now", ["see", "[UNK]", "now"], ["see", "東京", "now"]),
        ("see 東京", ["[CLS]", "see", "[UNK]", "[SEP]"], ["", "see", "東京", ""]),
    ],
)
def test_tokens_are_found_in_the_text(text: str, tokens: list[str], parts: list[str]) -> None:
    assert found(text, *tokens) == parts


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("a good film", ("a", "film")),  # a word is missing
        ("a good film", ("a", "a")),  # it is there once
        ("caf\u00e9", ("caf", "\u00c3\u00a9")),  # bytes of a letter, as byte-level BPE writes them
        ("film", ("film", "film")),
        ("a b c", ("a", "[UNK]", "[UNK]")),
    ],
)
def test_tokens_that_do_not_follow_in_the_text_are_refused(text: str, tokens: tuple[str, ...]):
    with pytest.raises(ItemError) as error:
        found(text, *tokens)
    assert error.value.kind == "token-not-found"
    assert repr(tokens[1]) in str(error.value)


LETTERS = st.text(
    st.one_of(
        st.characters(categories=["Lu", "Ll", "Lo", "Nd", "Mn", "Po", "So"]),
        st.sampled_from("abcdefgéüñ😀👍🏽❤️\u0301\u0308"),
    ),
    min_size=1,
    max_size=8,
)


def _plain(word: str) -> bool:
    return bool(fold(word)) and not unicodedata.combining(word[0])


@given(st.lists(LETTERS.filter(_plain), min_size=1, max_size=8), st.data())
def test_pieces_are_found_where_they_were_cut(words: list[str], data: st.DataObject) -> None:
    """Any text of words, cut anywhere but before an accent: spans are where the cuts were."""
    text, tokens, wanted = "", [], []
    for word in words:
        text += " " if text else ""
        cuts = {0, *data.draw(st.sets(st.integers(0, len(word) - 1)))}
        bounds = [cut for cut in sorted(cuts) if not unicodedata.combining(word[cut])]
        for start, end in zip(bounds, [*bounds[1:], len(word)], strict=True):
            piece = word[start:end]
            assume(fold(piece))  # a sign that folds to nothing has no place of its own
            tokens.append(("##" if start else "") + piece)
            wanted.append((len(text) + start, len(text) + end))
        text += word
    spans = find_spans(text, tokens, [None] * len(tokens))
    assert spans == wanted


def test_words_of_pieces() -> None:
    text = "don't un-do it😀"
    spans = [(0, 3), (3, 4), (4, 5), (6, 8), (8, 9), (9, 11), (12, 14), (14, 15), (14, 15)]
    tokens = as_tokens(text, ["x"] * 9, spans, [False] * 9)
    assert [token.word for token in tokens] == [0, 1, 2, 3, 4, 5, 6, 7, 7]
    assert [token.text for token in tokens][-2:] == ["😀", "😀"], "two bytes of one sign"
    marked = as_tokens(
        "東京 unable", ["東", "京", "un", "##able"], [(0, 1), (1, 2), (3, 5), (5, 9)], [False] * 4
    )
    assert [token.word for token in marked] == [0, 1, 2, 2]
    framed = as_tokens("a b", ["[CLS]", "a ", "b"], [(0, 0), (0, 2), (2, 3)], [True, False, False])
    assert [(t.start, t.end, t.word) for t in framed] == [(0, 0, None), (0, 1, 0), (2, 3, 1)]
