"""The predictions of items that mention a group, compared with those of its reference.

Items are counted by the *set* of groups that they mention, so that any comparison (a group against
one other, against all others of its family, two groups in one item) comes out of one table. Where
names are a sample, items are also counted by name, so that items of one name are known. Sums are
exact, see `store.exact_sums`, and merge exactly.
"""

import math
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from transexplain.analysis.groups.answers import MOST, Answer, answer_of, probability
from transexplain.analysis.groups.group_cells import Reference
from transexplain.analysis.groups.intervals import Interval, ItemRate, Share, squares
from transexplain.analysis.groups.measures import (
    Comparison,
    Measure,
    MeasureName,
    impact_ratio,
    share_difference,
)
from transexplain.store.exact_sums import UNITS, Key, Sums, add_row, exact, exact_sums, numbered
from transexplain.types.findings import Practical
from transexplain.types.items import ItemOutcome


class Situation(NamedTuple):
    """The properties that the counted items share; those that do not apply are empty."""

    groups: tuple[str, ...]  #: mentioned, sorted
    label: str
    slice: str
    cluster: str  #: "": every item is a cluster of its own
    predicted: str
    named: str = ""  #: group whose names the items are counted by; "": they are counted once
    name: str = ""  #: number of one of these names


class Tally(NamedTuple):
    """The items of one situation."""

    items: int
    measured: int  #: of these, items whose probabilities are known
    probabilities: tuple[float, ...]  #: sum over these, by answer
    squares: tuple[float, ...]  #: sum of squares, by answer


_Waiting = tuple[Situation, Sequence[float]]  #: an item's situation and logits
_COUNTED_TOGETHER = 1024  #: items
_TEXTS = 4096  #: clusters of the texts that entities are in; more texts share them
_NAMES = 4096  #: numbers of names; more names share them


class OutcomeTotals:
    """Items by their situations.

    Totals of `sums`: outcomes, situation -> [items, measured, sum and sum of squares of every
    answer's probability in turn]; names, situation of a name -> [items]. A key holds the groups of
    a situation last.
    """

    def __init__(self, sums: Sums | None = None) -> None:
        self.sums = Sums() if sums is None else sums
        #: items that are not counted yet, by the answers that they are counted for
        self._waiting: dict[tuple[Answer, ...], list[_Waiting]] = {}

    def add(
        self,
        outcome: ItemOutcome,
        groups: Collection[str],
        *,
        answers: Sequence[Answer],
        slice_: str = "",
        cluster: str = "",
        chances: Sequence[float] | None = None,
        names: Iterable[tuple[str, str]] = (),
    ) -> None:
        """Count one explained item, with or without a mention.

        `chances` are the values of its answers, 0 to 1, where they are no probabilities of logits.
        Entities of one text are one cluster. `names` are (group, name) of those that it mentions
        where there are others like them; the item counts with each.
        """
        if not cluster and answers and answers[0].is_type:
            cluster = f"text {outcome.index % _TEXTS}"
        key = Situation(
            tuple(sorted(groups)), outcome.label or "", slice_, cluster, outcome.predicted
        )
        for group, number in {(group, zlib.crc32(name.encode()) % _NAMES) for group, name in names}:
            named = key._replace(named=group, name=str(number))
            add_row(self.sums.table("names"), _key_of(named), [1])
        if chances is not None:
            parts = (part for chance in chances for part in (exact(chance), exact(chance * chance)))
            add_row(self.sums.table("outcomes"), _key_of(key), [1, 1, *parts])
            return
        waiting = self._waiting.setdefault(tuple(answers), [])
        waiting.append((key, outcome.logits))
        if len(waiting) >= _COUNTED_TOGETHER:
            self.count_waiting()

    def _rows(self, total: str) -> list[tuple[Situation, list[int]]]:
        """The rows of a total, sorted."""
        self.count_waiting()
        rows = self.sums.table(total).items()
        return sorted((Situation(key[6:], *key[:6]), row) for key, row in rows)

    def count_waiting(self) -> None:
        """Count the items that wait: many at once are counted faster."""
        outcomes = self.sums.table("outcomes")
        for answers, items in self._waiting.items():
            # of a class that the logits lack nothing is known, nor of any without logits
            classes = max((place for answer in answers for place in answer.plus), default=-1)
            needed = max(classes, 0) if answers else math.inf
            known = [(key, logits) for key, logits in items if len(logits) > needed]
            for key, logits in items:
                if len(logits) <= needed:
                    add_row(outcomes, _key_of(key), [1, 0, *[0, 0] * len(answers)])
            self._count_known(answers, known)
        self._waiting.clear()

    def _count_known(self, answers: Sequence[Answer], items: Sequence[_Waiting]) -> None:
        keys, kinds = numbered([key for key, _ in items])
        counts = np.bincount(kinds, minlength=len(keys)).tolist()
        columns = [counts, counts]
        for answer in answers:
            chances = probability([answer.odds_of(logits) for _, logits in items])
            columns += [exact_sums(part, kinds, len(keys)) for part in (chances, chances * chances)]
        for key, *row in zip(keys, *columns, strict=True):
            add_row(self.sums.table("outcomes"), _key_of(key), row)

    def __iter__(self) -> Iterator[tuple[Situation, Tally]]:
        """Every situation with its items, sorted."""
        for key, (items, measured, *rest) in self._rows("outcomes"):
            sums = tuple(total / UNITS for total in rest[::2])
            squares = tuple(total / UNITS for total in rest[1::2])
            yield key, Tally(items, measured, sums, squares)

    def by_name(self) -> list[tuple[Situation, int]]:
        """Every situation of a name with how many items it is in, sorted."""
        return [(key, items) for key, (items,) in self._rows("names")]

    def __bool__(self) -> bool:
        return bool(self._rows("outcomes"))

    @property
    def answers(self) -> set[int]:
        """Return how many answers were measured; more than one number where shards differ."""
        return {(len(row) - 1) // 2 for _, row in self._rows("outcomes") if row[1]}


def _key_of(situation: Situation) -> Key:
    groups, *rest = situation
    return (*rest, *groups)


Counted = Literal["items", "entities", "answers"]
MIN_ITEMS = 10  #: on either side; the interval of a rate over fewer is too wide to be of use
#: on either side; a rate over fewer cannot be shown to lie within five points of another
MIN_ENTITIES = 50


@dataclass(frozen=True, kw_only=True, slots=True)
class OutcomeMean:
    """A mean over items, with its 95 % interval."""

    value: float
    interval: Interval


@dataclass(frozen=True, kw_only=True, slots=True)
class OutcomeSide:
    """The answers to the items on one side of a comparison, for one answer."""

    selected: ItemRate  #: predicted to have the answer
    probability: OutcomeMean | None  #: of the answer; None: not known (imported without logits)
    labelled: ItemRate | None  #: labelled with the answer; None: no item has a label
    error: ItemRate | None  #: predicted otherwise than labelled; of several labels in this one
    true_positive: (
        ItemRate | None
    )  #: of those labelled with it, selected; None: none is labelled so
    false_positive: ItemRate | None  #: of those labelled otherwise, selected
    precision: ItemRate | None  #: of those selected, labelled with it; None: none is selected
    calibration: float | None  #: mean probability minus the share so labelled, over labelled items


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """Predictions compared: a group with its reference, in all items or in one stratum."""

    group: str
    reference: str
    prediction: str
    stratum: str  #: value of the slice; "": all items
    own: OutcomeSide
    other: OutcomeSide
    difference: float  #: of the rates of the prediction
    impact_ratio: float | None  #: the group's rate over the reference's; None: that is 0
    favourable: bool  #: the prediction is declared favourable, so that the ratio is judged
    #: what rates are over; of answers to questions `probability` is their F1
    counted: Counted = "items"
    whole: bool = False  #: items belong to the group as a whole, and do not mention it
    measures: tuple[Measure, ...] = ()  #: that decide

    def measure(self, name: MeasureName) -> Measure | None:
        """The measure of this name, if it was taken."""
        return next((measure for measure in self.measures if measure.name == name), None)


#: a comparison before its measures are decided
ComparedRates = tuple[Outcome, tuple[Comparison, ...]]


def outcome_table(
    totals: OutcomeTotals,
    answers: Sequence[Answer],
    classes: Sequence[str],
    references: dict[str, Reference],
    practical: Practical,
    favourable: Collection[str] = (),
    whole: Collection[str] = (),
) -> list[ComparedRates]:
    """One row per group, prediction and stratum, in the order of `references` and `answers`.

    `whole` are groups that items belong to, and do not mention; only the words differ.
    Predictions are those of `answers` and of every class; differences mirror, so that of two
    classes one is enough. Labels of tokens are judged by recall and precision where the data labels
    entities, else by the share of mentions with each; entities of a text are one cluster. A type
    that hardly any entity has, and too few to show that it is within limits, need not be. A stratum
    is a value of the slice; one with fewer than `MIN_ITEMS` items on a side is left out. A group or
    a reference that no item mentions has no row, nor has a number, which has no rate.
    """
    chosen = [
        _Prediction(place, answer) for place, answer in enumerate(answers) if not answer.is_number
    ]
    if chosen:
        chosen += _other_classes(answers, classes, favourable)
    table = _Table(list(totals), totals.by_name(), len(answers))
    strata = ["", *sorted({*table.slice.values} - {""})]
    rows: list[ComparedRates] = []
    for group, reference in references.items():
        if reference.name == group:
            continue
        others = set(reference.groups) - {group}
        mine = table.mentions([group]) & table.counted([group])
        theirs = _of_others(table, group, others) & table.counted(others)
        for stratum in strata:
            within = table.slice.isin([stratum]) if stratum else table.every
            left, other = _Rows.of(table, mine & within), _Rows.of(table, theirs & within)
            if min(left.items, other.items) >= (MIN_ITEMS if stratum else 1):
                sides = _Sides(left, other, classes, practical, favourable, group in whole)
                named = (group, reference.name, stratum)
                compared = [sides.compared(prediction, named) for prediction in chosen]
                rows += [(row, measures) for row, measures in compared if measures]
    return rows


class _Prediction(NamedTuple):
    """A prediction whose rates are compared."""

    place: int | None  #: of its probability among those that were measured
    answer: Answer
    ratio_only: bool = False  #: its differences are those of another, or mirror them


def _other_classes(
    answers: Sequence[Answer], classes: Sequence[str], favourable: Collection[str]
) -> Iterator[_Prediction]:
    """The classes that no answer is of; none of many, nor one that mirrors an answer.

    A favourable class is always among them, since its ratio has no mirror.
    """
    first = answers[0]
    if not first.plus or first.logarithm or len(classes) > MOST:
        return
    known = {answer.plus for answer in answers}
    if len(classes) == 2 and not first.several:
        known |= {(1 - plus[0],) for plus in known if len(plus) == 1}
    for place, name in enumerate(classes):
        favoured = name in favourable and all(answer.name != name for answer in answers)
        if (place,) not in known or favoured:
            answer = answer_of(name, (place,), len(classes), several=first.several)
            yield _Prediction(None, answer, ratio_only=(place,) in known)


_Flags = NDArray[np.bool_]
_Numbers = NDArray[np.float64]


class _Column:
    """The values (R,) of one property of all situations."""

    def __init__(self, values: Iterable[str]) -> None:
        self.values, self.codes = numbered(list(values))

    def isin(self, values: Collection[str]) -> _Flags:
        """Return which situations (R,) have one of these values."""
        return self.where(lambda value: value in values)

    def where(self, holds: Callable[[str], bool]) -> _Flags:
        """Return which situations (R,) have a value that this holds for."""
        return np.array([holds(value) for value in self.values], dtype=bool)[self.codes]


class _Table:
    """All situations and their tallies in columns (R,), in their order; then those of names, which
    have no items but `with_name`.
    """

    def __init__(
        self,
        rows: Sequence[tuple[Situation, Tally]],
        of_names: Sequence[tuple[Situation, int]],
        answers: int,
    ) -> None:
        keys = [key for key, _ in (*rows, *of_names)]
        tallies = [tally for _, tally in rows] + [_NO_ITEMS] * len(of_names)
        self.every: _Flags = np.ones(len(keys), dtype=bool)
        self.named = _Column(key.named for key in keys)
        self.name = _Column(f"{key.name} {key.named}" for key in keys)
        self.with_name = np.array([0] * len(rows) + [items for _, items in of_names], np.int64)
        self.label, self.slice = _Column(k.label for k in keys), _Column(k.slice for k in keys)
        self.cluster = _Column(key.cluster for key in keys)
        self.predicted = _Column(key.predicted for key in keys)
        self.wrong: _Flags = np.array([key.label != key.predicted for key in keys], dtype=bool)
        self.items = np.array([tally.items for tally in tallies], dtype=np.int64)
        self.measured = np.array([tally.measured for tally in tallies], dtype=np.int64)
        self.probabilities = _filled([tally.probabilities for tally in tallies], answers)
        self.squares = _filled([tally.squares for tally in tallies], answers)
        self._groups: dict[str, list[int]] = {}
        for place, key in enumerate(keys):
            for group in key.groups:
                self._groups.setdefault(group, []).append(place)

    def counted(self, groups: Collection[str]) -> _Flags:
        """Return which situations (R,) count items, or names of these groups."""
        return self.named.isin({"", *groups})

    def mentions(self, groups: Collection[str]) -> _Flags:
        """Return which situations (R,) are of items that mention one of these groups."""
        mentions = ~self.every
        for group in groups:
            mentions[self._groups.get(group, [])] = True
        return mentions


_NO_ITEMS = Tally(0, 0, (), ())


def _filled(rows: Sequence[tuple[float, ...]], width: int) -> _Numbers:
    """Rows (R, width); what was not measured is 0."""
    blank = (0.0,) * width
    return np.array([(*row, *blank)[:width] for row in rows]).reshape(len(rows), width)


def _of_others(table: _Table, group: str, others: Collection[str]) -> _Flags:
    """Situations of items that mention the reference; of several groups, those without `group`.

    Where there is no other group at all, these are the items that do not mention `group`.
    """
    if not others:
        return ~table.mentions([group])
    mentioned = table.mentions(others)
    return mentioned if len(others) == 1 else mentioned & ~table.mentions([group])


@dataclass(frozen=True, slots=True, eq=False)
class _Rows:
    """Some situations of a table."""

    table: _Table
    places: NDArray[np.intp]  #: ascending

    @classmethod
    def of(cls, table: _Table, flags: _Flags) -> "_Rows":
        """The situations that are wanted (R,)."""
        return cls(table, np.flatnonzero(flags))

    def where(self, flags: _Flags) -> "_Rows":
        """Those of these that are wanted (R,)."""
        return _Rows(self.table, self.places[flags[self.places]])

    @property
    def items(self) -> int:
        """Return how many items they hold."""
        return int(self.table.items[self.places].sum())

    def share(self, counted: _Flags) -> Share | None:
        """The share of items whose situations (R,) are counted; None without items."""
        items = self.table.items[self.places].astype(np.float64)  # exact below 2**53
        names, sums = self._by_cluster(items, items * counted[self.places])
        whole, some = sums.astype(np.int64).tolist()
        share = Share.of(zip(names, whole, some, strict=True))
        return share and share.sampled(*self._between_names(counted, share.value))

    def _between_names(self, counted: _Flags, share: float) -> tuple[int, float]:
        """The names, and the variance that they add to the number of counted items.

        It is that between names less that where names meet clusters (Cameron, Gelbach and Miller
        2011, eq. 2.11). An item with several names counts with each of them. The factors are those
        of names that meet in items by chance, each of these with `each` of them; with one it is the
        usual G / (G - 1). Where the same names always meet, the interval is too wide.
        """
        table = self.table
        places = self.places[table.with_name[self.places] > 0]
        items, chosen = table.with_name[places].astype(np.float64), counted[places]
        apart = items * (chosen - share)
        name, cluster = table.name.codes[places], table.cluster.codes[places]
        number = len(np.unique(name))
        each = float(items.sum()) / max(self.items, 1)
        alone = table.cluster.isin([""])[places]
        meeting = float((items * (chosen - share) ** 2)[alone].sum())
        meeting += squares(apart[~alone], (name * len(table.cluster.values) + cluster)[~alone])
        between = squares(apart, name) - (1.0 - each / max(number, 1)) * meeting
        return number, between * number * (number - 1) / max(number - each, 1.0) ** 2

    def mean(self, number: int) -> OutcomeMean | None:
        """The mean probability of an answer, its interval over clusters."""
        known = self.where(self.table.measured > 0)
        measured = self.table.measured[known.places].astype(np.float64)
        chances = self.table.probabilities[known.places, number]
        names, rows = known._by_cluster(measured, chances, self.table.squares[known.places, number])
        sums = dict(zip(names, zip(*rows.tolist(), strict=True), strict=True))
        count = sum(sums_of_name[0] for sums_of_name in sums.values())
        if not count:
            return None
        mean = sum(sums_of_name[1] for sums_of_name in sums.values()) / count
        alone = sums.pop("", (0.0, 0.0, 0.0))
        squares = alone[2] - 2 * mean * alone[1] + mean * mean * alone[0]
        squares += sum((total - mean * items) ** 2 for items, total, _ in sums.values())
        number_of = alone[0] + len(sums)
        if number_of < 2:
            return OutcomeMean(value=mean, interval=(0.0, 1.0))
        half = 1.96 * math.sqrt(max(squares, 0.0) * number_of / (number_of - 1)) / count
        return OutcomeMean(value=mean, interval=(max(mean - half, 0.0), min(mean + half, 1.0)))

    def _by_cluster(self, *columns: _Numbers) -> tuple[list[str], _Numbers]:
        """The clusters in order of appearance, and each column's sums over them (columns, C).

        Numbers are added one after the other, as their order in the table is.
        """
        codes = self.table.cluster.codes[self.places]
        present, first, which = np.unique(codes, return_index=True, return_inverse=True)
        order = np.argsort(first)
        sums = [np.bincount(which, weights=column, minlength=len(present)) for column in columns]
        names = [self.table.cluster.values[code] for code in present[order].tolist()]
        return names, np.array(sums, dtype=np.float64).reshape(len(columns), -1)[:, order]


#: measures of errors, and the shares of a side that they compare
_Fields = tuple[tuple[MeasureName, str], ...]
_ERRORS: _Fields = (
    ("true positive rate", "true_positive"),
    ("false positive rate", "false_positive"),
)
_TYPE_ERRORS: _Fields = (("true positive rate", "true_positive"), ("precision", "precision"))


@dataclass(frozen=True, slots=True)
class _Sides:
    """The items on either side of a comparison."""

    own: _Rows
    other: _Rows
    classes: Sequence[str]
    practical: Practical
    favourable: Collection[str]
    whole: bool

    def compared(self, prediction: _Prediction, named: tuple[str, str, str]) -> ComparedRates:
        """The comparison of one prediction; `named` are group, reference and stratum."""
        place, answer = prediction.place, prediction.answer
        selects = partial(answer.selects, classes=self.classes)
        mine, other = (_shares(rows, answer, selects) for rows in (self.own, self.other))
        left, right = mine.selected, other.selected
        row = Outcome(
            group=named[0],
            reference=named[1],
            prediction=answer.name,
            stratum=named[2],
            own=mine.side(self.own, place, answer),
            other=other.side(self.other, place, answer),
            difference=left.value - right.value,
            impact_ratio=left.value / right.value if right.count else None,
            favourable=answer.name in self.favourable,
            whole=self.whole,
            counted="items" if answer.plus else "answers" if answer.agrees else "entities",
        )
        differences = () if prediction.ratio_only else self._differences(answer, mine, other)
        return row, (*differences, *self._ratio(answer, mine, other))

    def _differences(
        self, answer: Answer, mine: "_Shares", other: "_Shares"
    ) -> Iterator[Comparison]:
        """Differences of the rate and of errors; of types of entities of errors where known."""
        limit = self.practical.rates
        labelled = [share.labelled is not None for share in (mine, other)]
        if not (answer.is_type and any(labelled)):
            yield share_difference("rate", limit, mine.selected, other.selected, MIN_ITEMS)
        if answer.agrees or not (any(labelled) if answer.is_type else all(labelled)):
            return  # every question is labelled alike, so that its rate is its only error
        fewest = MIN_ENTITIES if answer.is_type else 1
        for name, field in _TYPE_ERRORS if answer.is_type else _ERRORS:
            left, right = getattr(mine, field), getattr(other, field)
            counts = [share.total if share else 0 for share in (left, right)]
            most = max(counts[0] / mine.selected.total, counts[1] / other.selected.total)
            needed = min(counts) >= fewest or most > limit
            if needed or all(counts):
                comparison = share_difference(name, limit, left, right, MIN_ITEMS)
                yield replace(comparison, needed=needed)

    def _ratio(self, answer: Answer, mine: "_Shares", other: "_Shares") -> Iterator[Comparison]:
        """The impact ratio of a favourable prediction."""
        least = self.practical.impact_ratio
        if answer.name in self.favourable and not answer.is_type:
            yield impact_ratio(least, mine.selected, other.selected, MIN_ITEMS)


class _Shares(NamedTuple):
    """The shares of one side for one prediction."""

    selected: Share
    labelled: Share | None
    error: Share | None
    true_positive: Share | None
    false_positive: Share | None
    precision: Share | None

    def side(self, rows: _Rows, place: int | None, answer: Answer) -> OutcomeSide:
        """As a report shows them, with the probability at this place of those measured."""
        labelled = rows.where(~rows.table.label.isin([""]))
        mean = labelled.mean(place) if place is not None else None
        return OutcomeSide(
            selected=self.selected.rate(),
            probability=rows.mean(place) if place is not None else None,
            labelled=_rate(self.labelled),
            error=_rate(self.error),
            true_positive=_rate(self.true_positive),
            false_positive=_rate(self.false_positive),
            precision=_rate(self.precision),
            calibration=mean.value - self.labelled.value  # F1 is no probability
            if mean and self.labelled and not answer.agrees
            else None,
        )


def _shares(rows: _Rows, answer: Answer, selects: Callable[[str], bool]) -> _Shares:
    table = rows.table
    chosen, right = table.predicted.where(selects), table.label.where(selects)
    # of several labels, one that is wrong makes no other wrong
    wrong = chosen ^ right if answer.several else table.wrong
    labelled = rows.where(~table.label.isin([""]))
    selected = rows.share(chosen)
    assert selected is not None  # there are items on either side
    return _Shares(
        selected=selected,
        labelled=labelled.share(right),
        error=labelled.share(wrong),
        true_positive=labelled.where(right).share(chosen),
        false_positive=labelled.where(~right).share(chosen),
        precision=labelled.where(chosen).share(right),
    )


def _rate(share: Share | None) -> ItemRate | None:
    return share.rate() if share else None
