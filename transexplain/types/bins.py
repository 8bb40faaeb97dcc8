"""Bins of 1 % for sizes of any range: a histogram over them is small, and exact to that."""

import math

_STEP = math.log(1.01)
_FLOOR = -745.0  # the logarithm of the smallest float is above it, so that no bin is the 0th


def bin_of(size: float) -> int:
    """The number of the bin of a finite `size`, at least 0; larger ones hold larger sizes.

    Bin 0 holds zeros.
    """
    return math.ceil((math.log(size) - _FLOOR) / _STEP) if size else 0


def outer_edge(place: float) -> float:
    """The largest size of a number in the bin `place` above 0."""
    return math.exp(place * _STEP + _FLOOR)


def middle(place: int) -> float:
    """A size of the bin `place`."""
    return outer_edge(place - 0.5) if place else 0.0
