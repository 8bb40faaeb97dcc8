"""Columns of integers of any size: as they are saved, and added up without an object per number.

A number is cut into limbs of 32 bits in two's complement: x = sum over l of limb_l 2**(32 l), where
the last limb has the sign and the others have none. Limbs add without carrying in 64 bits.
"""

from base64 import b64encode
from binascii import a2b_base64
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

_BITS = 32
_LOW = (1 << _BITS) - 1
_FIRST = 1024  #: places that are made at once; doubled from there
MOST_LIMBS = 31  #: of a saved number; a float holds their sums

Limbs = NDArray[np.int64]  #: (L, N), of N numbers


def limbs_of(numbers: Sequence[int]) -> Limbs:
    """The limbs (L, N) of integers of any size, as few as hold all of them."""
    try:
        narrow = np.array(numbers, dtype=np.int64)
    except OverflowError:
        count = max(one.bit_length() for one in numbers) // _BITS + 1
        raw = b"".join(one.to_bytes(4 * count, "little", signed=True) for one in numbers)
        return _signed(np.frombuffer(raw, dtype="<u4").reshape(-1, count).T)
    if not len(narrow) or (narrow.min() >= -(_LOW // 2) - 1 and narrow.max() <= _LOW // 2):
        return narrow[None, :]
    return np.stack([narrow & _LOW, narrow >> _BITS])


def integers(limbs: Limbs) -> list[int]:
    """The numbers (N,) of limbs (L, N), which may have grown by adding."""
    carried = limbs.copy()
    for place in range(len(carried) - 1):
        carried[place + 1] += carried[place] >> _BITS
        carried[place] &= _LOW
    *lower, top = carried
    if len(lower) == 1 and len(top) and np.abs(top).max() < 2 ** (_BITS - 2):
        lower, top = [], (top << _BITS) + lower[0]
    found: list[int] = top.tolist()
    for plane in reversed(lower):
        found = [(high << _BITS) + low for high, low in zip(found, plane.tolist(), strict=True)]
    return found


def packed(rows: Iterable[Sequence[int]], width: int) -> dict[str, Any]:
    """Rows of `width` integers as JSON values: how many limbs each column has, and all limbs.

    `numbers` is the base64 of little-endian limbs: column by column, of each the lowest limb of all
    rows first. Equal rows give equal JSON.
    """
    columns = list(map(limbs_of, zip(*rows, strict=True))) or [limbs_of(())] * width
    raw = b"".join(one.astype("<u4").tobytes() for one in columns)
    return {"limbs": [len(one) for one in columns], "numbers": b64encode(raw).decode()}


def unpacked(content: Mapping[str, Any], rows: int, width: int) -> list[Limbs]:
    """The columns of `rows` rows that `packed` wrote; raises ValueError where they do not fit."""
    limbs = content["limbs"]
    if len(limbs) != width or not all(0 < one <= MOST_LIMBS for one in limbs):
        raise ValueError(f"limbs {limbs} in a table of {width} columns")
    raw = np.frombuffer(a2b_base64(content["numbers"], strict_mode=True), dtype="<u4")
    if len(raw) != rows * sum(limbs):
        raise ValueError(f"{len(raw)} limbs in {rows} rows, not {sum(limbs)} in each")
    planes = raw.reshape(sum(limbs), rows)
    ends = np.cumsum(limbs).tolist()
    return [_signed(planes[end - count : end]) for count, end in zip(limbs, ends, strict=True)]


def unpacked_rows(content: Mapping[str, Any], rows: int, width: int) -> Iterator[list[int]]:
    """The rows that `packed` wrote; raises as `unpacked`."""
    columns = [integers(one) for one in unpacked(content, rows, width)]
    return map(list, zip(*columns, strict=True))


def _signed(planes: NDArray[np.uint32]) -> Limbs:
    """Limbs without signs, but for the last one."""
    found = planes.astype(np.int64)
    found[-1] = np.ascontiguousarray(planes[-1]).view("<i4")
    return found


class ExactColumn:
    """Sums by place, from 0; a place that nothing was added to holds 0."""

    def __init__(self) -> None:
        self._limbs: Limbs = np.zeros((1, _FIRST), dtype=np.int64)

    def add(self, places: NDArray[np.intp], limbs: Limbs, length: int) -> None:
        """Add numbers (L, n) at different `places` (n,), which are below `length`.

        Sums stay exact over the first 2**31 additions.
        """
        self._grow(len(limbs), length)
        for own, more in zip(self._limbs, limbs, strict=False):
            own[places] += more

    def sums(self, length: int) -> list[int]:
        """The first `length` sums."""
        self._grow(1, length)
        return integers(self._limbs[:, :length])

    def _grow(self, limbs: int, length: int) -> None:
        have, room = self._limbs.shape
        wanted = max(room, 1 << (length - 1).bit_length()) if length > room else room
        if limbs > have or wanted > room:
            grown = np.zeros((max(have, limbs), wanted), dtype=np.int64)
            grown[:have, :room] = self._limbs
            self._limbs = grown
