"""Cuts texts and lexicon terms into words, so that a term matches whole words only.

A piece is a run of letters and digits with their combining marks, or one other visible
character. Scripts written without spaces (Han, Hiragana) give one piece per character, and a
negated verb (`don't`) is one piece, so that the name `Don` is not found in it; any other
apostrophe is a boundary.
"""

import re
import sys
import unicodedata
from collections.abc import Set as AbstractSet
from functools import cache
from typing import NamedTuple

_SPACELESS = "\u3041-\u3096\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U0003ffff"
_APOSTROPHES = "'\u2018\u2019\u02bc\uff07"
_SPELLINGS = str.maketrans(
    {**dict.fromkeys(_APOSTROPHES, "'"), "\u2010": "-", "\u2011": "-", "\uff0d": "-"}
)


class WordPiece(NamedTuple):
    """One word or one symbol of a text."""

    key: str  #: composed, case-folded, with plain apostrophes and hyphens
    capitals: frozenset[int]  #: positions in `key` that were written with a capital
    start: int  #: character offset into the text as given
    end: int
    spaced: bool  #: white space stands before it


def pieces(text: str, *, folded: bool = False) -> list[WordPiece]:
    """The pieces of `text` in reading order; offsets count the characters of `text` itself.

    `folded`: keys have no accents, and letters of one width (`Jos\u00e9` and `jose`).
    """
    if text.isascii():
        words: list[WordPiece] = []
        small, before, new = text.lower(), 0, tuple.__new__  # a named tuple's own is slower
        for match in _ASCII.finditer(text):
            start, end = match.span()
            key, surface = small[start:end], text[start:end]
            capitals = _NONE if key == surface else _capitals(surface, key)
            words.append(new(WordPiece, (key, capitals, start, end, start > before)))
            before = end
        return words
    pieces: list[WordPiece] = []
    before = 0
    for match in _pattern().finditer(text):
        key, capitals = _fold(match.group(), folded=folded)
        start, end = match.span()
        pieces.append(WordPiece(key, capitals, start, end, start > before))
        before = end
    return pieces


def exact_key(word: str) -> str:
    """The keys of its pieces, one after the other; a space between words apart."""
    return " ".join(piece.key for piece in pieces(word))


def folded_key(word: str) -> str:
    """As `exact_key`, whatever the accents and the width of its letters."""
    return " ".join(piece.key for piece in pieces(word, folded=True))


_NONE: frozenset[int] = frozenset()
_FIRST = frozenset({0})


def _capitals(surface: str, key: str) -> frozenset[int]:
    if surface[1:] == key[1:]:
        return _FIRST
    return frozenset(i for i, letter in enumerate(surface) if letter.isupper())


class KeyFilter:
    """Tells fast which texts hold none of some keys."""

    def __init__(self, keys: AbstractSet[str]) -> None:
        """`keys` are those of pieces."""
        self._keys = keys
        # of a text of plain letters no other key can be a piece
        ascii_keys = [key for key in keys if key.isascii()]
        self._plain = all(re.fullmatch(r"\w+", key, re.ASCII) for key in ascii_keys)
        self._words = frozenset(key.encode() for key in ascii_keys)

    def may_hold(self, text: str) -> bool:
        """Return whether a piece of `text` may have one of the keys; false means that none has."""
        if not text.isascii():
            return True
        small = text.lower()
        if not self._plain:
            return not self._keys.isdisjoint(_ASCII.findall(small))
        return not self._words.isdisjoint(small.encode().translate(_WORDS_ALONE).split())


#: bytes that are no part of a word become blanks
_WORDS_ALONE = bytes(
    code if code < 128 and (chr(code).isalnum() or chr(code) == "_") else 32 for code in range(256)
)


def _fold(surface: str, *, folded: bool) -> tuple[str, frozenset[int]]:
    if surface.isascii():
        small = surface.lower()
        return small, _NONE if small == surface else _capitals(surface, small)
    if folded:
        plain = _ACCENTS.sub("", unicodedata.normalize("NFKD", surface)).translate(_STROKES)
        surface = plain if plain.strip() else surface  # an accent by itself stays
    letters = unicodedata.normalize("NFC", surface).translate(_SPELLINGS)
    small_letters = [(small, letter.isupper()) for letter in letters for small in letter.casefold()]
    return (
        "".join(small for small, _ in small_letters),
        frozenset(i for i, (_, capital) in enumerate(small_letters) if capital),
    )


#: marks of Latin, Greek and Cyrillic letters; those of other scripts are letters of a name
_ACCENTS = re.compile("[\u0300-\u036f]")
_STROKES = str.maketrans(
    "\u0142\u0141\u00f8\u00d8\u0111\u0110", "lLoOdD"
)  #: no accent to take away


#: what `_pattern` is for a text of plain letters, at a third of the time
_ASCII = re.compile(r"\w+(?:(?<=[nN])'[tT](?!\w))?|\S", re.ASCII)


@cache
def _pattern() -> re.Pattern[str]:
    letter = rf"[^\W\u02bc{_SPACELESS}]"
    inside = rf"(?:{letter}|[{_marks()}\u200c\u200d])"
    negation = rf"(?:(?<=[nN])[{_APOSTROPHES}][tT](?!{inside}))"
    return re.compile(rf"{letter}{inside}*{negation}?|\S")


def _marks() -> str:
    """Every combining mark as ranges of a character class: Python's `\\w` has none of them."""
    ranges: list[list[int]] = []
    for code in range(0x300, sys.maxunicode + 1):
        if unicodedata.category(chr(code))[0] != "M":
            continue
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    return "".join(f"{chr(first)}-{chr(last)}" for first, last in ranges)
