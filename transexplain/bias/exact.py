"""Sums that do not depend on their order: numbers as integers in units of 2**-50."""

import math
from collections.abc import Iterable

UNITS = 2**50  #: 9e-16 of whatever is summed


def exact(value: float) -> int:
    """`value` in units; raises ValueError where it is not finite."""
    if not math.isfinite(value):
        raise ValueError(f"{value} is not finite")
    return round(value * UNITS)


def total(left: Iterable[int], right: Iterable[int]) -> list[int]:
    """The sum, place by place."""
    return [a + b for a, b in zip(left, right, strict=True)]
