"""Relevance as bytes: little-endian float16 behind one scale, or float32 as it is.

float16 holds r / scale with scale = max |r|, so that values lie in [-1, 1] whatever their unit:
each comes back within 2^-11 of itself plus 2^-25 of the scale (where float16 is subnormal).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transexplain.errors import ItemError
from transexplain.plans import Payload
from transexplain.store.damage import reading

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
    # written so that NaN, for which every comparison is false, is refused too
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
