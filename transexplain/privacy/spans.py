"""Stretches of a text: joined, widened to whole words, blanked."""

import re
from collections.abc import Iterable, Iterator, Sequence

from transexplain.privacy.hooks import Span
from transexplain.types import Token

_WORD = re.compile(r"\w+")


def widened(text: str, spans: Iterable[Span]) -> tuple[Span, ...]:
    """The spans with the words that they touch, joined where they meet, without empty ones."""
    given = [span for span in joined(spans) if span[0] < span[1]]
    if not given:
        return ()
    words = [match.span() for match in _WORD.finditer(text)]
    return tuple(joined((*given, *(word for word in words if covered(word, given)))))


def joined(spans: Iterable[Span]) -> list[Span]:
    """Spans in order, those that overlap or meet made one."""
    found: list[Span] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found


def covered(place: Span, spans: Sequence[Span]) -> bool:
    """Whether a place shares a character with a span, or is an empty one within it."""
    start, end = place
    return any(
        (start < last and first < end) or (start == end and first <= start <= last)
        for first, last in spans
    )


def blanked(text: str, spans: Iterable[Span], blank: str) -> str:
    """The text, as long as it was, with a blank for every character of the spans."""
    parts, cursor = [], 0
    for start, end in joined(spans):
        parts += [text[cursor:start], blank * (end - start)]
        cursor = end
    return "".join([*parts, text[cursor:]])


def word_ranges(tokens: Iterable[Token]) -> Iterator[Span]:
    """Where each word of the model's begins and ends."""
    found: dict[int, Span] = {}
    for token in tokens:
        if token.word is not None:
            start, end = found.get(token.word, (token.start, token.end))
            found[token.word] = (min(start, token.start), max(end, token.end))
    yield from found.values()
