"""What an item's positions are, as bytes: once per item, whatever the number of targets.

Tokens are written as columns (texts, gaps, lengths, words, special) rather than records: gaps
between neighbours are mostly 0 or 1, which compresses to a few bytes a token.
"""

import json
import zlib
from itertools import pairwise
from typing import Any

from msgspec import Struct, convert

from transexplain.store.columns import read_json
from transexplain.store.damage import reading
from transexplain.types import PatchGrid, Token

Features = tuple[Token, ...] | PatchGrid


class _Columns(Struct):
    """The columns of the tokens, as they are written."""

    text: list[str]
    gap: list[int]
    length: list[int]
    word: list[int | None]
    special: list[int]


def pack(features: Features) -> bytes:
    """Compressed JSON of the tokens or of the grid."""
    if isinstance(features, PatchGrid):
        document: Any = [features.rows, features.cols, features.height, features.width]
        document += [features.prefix, *features.box]
    else:
        document = _columns(features)
    return zlib.compress(json.dumps(document, separators=(",", ":")).encode(), 1)


def unpack(packed: bytes) -> Features:
    """The features that `pack` was given; raises DatabaseError where it did not pack them."""
    with reading("the positions of an item"):
        document = read_json(zlib.decompress(packed))
        if isinstance(document, list):
            return _grid(document)
        return _tokens(convert(document, _Columns))


def count(features: Features) -> int:
    """How many values a relevance array over these positions has (prefix positions apart)."""
    return features.rows * features.cols if isinstance(features, PatchGrid) else len(features)


def _columns(tokens: tuple[Token, ...]) -> dict[str, list[Any]]:
    ends = [0, *(int(token.end) for token in tokens)]
    return {
        "text": [token.text for token in tokens],
        "gap": [int(token.start) - end for token, end in zip(tokens, ends, strict=False)],
        "length": [int(token.end) - int(token.start) for token in tokens],
        "word": [None if token.word is None else int(token.word) for token in tokens],
        "special": [position for position, token in enumerate(tokens) if token.special],
    }


def _tokens(columns: _Columns) -> tuple[Token, ...]:
    special = set(columns.special)
    bounds = [0]
    for gap, length in zip(columns.gap, columns.length, strict=True):
        start = bounds[-1] + gap
        bounds += [start, start + length]
    spans = list(pairwise(bounds))[1::2]
    return tuple(
        Token(text=text, start=start, end=end, special=position in special, word=word)
        for position, (text, (start, end), word) in enumerate(
            zip(columns.text, spans, columns.word, strict=True)
        )
    )


def _grid(numbers: list[Any]) -> PatchGrid:
    rows, cols, height, width, prefix = convert(numbers[:5], tuple[int, int, int, int, int])
    box = convert(numbers[5:], tuple[float, float, float, float])
    if min(rows, cols) < 1 or min(height, width, prefix) < 0:
        raise ValueError(f"a grid of {rows} x {cols} patches and {prefix} positions before")
    return PatchGrid(rows=rows, cols=cols, height=height, width=width, prefix=prefix, box=box)
