"""Totals that do not depend on the order of adding: tables of integers, merged row by row.

Numbers are kept as integers in units of 2**-50. Integer addition is associative, that of floats is
not: only so do the shards of a run give the same bits however they are cut up and merged.
"""

import math
from base64 import b64encode
from binascii import a2b_base64
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import add
from typing import Any, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from transexplain.errors import ConfigurationError
from transexplain.types.relevance_sums import bin_of, outer_edge

UNITS = 2**50  #: of 9e-16 in whatever is summed

Key = TypeVar("Key", bound=Hashable)


def exact(value: float) -> int:
    """`value` in units; raises ValueError where it is not finite."""
    if not math.isfinite(value):
        raise ValueError(f"{value} is not finite")
    return round(value * UNITS)


_FITS = 2.0**12  #: numbers below it have units that fit 63 bits
_HALF = 2**32
_FITS_HIGH = 2.0**29  #: sums of upper halves below it make sums that fit 63 bits
_TOGETHER = 2**20  # numbers of 32 bits whose sum a float holds exactly


def exact_sums(values: NDArray[np.floating[Any]], of: NDArray[np.intp], count: int) -> list[int]:
    """The sums of `exact` over the values (N,) by `of` (N,), which of `count` sums each is in.

    Raises ValueError where a value is not finite.
    """
    wide = np.asarray(values, dtype=np.float64)
    if not np.isfinite(wide).all():
        raise ValueError("a value is not finite")
    if not (np.abs(wide) < _FITS).all():
        sums = [0] * count
        for place, value in zip(of.tolist(), wide.tolist(), strict=True):
            sums[place] += exact(value)
        return sums
    if len(wide) > _TOGETHER:
        parts = [
            exact_sums(wide[at : at + _TOGETHER], of[at : at + _TOGETHER], count)
            for at in range(0, len(wide), _TOGETHER)
        ]
        return [sum(numbers) for numbers in zip(*parts, strict=True)]
    units = np.rint(wide * UNITS).astype(np.int64)
    low = np.bincount(of, weights=(units & (_HALF - 1)).astype(np.float64), minlength=count)
    high = np.bincount(of, weights=(units >> 32).astype(np.float64), minlength=count)
    if np.abs(high).max(initial=0.0) < _FITS_HIGH:
        whole: list[int] = ((high.astype(np.int64) << 32) + low.astype(np.int64)).tolist()
        return whole
    return [
        int(above) * _HALF + int(below)
        for above, below in zip(high.tolist(), low.tolist(), strict=True)
    ]


def numbered(keys: Sequence[Any]) -> tuple[list[Any], NDArray[np.intp]]:
    """The different keys in order of appearance, and (N,) which of them each one is."""
    names = list(dict.fromkeys(keys))
    numbers = dict(zip(names, range(len(names)), strict=True))
    return names, np.fromiter(map(numbers.__getitem__, keys), dtype=np.intp, count=len(keys))


class ExactTable(dict[Key, list[int]]):
    """Rows of integers by key, all of one length; a row is never changed in place."""

    def add(self, key: Key, row: list[int]) -> None:
        """Add a row to that of `key`, number by number.

        Raises ConfigurationError where one is longer: what was stored is damaged.
        """
        known = self.get(key)
        if known is None:
            self[key] = row
            return
        if len(known) != len(row):
            raise ConfigurationError(
                f"a shard's aggregate has a row of {len(row)} numbers, where others have "
                f"{len(known)}: run the audit again"
            )
        self[key] = list(map(add, known, row))

    def merge(self, other: Mapping[Key, list[int]]) -> Self:
        """Add all rows of `other` to these, and return these."""
        if not self:
            self.update(other)
            return self
        for key, row in other.items():
            self.add(key, row)
        return self


class Counts(dict[Key, int]):
    """Counts by key."""

    def add(self, key: Key, count: int = 1) -> None:
        """Count a key so many times more."""
        self[key] = self.get(key, 0) + count

    def merge(self, other: Mapping[Key, int]) -> Self:
        """Add all counts of `other` to these, and return these."""
        for key, count in other.items():
            self.add(key, count)
        return self


class _Mergeable(Protocol):
    def merge(self, other: Any, /) -> Any: ...


_Total = TypeVar("_Total", bound=_Mergeable)


def merge_each(
    mine: dict[Key, _Total], theirs: Mapping[Key, _Total], new: Callable[[], _Total]
) -> None:
    """Merge tables that are kept by key; `new` makes the empty one of a key that is not there."""
    for key, table in theirs.items():
        if key not in mine:
            mine[key] = new()
        mine[key].merge(table)


@dataclass(slots=True)
class Histogram:
    """Counts of signed numbers of any range in bins of 1 % of the number's size.

    The bin of -x mirrors that of x; ascending bins hold ascending numbers, bin 0 holds zeros.
    """

    counts: Counts[int] = field(default_factory=Counts)  #: signed number of the bin -> numbers

    def add(self, value: float) -> None:
        """Count one finite number."""
        place = bin_of(abs(value))
        self.counts.add(place if value > 0.0 else -place)

    def merge(self, other: "Histogram") -> "Histogram":
        """Add the counts of `other` to these, and return these."""
        self.counts.merge(other.counts)
        return self

    def bin_of(self, share: float) -> int | None:
        """The lowest bin such that `share` of the numbers lie in it or below; None: no numbers."""
        left = max(1, math.ceil(share * sum(self.counts.values()) - 1e-9))
        for place in sorted(self.counts):
            left -= self.counts[place]
            if left <= 0:
                return place
        return None

    def quantile(self, share: float) -> float:
        """That of the numbers which `share` of them do not exceed, to 0.5 %; 0 without any."""
        place = self.bin_of(share) or 0
        return math.copysign(outer_edge(abs(place) - 0.5), place) if place else 0.0

    def to_json(self) -> list[list[int]]:
        """[bin, count] by bin."""
        return [[place, count] for place, count in sorted(self.counts.items())]

    @classmethod
    def from_json(cls, content: Iterable[tuple[int, int]]) -> "Histogram":
        """Read what `to_json` wrote."""
        return cls(Counts(content))


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
        count = max(number.bit_length() for number in numbers) // _BITS + 1
        raw = b"".join(number.to_bytes(4 * count, "little", signed=True) for number in numbers)
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
    numbers: list[int] = top.tolist()
    for plane in reversed(lower):
        numbers = [(high << _BITS) + low for high, low in zip(numbers, plane.tolist(), strict=True)]
    return numbers


def packed(rows: Iterable[Sequence[int]], width: int) -> dict[str, Any]:
    """Rows of `width` integers as JSON values: how many limbs each column has, and all limbs.

    `numbers` is the base64 of little-endian limbs: column by column, of each the lowest limb of all
    rows first. Equal rows give equal JSON.
    """
    columns = list(map(limbs_of, zip(*rows, strict=True))) or [limbs_of(())] * width
    raw = b"".join(column.astype("<u4").tobytes() for column in columns)
    return {"limbs": [len(column) for column in columns], "numbers": b64encode(raw).decode()}


def unpacked(content: Mapping[str, Any], rows: int, width: int) -> list[Limbs]:
    """The columns of `rows` rows that `packed` wrote; raises ValueError where they do not fit."""
    limbs = content["limbs"]
    if len(limbs) != width or not all(0 < limb <= MOST_LIMBS for limb in limbs):
        raise ValueError(f"limbs {limbs} in a table of {width} columns")
    raw = np.frombuffer(a2b_base64(content["numbers"], strict_mode=True), dtype="<u4")
    if len(raw) != rows * sum(limbs):
        raise ValueError(f"{len(raw)} limbs in {rows} rows, not {sum(limbs)} in each")
    planes = raw.reshape(sum(limbs), rows)
    ends = np.cumsum(limbs).tolist()
    return [_signed(planes[end - count : end]) for count, end in zip(limbs, ends, strict=True)]


def unpacked_rows(content: Mapping[str, Any], rows: int, width: int) -> Iterator[list[int]]:
    """The rows that `packed` wrote; raises as `unpacked`."""
    columns = [integers(column) for column in unpacked(content, rows, width)]
    return map(list, zip(*columns, strict=True))


def _signed(planes: NDArray[np.uint32]) -> Limbs:
    """Limbs without signs, but for the last one."""
    limbs = planes.astype(np.int64)
    limbs[-1] = np.ascontiguousarray(planes[-1]).view("<i4")
    return limbs


class ExactColumn:
    """Sums by place, from 0; a place that nothing was added to holds 0."""

    def __init__(self) -> None:
        self._limbs: Limbs = np.zeros((1, _FIRST), dtype=np.int64)

    def add(self, places: NDArray[np.intp], limbs: Limbs, length: int) -> None:
        """Add numbers (L, n) at different `places` (n,), which are below `length`.

        Sums stay exact over the first 2**31 additions.
        """
        self._grow(len(limbs), length)
        for plane, more in zip(self._limbs, limbs, strict=False):
            plane[places] += more

    def sums(self, length: int) -> list[int]:
        """The first `length` sums."""
        self._grow(1, length)
        return integers(self._limbs[:, :length])

    def _grow(self, limbs: int, length: int) -> None:
        have, room = self._limbs.shape
        size = max(room, 1 << (length - 1).bit_length()) if length > room else room
        if limbs > have or size > room:
            grown = np.zeros((max(have, limbs), size), dtype=np.int64)
            grown[:have, :room] = self._limbs
            self._limbs = grown
