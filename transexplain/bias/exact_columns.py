"""Columns of exact sums: one place per row, so that adding a shard makes no object per row.

Sums of numbers outgrow 64 bits over a long run, sums of squares within one shard. A column of the
first kind is kept in two halves of 64 bits, one of the second as Python's integers.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_BITS = 32
_LOW = (1 << _BITS) - 1
_MOST = 2**63 - 1  #: that 64 bits hold
_FIRST = 1024  #: places that are made at once; doubled from there


class ExactColumn:
    """Sums by place, from 0; a place that nothing was added to holds 0."""

    def __init__(self) -> None:
        self._low: NDArray[np.int64] = np.zeros(_FIRST, dtype=np.int64)
        self._high: NDArray[np.int64] = np.zeros(_FIRST, dtype=np.int64)  # in units of 2**32
        self._bound = 0  # that no number in `_low` exceeds in size
        self._wide: list[int] | None = None  # instead of both, once one number needs more

    def add(self, places: NDArray[np.intp], numbers: Sequence[int], length: int) -> None:
        """Add `numbers` (n,) of any size at different `places` (n,), which are below `length`."""
        if self._wide is None:
            try:
                self._add_narrow(places, np.array(numbers, dtype=np.int64), length)
                return
            except OverflowError:
                self._wide = self.sums(length)
        self._wide += [0] * (length - len(self._wide))
        for place, number in zip(places.tolist(), numbers, strict=True):
            self._wide[place] += number

    def sums(self, length: int) -> list[int]:
        """The first `length` sums."""
        if self._wide is not None:
            return self._wide + [0] * (length - len(self._wide))
        self._grow(length)
        pairs = zip(self._high[:length].tolist(), self._low[:length].tolist(), strict=True)
        return [(high << _BITS) + low for high, low in pairs]

    def _add_narrow(
        self, places: NDArray[np.intp], numbers: NDArray[np.int64], length: int
    ) -> None:
        self._grow(length)
        if not len(numbers):
            return
        most = max(int(numbers.max()), -int(numbers.min()))
        if self._bound + most > _MOST:
            self._high += self._low >> _BITS
            self._low &= _LOW
            self._bound = _LOW
        if self._bound + most > _MOST:
            raise OverflowError
        self._low[places] += numbers
        self._bound += most

    def _grow(self, length: int) -> None:
        while len(self._low) < length:
            self._low = np.concatenate([self._low, np.zeros_like(self._low)])
            self._high = np.concatenate([self._high, np.zeros_like(self._high)])
