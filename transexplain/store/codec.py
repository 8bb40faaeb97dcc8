"""Encodes relevance and positions of an item as bytes."""

import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from msgspec import Struct, convert
from numpy.typing import NDArray

from transexplain.errors import ItemError
from transexplain.store.columns import read_json, reading
from transexplain.types.items import PatchGrid
from transexplain.types.plans import Payload
from transexplain.types.tokens import Token

_FORMS = {"float16": "<f2", "float32": "<f4"}
_LARGEST = float(np.finfo(np.float32).max)
_SMALLEST = np.nextafter(np.float32(0), np.float32(1))


@dataclass(frozen=True, kw_only=True, slots=True)
class EncodedRelevance:
    """What one row holds of a relevance array; its shape is that of the item's features."""

    blob: bytes  #: T values in reading order
    scale: float  #: a float32; 1 for float32 payloads, 0 where every value is 0
    dtype: str  #: float16 | float32


def encode(relevance: NDArray[np.floating[Any]], payload: Payload) -> EncodedRelevance:
    """`relevance` (any shape, signed) as bytes.

    Raises ItemError (`not-finite`) for NaN, infinity, or values beyond float32.
    """
    values = np.asarray(relevance, dtype=np.float64).ravel()
    largest = float(np.abs(values).max(initial=0.0))
    # in this form NaN, for which every comparison is false, is refused too
    if not largest <= _LARGEST:
        raise ItemError("not-finite", "relevance is NaN, infinite or beyond float32")
    if payload == "float32":
        return EncodedRelevance(blob=values.astype("<f4").tobytes(), scale=1.0, dtype="float32")
    scale = float(np.float32(largest))
    if scale == 0.0 and largest > 0.0:
        scale = float(_SMALLEST)
    ratios = values / scale if scale else values
    return EncodedRelevance(blob=ratios.astype("<f2").tobytes(), scale=scale, dtype="float16")


def decode(encoded: EncodedRelevance) -> NDArray[np.float32]:
    """The array (T,) in float32 that `encoded` was made from, flat.

    Raises DatabaseError where `encode` did not make it.
    """
    with reading("relevance"), np.errstate(invalid="ignore", over="ignore"):
        values = np.frombuffer(encoded.blob, dtype=_FORMS[encoded.dtype]).astype(np.float64)
        if encoded.dtype == "float16":
            values = values * encoded.scale
        largest = float(np.abs(values).max(initial=0.0))
        if not largest <= _LARGEST:
            raise ValueError("it is NaN, infinite or beyond float32")
    return values.astype(np.float32)


Features = Sequence[Token] | PatchGrid


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


def _columns(tokens: Sequence[Token]) -> dict[str, list[Any]]:
    ends = [0, *(int(token.end) for token in tokens)]
    return {
        "text": [token.text for token in tokens],
        "gap": [int(token.start) - end for token, end in zip(tokens, ends, strict=False)],
        "length": [int(token.end) - int(token.start) for token in tokens],
        "word": [None if token.word is None else int(token.word) for token in tokens],
        "special": [position for position, token in enumerate(tokens) if token.special],
    }


def _tokens(columns: _Columns) -> Sequence[Token]:
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
