"""The words of an explained text as ranges of characters, with the relevance of each."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transexplain.errors import ConfigurationError
from transexplain.types.items import Attribution, PatchGrid
from transexplain.types.tokens import NO_WORD, Token, Tokens

UNKNOWN = "\N{BLACK VERTICAL RECTANGLE}"  #: stands for a word whose text is not stored


@dataclass(frozen=True, kw_only=True, slots=True)
class Span:
    """A stretch of text that the model read as one word; spans never overlap."""

    start: int  #: character offset into the text
    end: int
    relevance: float  #: sum over its word pieces


def spans_of(attribution: Attribution) -> tuple[str, tuple[Span, ...]]:
    """The text and its words; without a stored text, the tokens put side by side.

    Special tokens are no text and have no span. White space at a word's edges stays outside.
    Raises TypeError for the attribution of an image, ConfigurationError for NaN or infinity.
    """
    if isinstance(attribution.features, PatchGrid):
        raise TypeError("this attribution is of an image: draw it with reports.heatmap")
    if not np.isfinite(attribution.relevance).all():
        raise ConfigurationError(f"the relevance of item {attribution.item_id!r} is not finite")
    tokens: Sequence[Token] = attribution.features
    text = attribution.text
    if text is None:
        text, tokens = _side_by_side(tokens)
    return text, tuple(_spans(text, _words(tokens, attribution.relevance)))


def largest(spans: Iterable[Span]) -> float:
    """The largest |relevance|; 0 where there are none."""
    return max((abs(span.relevance) for span in spans), default=0.0)


def size_of(attribution: Attribution) -> float:
    """The largest |relevance| of a word (texts) or patch (images).

    Raises ConfigurationError where one is not finite.
    """
    if not np.isfinite(attribution.relevance).all():
        raise ConfigurationError(f"the relevance of item {attribution.item_id!r} is not finite")
    record = attribution
    return float(sizes_of([record.features], [record.relevance], [record.text])[0])


def sizes_of(
    features: Sequence[Sequence[Token] | PatchGrid],
    relevance: Sequence[NDArray[np.floating[Any]]],
    texts: Sequence[str | None],
) -> NDArray[np.float64]:
    """(N,) `size_of` of N attributions by their positions, relevance and texts."""
    sizes = np.zeros(len(features), dtype=np.float64)
    written: list[int] = []
    for place, positions in enumerate(features):
        if isinstance(positions, PatchGrid):
            sizes[place] = np.abs(relevance[place]).max(initial=0.0)
        else:
            written.append(place)
    if written:
        tokens = [Tokens.of(features[place]) for place in written]  # type: ignore[arg-type]
        values = [relevance[place] for place in written]
        sizes[written] = _sizes(tokens, values, [texts[place] for place in written])
    return sizes


def _sizes(
    tokens: Sequence[Tokens],
    relevance: Sequence[NDArray[np.floating[Any]]],
    texts: Sequence[str | None],
) -> NDArray[np.float64]:
    """`sizes_of` of texts: of all together where words neither overlap nor leave the text."""
    own = ~np.concatenate([token.special for token in tokens])
    of = np.repeat(np.arange(len(tokens)), [len(token) for token in tokens])
    columns = [
        np.concatenate([getattr(token, name) for token in tokens])
        for name in ("words", "starts", "ends")
    ]
    values = np.concatenate(relevance, dtype=np.float64)
    of, words, starts, ends, values = tuple(column[own] for column in (of, *columns, values))
    sizes = np.zeros(len(tokens))
    if not len(of):
        return sizes
    apart = (of[1:] != of[:-1]) | (words[1:] != words[:-1]) | (words[1:] == NO_WORD)
    first = np.flatnonzero(np.append(True, apart))
    number = np.cumsum(np.append(False, apart))
    sums = np.bincount(number, weights=values)
    np.maximum.at(sizes, of[first], np.abs(sums))
    start, end = np.minimum.reduceat(starts, first), np.maximum.reduceat(ends, first)
    row = of[first]
    lengths = np.array([-1 if text is None else len(text) for text in texts])[row]
    overlaps = np.append(False, (row[1:] == row[:-1]) & (start[1:] < end[:-1]))
    # without a text the words are put side by side, so that none of this can be
    unplain = (lengths >= 0) & (overlaps | (end <= start) | (end > lengths) | (start < 0))
    for place in np.unique(row[unplain]).tolist():
        spans = _words(tokens[place], relevance[place])
        sizes[place] = largest(_spans(texts[place] or "", spans))
    return sizes


def _words(tokens: Sequence[Token], relevance: NDArray[np.floating[Any]]) -> Iterator[Span]:
    """One span per run of tokens that belong to one word."""
    open_word: int | None = None
    held: Span | None = None
    for token, value in zip(tokens, relevance.tolist(), strict=True):
        if token.special:
            continue
        if held is not None and token.word is not None and token.word == open_word:
            start, end = min(held.start, token.start), max(held.end, token.end)
            held = Span(start=start, end=end, relevance=held.relevance + value)
            continue
        if held is not None:
            yield held
        open_word, held = token.word, Span(start=token.start, end=token.end, relevance=value)
    if held is not None:
        yield held


def _spans(text: str, words: Iterable[Span]) -> Iterator[Span]:
    """In reading order, inside the text, without white space at the edges, overlaps joined.

    Byte-level tokenizers give several tokens the characters of one emoji: those are one span.
    """
    held: Span | None = None
    for word in sorted(words, key=lambda span: (span.start, span.end)):
        start = min(max(word.start, 0), len(text))
        end = min(max(word.end, start), len(text))
        if not text[start:end].isspace():  # a token of white space alone keeps its place
            while start < end and text[start].isspace():
                start += 1
            while end > start and text[end - 1].isspace():
                end -= 1
        trimmed = Span(start=start, end=end, relevance=word.relevance)
        if held is not None and trimmed.start < held.end:
            held = Span(
                start=held.start,
                end=max(held.end, trimmed.end),
                relevance=held.relevance + trimmed.relevance,
            )
            continue
        if held is not None and held.end > held.start:
            yield held
        held = trimmed
    if held is not None and held.end > held.start:
        yield held


def _side_by_side(tokens: Sequence[Token]) -> tuple[str, list[Token]]:
    """A text made of the tokens, a blank between words, where the text was not stored."""
    text, placed, last = "", [], None
    for token in tokens:
        if token.special:  # keeps its place among the relevance
            placed.append(token)
            continue
        if text and (token.word is None or token.word != last):
            text += " "
        start, begins = len(text), token.word is None or token.word != last
        last = token.word
        # a word whose text is not stored still has its place
        text += token.text or (UNKNOWN if begins else "")
        placed.append(Token(text=token.text, start=start, end=len(text), word=token.word))
    return text, placed
