"""Metrics whose value is of all items together: their values, intervals and differences.

An interval is the value plus and minus 1.96 standard deviations of the values of random halves of
the items (the delete-half jackknife, Shao and Wu 1989). A bootstrap would not do: it draws items
twice, and what such a metric counts, how many items hold a word, say, is another thing then.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from transexplain.metrics.case import Scored, unmeasured
from transexplain.reports.evaluation.gathering import Column
from transexplain.reports.evaluation.records import Difference, Interval
from transexplain.reports.evaluation.statistics import FEWEST

#: random halves of the items
HALVES = 200

Join = Callable[[Sequence[Mapping[str, Any]]], Scored]


@dataclass(frozen=True, kw_only=True, slots=True)
class Whole:
    """One method's value over all items, and over halves of them."""

    scored: Scored
    items: frozenset[int]  #: that it was made of
    halves: tuple[float | None, ...]  #: the value of each; None: it could not be computed

    @property
    def interval(self) -> Interval | None:
        """95 %; None: too few items, or too few halves had a value."""
        return _interval(self.scored.value, self.halves)


def wholes(columns: Sequence[Column], join: Join, items: int, seed: int) -> list[Whole]:
    """Each method's value over its items; half k takes the same items for every method.

    Args:
        columns: of each method its details, by the number of their item.
        join: makes one score of the details of many items.
        items: that there are in all.
        seed: of the drawing.
    """
    draw = np.random.default_rng(seed)
    halves = [draw.permutation(items)[: items // 2].tolist() for _ in range(HALVES)]
    return [_whole(column, join, halves) for column in columns]


def minus(one: Whole, best: Whole) -> Difference | None:
    """`one` minus `best`; None where they are not of the same items or one has no value."""
    if one.scored.value is None or best.scored.value is None or one.items != best.items:
        return None
    pairs = zip(one.halves, best.halves, strict=True)
    mean = one.scored.value - best.scored.value
    return Difference(
        items=len(one.items),
        mean=mean,
        interval=_interval(mean, [None if a is None or b is None else a - b for a, b in pairs]),
        p=None,
        p_adjusted=None,
    )


def _whole(column: Column, join: Join, halves: list[list[int]]) -> Whole:
    details = dict(column.details)
    found: list[float | None] = []
    for half in halves if len(details) >= FEWEST else ():
        chosen = [details[number] for number in half if number in details]
        found.append(join(chosen).value if chosen else None)
    return Whole(
        scored=join(list(details.values())) if details else unmeasured("no item was measured"),
        items=frozenset(details),
        halves=tuple(found),
    )


def _interval(value: float | None, halves: Sequence[float | None]) -> Interval | None:
    known = [one for one in halves if one is not None]
    if value is None or len(known) < HALVES / 2:
        return None
    reach = 1.96 * float(np.std(known, ddof=1))
    return value - reach, value + reach
