"""Pairs of words that replace each other: read, checked, and used by the place of a word."""

from pathlib import Path

import pytest

from transexplain.analysis.groups.lexicon import (
    SHIPPED,
    Partners,
    checked_pairs,
    load_lexicon,
    load_pairs,
)
from transexplain.errors import LexiconError
from transexplain.types.items import EntityGroup

GENDER = load_lexicon("builtin:gender")
PARTNERS = Partners(load_pairs(SHIPPED))


def test_the_shipped_pairs_are_words_of_the_shipped_lexicon() -> None:
    pairs = load_pairs(SHIPPED)
    assert checked_pairs(pairs, GENDER) == pairs
    assert {("he", "she"), ("himself", "herself"), ("husbands", "wives")} <= set(pairs)
    assert all(
        PARTNERS.partner(pronoun, ".")
        for pronoun in ("he", "him", "his", "himself", "she", "her", "hers", "herself")
    )


@pytest.mark.parametrize(
    ("word", "following", "expected"),
    [
        ("he", " left", "she"),
        ("She", " left", "He"),
        ("HIMSELF", "", "HERSELF"),
        ("her", " brother left", "his"),
        ("her", " 3 brothers", "his"),
        ("Her", " brother", "His"),
        ("her", ".", "him"),
        ("her", "", "him"),
        ("her", ", brother", "him"),
        ("her", " and left", "him"),
        ("her", " yesterday", "him"),
        ("her", " (brother)", "him"),
        ("her", "-self", "him"),
        ("hers", ".", "his"),
        ("him", " brother", "her"),
        ("his", " brother", "her"),
        ("his", ".", "hers"),
        ("his", " in town", "hers"),
        ("Mother-In-Law", " came", "Father-in-law"),
        ("car", " came", None),
    ],
)
def test_partners_by_where_a_word_stands(word: str, following: str, expected: str | None) -> None:
    assert PARTNERS.partner(word, following) == expected


def test_names_keep_their_capitals() -> None:
    found = Partners([("Thomas", "Maria")])
    assert [found.partner(one, " came") for one in ("Thomas", "THOMAS", "Maria", "maria")] == [
        "Maria",
        "MARIA",
        "Thomas",
        "Thomas",
    ]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("p.yaml", "- [he, she]\n- [Thomas, Maria]\n"),
        ("p.json", '[["he", "she"], ["Thomas", "Maria"]]'),
        ("p.csv", "word,partner\nhe,she\n\nThomas,Maria\n"),
        ("p.tsv", "Word\tPartner\nhe\tshe\nThomas\tMaria\n"),
    ],
)
def test_every_form_of_file(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    assert load_pairs(tmp_path / name) == (("he", "she"), ("Thomas", "Maria"))


@pytest.mark.parametrize(
    ("name", "text", "printed"),
    [
        ("p.yaml", "he: she\n", "expected a list"),
        ("p.yaml", "", "expected a list"),
        ("p.yaml", "- [he, she, they]\n", "pair; write"),
        ("p.yaml", "- he\n", "pair; write"),
        ("p.yaml", "- [he, 7]\n", "word; put"),
        ("p.yaml", "- [he, '']\n", "'' is no word"),
        ("p.yaml", "- [he, [\n", "p.yaml"),
        ("p.csv", "he,she\n", "line 1"),
        ("p.csv", "", "line 1"),
        ("p.csv", "word,partner\nhe\n", "is no pair"),
        ("p.txt", "he she", "lexicon"),
    ],
)
def test_files_without_pairs_are_refused(tmp_path, name: str, text: str, printed: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(LexiconError, match=printed):
        load_pairs(tmp_path / name)


@pytest.mark.parametrize(
    ("pairs", "printed"),
    [
        ([("he", "car")], r"\[he, car\]: 'car'"),
        ([("", "she")], "'' is no term"),
        ([("he", "him")], "gender/male"),
        ([("he", "he")], "gender/male"),
        ([("he", "Rose")], "gender/male and flower/red"),
        ([("he", "she"), ("She", "he")], r"he\] is given"),
    ],
)
def test_invalid_pairs_are_refused(pairs: list[tuple[str, str]], printed: str) -> None:
    groups = (*GENDER, EntityGroup(name="flower/red", terms=("Rose",)))
    with pytest.raises(LexiconError, match=printed):
        checked_pairs(pairs, groups)
