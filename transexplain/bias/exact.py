"""Sums that do not depend on their order: numbers as integers in units of 2**-50."""

import math
from collections.abc import Iterable
from operator import add

UNITS = 2**50  #: 9e-16 of whatever is summed


def exact(value: float) -> int:
    """`value` in units; raises ValueError where it is not finite."""
    if not math.isfinite(value):
        raise ValueError(f"{value} is not finite")
    return round(value * UNITS)


def total(left: Iterable[int], right: Iterable[int]) -> list[int]:
    """The sum, place by place; both are as long. A new list, so that totals may share theirs."""
    return list(map(add, left, right))
