"""Totals of the model's answers by the groups that items mention; they merge exactly.

Items are counted by the *set* of groups that they mention, so that any comparison (a group against
one other, against all others of its family, two groups in one item) comes out of one
table. Sums of probabilities are integers in units of 2**-50, see `exact_totals`.
"""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from transexplain.analysis.groups.answers import Answer, probability
from transexplain.analysis.groups.exact_totals import UNITS, Counts, ExactTable, exact
from transexplain.analysis.groups.group_cells import Reference
from transexplain.analysis.groups.intervals import (
    Interval,
    Rate,
    Share,
    difference,
    p_outside,
    ratio,
)
from transexplain.types.findings import Practical
from transexplain.types.items import ItemOutcome


class Situation(NamedTuple):
    """The properties that the counted items share; those that do not apply are empty."""

    groups: tuple[str, ...]  #: mentioned, sorted
    label: str
    slice: str
    cluster: str  #: "": every item is a cluster of its own
    predicted: str


class Tally(NamedTuple):
    """The items of one situation."""

    items: int
    measured: int  #: of these, items whose probabilities are known
    probabilities: tuple[float, ...]  #: sum over these, by answer
    squares: tuple[float, ...]  #: sum of squares, by answer


@dataclass(slots=True)
class OutcomeTotals:
    """Of one shard, or of shards merged into it."""

    #: situation -> [items, measured, sum and sum of squares of every answer's probability in turn]
    _rows: ExactTable[Situation] = field(default_factory=ExactTable)

    def add(
        self,
        outcome: ItemOutcome,
        groups: Collection[str],
        *,
        answers: Sequence[Answer],
        slice_: str = "",
        cluster: str = "",
    ) -> None:
        """Count one explained item, whoever it mentions."""
        key = Situation(
            tuple(sorted(groups)), outcome.label or "", slice_, cluster, outcome.predicted
        )
        entry = [1, 0, *[0, 0] * len(answers)]
        if answers and len(outcome.logits) > max(max(one.plus) for one in answers):
            chances = [float(probability(one.odds_of(outcome.logits))) for one in answers]
            entry[1:] = [1, *(part for one in chances for part in (exact(one), exact(one * one)))]
        self._rows.add(key, entry)

    def merge(self, other: "OutcomeTotals") -> "OutcomeTotals":
        """Add the totals of `other` to these, and return these."""
        self._rows.merge(other._rows)
        return self

    def __iter__(self) -> Iterator[tuple[Situation, Tally]]:
        """Every situation with its items, sorted."""
        for key, entry in sorted(self._rows.items()):
            items, measured, *rest = entry
            sums = tuple(one / UNITS for one in rest[::2])
            squares = tuple(one / UNITS for one in rest[1::2])
            yield key, Tally(items, measured, sums, squares)

    def __bool__(self) -> bool:
        return bool(self._rows)

    def to_json(self) -> list[list[Any]]:
        """As JSON values; equal totals give equal JSON."""
        return [[list(key.groups), *key[1:], entry] for key, entry in sorted(self._rows.items())]

    @classmethod
    def from_json(cls, content: Iterable[Sequence[Any]]) -> "OutcomeTotals":
        """Read what `to_json` wrote."""
        return cls(
            ExactTable(
                {
                    Situation(tuple(groups), *map(str, rest)): list(entry)
                    for groups, *rest, entry in content
                }
            )
        )

    @classmethod
    def of_groups(
        cls,
        counts: Mapping[str, Mapping[tuple[str | None, str], int]],
        everything: Mapping[Any, int],
    ) -> "OutcomeTotals":
        """From counts by group and (label, prediction), as versions before 5 kept them.

        An item that mentions two groups counts once in each; `everything` are all items, and
        those that no group accounts for count as items without a mention.
        """
        found = cls()
        left: Counts[Any] = Counts(everything)
        for group, answers in counts.items():
            for (label, predicted), count in answers.items():
                key = Situation((group,), label or "", "", "", predicted)
                found._rows[key] = [count, 0]
                left.add((label, predicted), -count)
        for (label, predicted), count in left.items():
            if count > 0:
                found._rows[Situation((), label or "", "", "", predicted)] = [count, 0]
        return found


_Rows = Sequence[tuple[Situation, Tally]]
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
    error: Rate | None  #: predicted otherwise than labelled
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


def outcome_table(
    totals: OutcomeTotals,
    answers: Sequence[Answer],
    classes: Sequence[str],
    references: dict[str, Reference],
    practical: Practical,
) -> list[Outcome]:
    """One row per group, answer and stratum, in the order of `references` and `answers`.

    A stratum is a value of the slice; one with fewer than `MIN_ITEMS` items on a side is left out.
    A group or a reference that no item mentions has no row.
    """
    rows = list(totals)
    strata = ["", *sorted({key.slice for key, _ in rows} - {""})]
    found: list[Outcome] = []
    for group, reference in references.items():
        if reference.name == group:
            continue
        for stratum in strata:
            within = [row for row in rows if stratum in ("", row[0].slice)]
            own = [row for row in within if group in row[0].groups]
            other = _of_reference(within, group, reference)
            if min(_items(own), _items(other)) >= (MIN_ITEMS if stratum else 1):
                sides = _Sides(own, other, classes, practical)
                found += [
                    sides.compared(number, answer, (group, reference.name, stratum))
                    for number, answer in enumerate(answers)
                ]
    return found


def _of_reference(rows: _Rows, group: str, reference: Reference) -> _Rows:
    """Rows of items that mention the reference; of several groups, those without `group`.

    Where there is no other group at all, these are the items that do not mention `group`.
    """
    others = set(reference.groups) - {group}
    if not others:
        return [row for row in rows if group not in row[0].groups]
    if len(others) == 1:
        [only] = others
        return [row for row in rows if only in row[0].groups]
    return [
        row for row in rows if others.intersection(row[0].groups) and group not in row[0].groups
    ]


def _items(rows: _Rows) -> int:
    return sum(tally.items for _, tally in rows)


@dataclass(frozen=True, slots=True)
class _Sides:
    """The items on either side of a comparison."""

    own: _Rows
    other: _Rows
    classes: Sequence[str]
    practical: Practical

    def compared(self, number: int, answer: Answer, named: tuple[str, str, str]) -> Outcome:
        """The comparison of one answer; `named` are group, reference and stratum."""
        names = {self.classes[place] for place in answer.plus}
        left, right = (_selected(rows, names) for rows in (self.own, self.other))
        gap, quotient = partial(difference, left, right), partial(ratio, left, right)
        size, least = self.practical.probability, self.practical.impact_ratio
        enough = min(left.total, right.total) >= MIN_ITEMS
        return Outcome(
            group=named[0],
            reference=named[1],
            answer=answer.name,
            stratum=named[2],
            own=_side(self.own, left, number, names),
            other=_side(self.other, right, number, names),
            difference=left.value - right.value,
            difference_interval=gap(),
            impact_ratio=left.value / right.value if right.count else None,
            ratio_interval=quotient() if right.count else None,
            p=_p(gap, quotient, size, least) if enough else None,
            equal=enough
            and (_within(gap(0.90), -size, size) or _within(quotient(0.90), least, 1 / least)),
        )


def _selected(rows: _Rows, names: set[str]) -> Share:
    found = _share(rows, lambda key: key.predicted in names)
    assert found is not None  # there are items on either side
    return found


def _p(
    gap: Callable[[float], Interval],
    quotient: Callable[[float], Interval],
    size: float,
    least: float,
) -> float:
    """Both the difference and the ratio have to be beyond what is practical."""
    return max(p_outside(gap, -size, size), p_outside(quotient, least, 1 / least))


def _within(interval: Interval, low: float, high: float) -> bool:
    return low <= interval[0] and interval[1] <= high


def _share(rows: _Rows, wanted: Callable[[Situation], bool]) -> Share | None:
    return Share.of((key.cluster, tally.items, tally.items * wanted(key)) for key, tally in rows)


def _side(rows: _Rows, selected: Share, number: int, names: set[str]) -> Side:
    labelled = [row for row in rows if row[0].label]
    positive = [row for row in labelled if row[0].label in names]
    negative = [row for row in labelled if row[0].label not in names]
    wanted, wrong = _share(labelled, lambda k: k.label in names), _share(labelled, _is_wrong)
    mean = _mean(labelled, number)
    return Side(
        selected=selected.rate(),
        probability=_mean(rows, number),
        labelled=_rate(wanted),
        error=_rate(wrong),
        true_positive=_rate(_share(positive, lambda key: key.predicted in names)),
        false_positive=_rate(_share(negative, lambda key: key.predicted in names)),
        calibration=mean.value - wanted.value if mean and wanted else None,
    )


def _is_wrong(key: Situation) -> bool:
    return key.label != key.predicted


def _rate(share: Share | None) -> Rate | None:
    return share.rate() if share else None


def _mean(rows: Iterable[tuple[Situation, Tally]], number: int) -> Mean | None:
    """The mean probability of an answer, its interval over clusters."""
    sums: dict[str, list[float]] = {}
    for key, tally in rows:
        if tally.measured:
            known = sums.setdefault(key.cluster, [0.0, 0.0, 0.0])
            known[0] += tally.measured
            known[1] += tally.probabilities[number]
            known[2] += tally.squares[number]
    count = sum(one[0] for one in sums.values())
    if not count:
        return None
    mean = sum(one[1] for one in sums.values()) / count
    alone = sums.pop("", [0.0, 0.0, 0.0])
    squares = alone[2] - 2 * mean * alone[1] + mean * mean * alone[0]
    squares += sum((total - mean * items) ** 2 for items, total, _ in sums.values())
    number_of = alone[0] + len(sums)
    if number_of < 2:
        return Mean(value=mean, interval=(0.0, 1.0))
    half = 1.96 * math.sqrt(max(squares, 0.0) * number_of / (number_of - 1)) / count
    return Mean(value=mean, interval=(max(mean - half, 0.0), min(mean + half, 1.0)))
