"""Aligns the tokens of another program with a text: where each stands, and which words they
form.
"""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from transexplain.errors import ItemError
from transexplain.types.tokens import Token

#: what tokenizers write before a piece: WordPiece inside a word; byte-level BPE and SentencePiece
#: where one begins
MARKS = ("##", "\N{LATIN CAPITAL LETTER G WITH DOT ABOVE}", "\N{LOWER ONE EIGHTH BLOCK}")
_INSIDE = MARKS[0]
_UNKNOWN = ("[UNK]", "<unk>")
_SPECIAL = re.compile(r"\[[A-Z_]+\d*\]|</?\w+>|<\|\w+\|>")

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Folded:
    """A text in lower case, compatibility forms and accents taken off, letter by letter."""

    letters: str
    origin: Sequence[int]  #: place in the text of every letter, and at the end its length

    @classmethod
    def of(cls, text: str) -> "_Folded":
        pairs = [(letter, place) for place, one in enumerate(text) for letter in fold(one)]
        return cls("".join(letter for letter, _ in pairs), [*(p for _, p in pairs), len(text)])

    def span(self, start: int, end: int) -> Span:
        """The part of the text that letters `start` to `end` come from, with its accents."""
        first, last = self.origin[start], self.origin[end - 1]
        return first, max(self.origin[end], last + 1)


def fold(text: str) -> str:
    """`text` as the search compares it: NFKD in lower case, without combining marks."""
    plain = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", text).lower())
    return "".join(letter for letter in plain if not unicodedata.combining(letter))


def find_spans(text: str, tokens: Sequence[str], special: Sequence[bool | None]) -> list[Span]:
    """The characters (from, to) of every token, found from left to right.

    Case, accents and the marks of `MARKS` are ignored. Only what is no letter and no digit may
    lie between two tokens; a token for what the tokenizer did not know takes what lies before the
    next one. Special tokens, and those of white space alone, have an empty span.

    Args:
        text: the original text.
        tokens: in reading order.
        special: True for CLS, SEP and their like; None: it is known by its form and by not being
            found.

    Raises ItemError token-not-found, naming the first token that is not there.
    """
    folded, cursor = _Folded.of(text), 0
    spans: list[Span] = []
    unknown: int | None = None
    for place, (token, known) in enumerate(zip(tokens, special, strict=True)):
        if token in _UNKNOWN and not known:
            if unknown is not None:
                raise _not_found(place, token, "two unknown tokens in a row; give offsets")
            unknown = place
            spans.append((0, 0))
            continue
        found = None if known else _find(folded, token, cursor, jump=unknown is not None)
        if found is None:
            if not (known or is_frame(token)) and token.strip("".join(MARKS)).strip():
                raise _not_found(place, token, f"after {text[: folded.origin[cursor]][-20:]!r}")
            spans.append((folded.origin[cursor],) * 2)
            continue
        if unknown is not None:
            spans[unknown], unknown = _between(text, folded, cursor, found[0]), None
        spans.append(folded.span(*found))
        cursor = found[1]
    if unknown is not None:
        spans[unknown] = _between(text, folded, cursor, len(folded.letters))
    return spans


def is_frame(token: str) -> bool:
    """Whether a token that stands for no part of the text has the form of a special one."""
    return token == "" or (token not in _UNKNOWN and bool(_SPECIAL.fullmatch(token)))


def as_tokens(
    text: str, tokens: Sequence[str], spans: Sequence[Span], special: Sequence[bool]
) -> Sequence[Token]:
    """Tokens with their words (T,): pieces belong together where letters or digits touch.

    Where the tokens carry WordPiece's mark it decides instead.
    """
    marked = any(token.startswith(_INSIDE) for token in tokens)
    found: list[Token] = []
    word, last = -1, -1  # the number of the word in hand, and the character it ends before
    for piece, (left, right), framing in zip(tokens, spans, special, strict=True):
        start, end = _trimmed(text, left, right)
        if framing or start == end:
            place = 0 if framing else start  # special tokens have no place in the text
            found.append(Token(text=piece, start=place, end=place, special=framing))
            continue
        goes_on = piece.startswith(_INSIDE) if marked else text[start].isalnum()
        inside = 0 <= start < last  # pieces of one character, such as the bytes of an emoji
        touches = start == last and goes_on and (marked or text[start - 1].isalnum())
        if not (inside or touches):
            word += 1
        last = max(last, end) if inside else end
        found.append(Token(text=text[start:end], start=start, end=end, word=word))
    return tuple(found)


def _find(folded: _Folded, token: str, cursor: int, *, jump: bool) -> Span | None:
    """The next place of `token`, with or without its mark; `jump`: anything may come before."""
    stripped = token.strip()
    forms = [stripped, *(stripped.removeprefix(m) for m in MARKS if stripped.startswith(m))]
    for form in map(fold, map(str.strip, forms)):
        start = folded.letters.find(form, cursor) if form else -1
        between = folded.letters[cursor:start]
        if start >= 0 and (jump or not any(letter.isalnum() for letter in between)):
            return start, start + len(form)
    return None


def _between(text: str, folded: _Folded, start: int, end: int) -> Span:
    return _trimmed(text, folded.origin[start], folded.origin[end])


def _trimmed(text: str, start: int, end: int) -> Span:
    """The span without white space at either end; an empty one where nothing else is in it."""
    cut = text[start:end]
    if not cut.strip():
        return start, start
    return end - len(cut.lstrip()), start + len(cut.rstrip())


def _not_found(place: int, token: str, why: str) -> ItemError:
    return ItemError(
        "token-not-found",
        f"token {place} ({token!r}) does not follow in the text: {why}; give offsets, or the "
        "text that these tokens were cut from",
    )


#: beyond it a sum of two numbers, and the number as stored, may be infinite
_LARGEST = float(np.finfo(np.float32).max)


def _is_finite(value: float) -> bool:
    return abs(value) <= _LARGEST  # false for NaN


def numbers_of(values: Sequence[Any], column: str) -> tuple[float, ...]:
    """The numbers in a cell; raises ItemError malformed-row or not-finite, with the place."""
    for place, value in enumerate(values):
        name = f"{column}[{place}]" if len(values) > 1 else column
        if isinstance(value, list):
            raise ItemError(
                "malformed-row",
                f"{name} is a list; a token has one number, so sum over the others",
            )
        if isinstance(value, bool) or not isinstance(value, int | float | None):
            raise ItemError("malformed-row", f"{name} is {value!r}, not a number")
        if value is None or not _is_finite(value):
            raise ItemError("not-finite", f"{name} is {value}")
    return tuple(map(float, values))


def span_of(pair: Any, text: str) -> Span:
    """The characters from and to that a cell names; raises ItemError malformed-row, bad-offsets."""
    whole = isinstance(pair, list) and len(pair) == 2 and all(type(one) is int for one in pair)
    if not whole:
        raise ItemError("malformed-row", f"an offset is {pair!r}, not [start, end]")
    start, end = pair
    if not 0 <= start <= end <= len(text):
        raise ItemError(
            "bad-offsets",
            f"the offset {pair} lies outside the text of {len(text)} characters (they count "
            "characters, not bytes)",
        )
    return start, end


def check_order(spans: Sequence[Span], special: Sequence[bool]) -> None:
    """Raise ItemError bad-offsets where tokens that are not special go back in the text."""
    starts = [start for (start, _), one in zip(spans, special, strict=True) if not one]
    for before, after in pairwise(starts):
        if after < before:
            raise ItemError(
                "bad-offsets",
                f"a token at character {after} follows one at {before}; offsets are in reading "
                "order and count from the beginning of `text`",
            )
