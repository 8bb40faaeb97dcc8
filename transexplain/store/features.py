"""What an item's positions are, as bytes: once per item, whatever the number of targets.

Tokens are written as columns (texts, gaps, lengths, words, special) rather than records: gaps
between neighbours are mostly 0 or 1, which compresses to a few bytes a token.
"""

import json
import zlib
from itertools import pairwise
from typing import Any

from transexplain.types import PatchGrid, Token

Features = tuple[Token, ...] | PatchGrid


def pack(features: Features) -> bytes:
    """Compressed JSON of the tokens or of the grid."""
    if isinstance(features, PatchGrid):
        document: Any = [features.rows, features.cols, features.height, features.width]
        document += [features.prefix, *features.box]
    else:
        document = _columns(features)
    return zlib.compress(json.dumps(document, separators=(",", ":")).encode(), 1)


def unpack(packed: bytes) -> Features:
    """The features that `pack` was given."""
    document = json.loads(zlib.decompress(packed))
    if isinstance(document, list):
        rows, cols, height, width, prefix, *box = document
        return PatchGrid(
            rows=rows,
            cols=cols,
            height=height,
            width=width,
            prefix=prefix,
            box=(box[0], box[1], box[2], box[3]),
        )
    return _tokens(document)


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


def _tokens(columns: dict[str, list[Any]]) -> tuple[Token, ...]:
    special = set(columns["special"])
    bounds = [0]
    for gap, length in zip(columns["gap"], columns["length"], strict=True):
        start = bounds[-1] + gap
        bounds += [start, start + length]
    spans = list(pairwise(bounds))[1::2]
    return tuple(
        Token(text=text, start=start, end=end, special=position in special, word=word)
        for position, (text, (start, end), word) in enumerate(
            zip(columns["text"], spans, columns["word"], strict=True)
        )
    )
