"""Encodes relevance and positions of an item as bytes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from msgspec import convert
from numpy.typing import NDArray

from transexplain.errors import ItemError
from transexplain.types.items import PatchGrid
from transexplain.types.plans import Payload
from transexplain.types.tokens import Token

_LARGEST = float(np.finfo(np.float32).max)
_SMALLEST = np.nextafter(np.float32(0), np.float32(1))


@dataclass(frozen=True, kw_only=True, slots=True)
class EncodedMany:
    """The relevance of N attributions, one behind the other."""

    values: NDArray[np.float16] | NDArray[np.float32]
    scales: NDArray[np.float64]  #: (N,), each a float32; 0 where every value of one is 0


def encode_all(
    relevance: Sequence[NDArray[np.floating[Any]]], payload: Payload, item_ids: Sequence[str]
) -> EncodedMany:
    """N arrays of `relevance` (any shapes, signed), of items with these ids.

    Raises ItemError (`not-finite`) for NaN, infinity, or values beyond float32.
    """
    counts = np.array([one.size for one in relevance], dtype=np.int64)
    flat = [one.ravel() for one in relevance]
    values = np.concatenate(flat, dtype=np.float64) if flat else np.zeros(0)
    largest = _largest_of(values, counts)
    # in this form NaN, for which every comparison is false, is refused too
    unfit = np.flatnonzero(~(largest <= _LARGEST))
    if len(unfit):
        name = item_ids[int(unfit[0])]
        raise ItemError(
            "not-finite", f"item {name!r}: relevance is NaN, infinite or beyond float32"
        )
    if payload == "float32":
        return EncodedMany(values=values.astype("<f4"), scales=np.ones(len(counts)))
    scales = largest.astype(np.float32).astype(np.float64)
    scales[(scales == 0.0) & (largest > 0.0)] = float(_SMALLEST)
    of_each = np.repeat(np.where(scales == 0.0, 1.0, scales), counts)
    return EncodedMany(values=(values / of_each).astype("<f2"), scales=scales)


def decode_all(
    values: NDArray[np.floating[Any]], scales: NDArray[np.float64], counts: NDArray[np.int64]
) -> NDArray[np.float32]:
    """The relevance of all attributions one behind the other, from what `encode_all` gave.

    Args:
        values: those of `EncodedMany`, of its type.
        scales: (N,) those of `EncodedMany`.
        counts: (N,) how many values each attribution has.
    """
    wide = values.astype(np.float64)
    if values.dtype == np.float16:
        wide *= np.repeat(scales, counts)
    return wide.astype(np.float32)


def _largest_of(values: NDArray[np.float64], counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """(N,) the largest size among each run of `counts` values; 0 where there are none."""
    found = np.zeros(len(counts))
    some = counts > 0
    if some.any():
        begins = (np.cumsum(counts) - counts)[some]
        found[some] = np.maximum.reduceat(np.abs(values), begins)
    return found


Features = Sequence[Token] | PatchGrid


def count(features: Features) -> int:
    """How many values a relevance array over these positions has (prefix positions apart)."""
    return features.rows * features.cols if isinstance(features, PatchGrid) else len(features)


def grid_of(numbers: list[Any]) -> PatchGrid:
    """A grid from its rows, columns, height, width, prefix and box; ValueError: it can be none."""
    rows, cols, height, width, prefix = convert(numbers[:5], tuple[int, int, int, int, int])
    box = convert(numbers[5:], tuple[float, float, float, float])
    if min(rows, cols) < 1 or min(height, width, prefix) < 0:
        raise ValueError(f"a grid of {rows} x {cols} patches and {prefix} positions before")
    return PatchGrid(rows=rows, cols=cols, height=height, width=width, prefix=prefix, box=box)
