"""Reading one cell of a row of attributions: numbers, and places in a text."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from transexplain.data.alignment import Span
from transexplain.errors import ItemError

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
