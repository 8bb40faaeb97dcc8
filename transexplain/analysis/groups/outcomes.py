"""The model's answers to items that mention a group, compared with those to its reference."""

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from transexplain.analysis.groups.answers import Answer
from transexplain.analysis.groups.exact_totals import numbered
from transexplain.analysis.groups.group_cells import Reference
from transexplain.analysis.groups.intervals import (
    Interval,
    Rate,
    Share,
    difference,
    p_outside,
    ratio,
)
from transexplain.analysis.groups.outcome_totals import OutcomeTotals, Situation, Tally
from transexplain.types.findings import Practical

Counted = Literal["items", "entities", "answers"]
MIN_ITEMS = 10  #: on either side; the interval of a rate over fewer is too wide to be of use


@dataclass(frozen=True, kw_only=True, slots=True)
class Mean:
    """A mean over items, with its 95 % interval."""

    value: float
    interval: Interval


@dataclass(frozen=True, kw_only=True, slots=True)
class Side:
    """The answers to the items on one side of a comparison, for one answer."""

    selected: Rate  #: predicted to have the answer
    probability: Mean | None  #: of the answer; None: not known (imported without logits)
    labelled: Rate | None  #: labelled with the answer; None: no item has a label
    error: Rate | None  #: predicted otherwise than labelled; of several labels in this one
    true_positive: Rate | None  #: of those labelled with it, selected; None: none is labelled so
    false_positive: Rate | None  #: of those labelled otherwise, selected
    calibration: float | None  #: mean probability minus the share so labelled, over labelled items


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """One comparison of answers: a group with its reference, in all items or in one stratum."""

    group: str
    reference: str
    answer: str
    stratum: str  #: value of the slice; "": all items
    own: Side
    other: Side
    difference: float  #: of the selection rates
    difference_interval: Interval
    impact_ratio: float | None  #: the group's selection rate over the reference's
    ratio_interval: Interval | None  #: 95 %; its end is None in JSON where it is infinite
    p: float | None  #: of rates that differ within practical limits; None: too few items
    equal: bool  #: the 90 % interval of the ratio, or of the difference, lies within the limits
    #: what rates are over; of answers to questions `probability` is their F1
    counted: Counted = "items"


def outcome_table(
    totals: OutcomeTotals,
    answers: Sequence[Answer],
    classes: Sequence[str],
    references: dict[str, Reference],
    practical: Practical,
) -> list[Outcome]:
    """One row per group, answer and stratum, in the order of `references` and `answers`.

    A stratum is a value of the slice; one with fewer than `MIN_ITEMS` items on a side is left out.
    A group or a reference that no item mentions has no row, nor has a number, which has no rate.
    """
    chosen = [(number, answer) for number, answer in enumerate(answers) if not answer.is_number]
    table = _Table(list(totals), len(answers))
    strata = ["", *sorted({*table.slice.values} - {""})]
    found: list[Outcome] = []
    for group, reference in references.items():
        if reference.name == group:
            continue
        mine, theirs = table.mentions([group]), _of_reference(table, group, reference)
        for stratum in strata:
            within = table.slice.isin([stratum]) if stratum else table.every
            own, other = _Rows.of(table, mine & within), _Rows.of(table, theirs & within)
            if min(own.items, other.items) >= (MIN_ITEMS if stratum else 1):
                sides = _Sides(own, other, classes, practical)
                found += [
                    sides.compared(number, answer, (group, reference.name, stratum))
                    for number, answer in chosen
                ]
    return found


_Flags = NDArray[np.bool_]
_Numbers = NDArray[np.float64]


class _Column:
    """The values (R,) of one property of all situations."""

    def __init__(self, values: Iterable[str]) -> None:
        self.values, self.codes = numbered(list(values))

    def isin(self, wanted: Collection[str]) -> _Flags:
        """Which situations (R,) have one of these values."""
        return self.where(lambda one: one in wanted)

    def where(self, holds: Callable[[str], bool]) -> _Flags:
        """Which situations (R,) have a value that this holds for."""
        return np.array([holds(one) for one in self.values], dtype=bool)[self.codes]


class _Table:
    """All situations and their tallies in columns (R,), in their order."""

    def __init__(self, rows: Sequence[tuple[Situation, Tally]], answers: int) -> None:
        keys, tallies = [key for key, _ in rows], [tally for _, tally in rows]
        self.every: _Flags = np.ones(len(rows), dtype=bool)
        self.label, self.slice = _Column(k.label for k in keys), _Column(k.slice for k in keys)
        self.cluster = _Column(key.cluster for key in keys)
        self.predicted = _Column(key.predicted for key in keys)
        self.wrong: _Flags = np.array([key.label != key.predicted for key in keys], dtype=bool)
        self.items = np.array([one.items for one in tallies], dtype=np.int64)
        self.measured = np.array([one.measured for one in tallies], dtype=np.int64)
        self.probabilities = _filled([one.probabilities for one in tallies], answers)
        self.squares = _filled([one.squares for one in tallies], answers)
        self._groups: dict[str, list[int]] = {}
        for place, key in enumerate(keys):
            for group in key.groups:
                self._groups.setdefault(group, []).append(place)

    def mentions(self, groups: Collection[str]) -> _Flags:
        """Which situations (R,) are of items that mention one of these groups."""
        found = ~self.every
        for group in groups:
            found[self._groups.get(group, [])] = True
        return found


def _filled(rows: Sequence[tuple[float, ...]], width: int) -> _Numbers:
    """Rows (R, width); what was not measured is 0."""
    blank = (0.0,) * width
    return np.array([(*row, *blank)[:width] for row in rows]).reshape(len(rows), width)


def _of_reference(table: _Table, group: str, reference: Reference) -> _Flags:
    """Situations of items that mention the reference; of several groups, those without `group`.

    Where there is no other group at all, these are the items that do not mention `group`.
    """
    others = set(reference.groups) - {group}
    if not others:
        return ~table.mentions([group])
    found = table.mentions(others)
    return found if len(others) == 1 else found & ~table.mentions([group])


@dataclass(frozen=True, slots=True, eq=False)
class _Rows:
    """Some situations of a table."""

    table: _Table
    places: NDArray[np.intp]  #: ascending

    @classmethod
    def of(cls, table: _Table, wanted: _Flags) -> "_Rows":
        """The situations that are wanted (R,)."""
        return cls(table, np.flatnonzero(wanted))

    def where(self, wanted: _Flags) -> "_Rows":
        """Those of these that are wanted (R,)."""
        return _Rows(self.table, self.places[wanted[self.places]])

    @property
    def items(self) -> int:
        """How many items they hold."""
        return int(self.table.items[self.places].sum())

    def share(self, counted: _Flags) -> Share | None:
        """The share of items whose situations (R,) are counted; None without items."""
        items = self.table.items[self.places].astype(np.float64)  # exact below 2**53
        names, sums = self._by_cluster(items, items * counted[self.places])
        whole, some = sums.astype(np.int64).tolist()
        return Share.of(zip(names, whole, some, strict=True))

    def mean(self, number: int) -> Mean | None:
        """The mean probability of an answer, its interval over clusters."""
        known = self.where(self.table.measured > 0)
        measured = self.table.measured[known.places].astype(np.float64)
        chances = self.table.probabilities[known.places, number]
        names, rows = known._by_cluster(measured, chances, self.table.squares[known.places, number])
        sums = dict(zip(names, zip(*rows.tolist(), strict=True), strict=True))
        count = sum(one[0] for one in sums.values())
        if not count:
            return None
        mean = sum(one[1] for one in sums.values()) / count
        alone = sums.pop("", (0.0, 0.0, 0.0))
        squares = alone[2] - 2 * mean * alone[1] + mean * mean * alone[0]
        squares += sum((total - mean * items) ** 2 for items, total, _ in sums.values())
        number_of = alone[0] + len(sums)
        if number_of < 2:
            return Mean(value=mean, interval=(0.0, 1.0))
        half = 1.96 * math.sqrt(max(squares, 0.0) * number_of / (number_of - 1)) / count
        return Mean(value=mean, interval=(max(mean - half, 0.0), min(mean + half, 1.0)))

    def _by_cluster(self, *columns: _Numbers) -> tuple[list[str], _Numbers]:
        """The clusters in order of appearance, and each column's sums over them (columns, C).

        Numbers are added one after the other, as their order in the table is.
        """
        codes = self.table.cluster.codes[self.places]
        present, first, which = np.unique(codes, return_index=True, return_inverse=True)
        order = np.argsort(first)
        sums = [np.bincount(which, weights=one, minlength=len(present)) for one in columns]
        names = [self.table.cluster.values[code] for code in present[order].tolist()]
        return names, np.array(sums, dtype=np.float64).reshape(len(columns), -1)[:, order]


@dataclass(frozen=True, slots=True)
class _Sides:
    """The items on either side of a comparison."""

    own: _Rows
    other: _Rows
    classes: Sequence[str]
    practical: Practical

    def compared(self, number: int, answer: Answer, named: tuple[str, str, str]) -> Outcome:
        """The comparison of one answer; `named` are group, reference and stratum."""
        selects = partial(answer.selects, classes=self.classes)
        left, right = (_selected(rows, selects) for rows in (self.own, self.other))
        gap, quotient = partial(difference, left, right), partial(ratio, left, right)
        size, least = self.practical.probability, self.practical.impact_ratio
        enough = min(left.total, right.total) >= MIN_ITEMS
        return Outcome(
            group=named[0],
            reference=named[1],
            answer=answer.name,
            stratum=named[2],
            own=_side(self.own, left, number, answer, selects),
            other=_side(self.other, right, number, answer, selects),
            difference=left.value - right.value,
            difference_interval=gap(),
            impact_ratio=left.value / right.value if right.count else None,
            ratio_interval=quotient() if right.count else None,
            p=_p(gap, quotient, size, least) if enough else None,
            equal=enough
            and (_within(gap(0.90), -size, size) or _within(quotient(0.90), least, 1 / least)),
            counted="items" if answer.plus else "answers" if answer.agrees else "entities",
        )


def _selected(rows: _Rows, selects: Callable[[str], bool]) -> Share:
    found = rows.share(rows.table.predicted.where(selects))
    assert found is not None  # there are items on either side
    return found


_ByLevel = Callable[[float], Interval]


def _p(gap: _ByLevel, quotient: _ByLevel, size: float, least: float) -> float:
    """Both the difference and the ratio have to be beyond what is practical."""
    return max(p_outside(gap, -size, size), p_outside(quotient, least, 1 / least))


def _within(interval: Interval, low: float, high: float) -> bool:
    return low <= interval[0] and interval[1] <= high


def _side(
    rows: _Rows, selected: Share, number: int, answer: Answer, selects: Callable[[str], bool]
) -> Side:
    table = rows.table
    chosen, favourable = table.predicted.where(selects), table.label.where(selects)
    # of several labels, one that is wrong makes no other wrong
    wrong = chosen ^ favourable if answer.several else table.wrong
    labelled = rows.where(~table.label.isin([""]))
    wanted, mean = labelled.share(favourable), labelled.mean(number)
    return Side(
        selected=selected.rate(),
        probability=rows.mean(number),
        labelled=_rate(wanted),
        error=_rate(labelled.share(wrong)),
        true_positive=_rate(labelled.where(favourable).share(chosen)),
        false_positive=_rate(labelled.where(~favourable).share(chosen)),
        # F1 is no probability
        calibration=mean.value - wanted.value if mean and wanted and not answer.agrees else None,
    )


def _rate(share: Share | None) -> Rate | None:
    return share.rate() if share else None
