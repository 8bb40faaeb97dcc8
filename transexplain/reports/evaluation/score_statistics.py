"""Statistics of scores: means with intervals, and paired comparisons of methods."""

import math
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from transexplain.evaluating.metrics.metric_table import Better, Scored, unmeasured
from transexplain.reports.report_section import RunInputs, Statement
from transexplain.reports.sections.item_fates import UnreadableItems, damage
from transexplain.types.scores import MetricScore

SCHEMA_VERSION = 1

Interval = tuple[float, float]
RowKind = Literal["method", "random", "oracle", "prediction"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoreDifference:
    """A method's values minus those of the table's best, item by item."""

    items: int  #: that both were measured on
    mean: float
    interval: Interval | None  #: 95 %; None: too few items
    p: float | None  #: two-sided, permutation of signs; None: one item, or a value of all together
    p_adjusted: float | None  #: Benjamini-Hochberg over the table


@dataclass(frozen=True, kw_only=True, slots=True)
class ClassWords:
    """The top words of one class by one method."""

    class_name: str
    words: tuple[str, ...]  #: lower case, best first; hashes where texts were not stored
    scores: tuple[float, ...] = ()  #: of these words: relevance over the class's items x rarity


@dataclass(frozen=True, kw_only=True, slots=True)
class SharedWords:
    """The words that the lists of two classes have in common."""

    classes: tuple[str, str]
    words: tuple[str, ...]  #: in the order of the first class


@dataclass(frozen=True, kw_only=True, slots=True)
class Spread:
    """The spread of the values of several draws of random relevance, each over all items."""

    draws: int
    deviation: float  #: standard deviation, of a sample
    low: float
    high: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One method in the table of one metric."""

    method: str  #: label
    kind: RowKind
    rank: int | None  #: among methods, 1 is best; None: no method, or nothing is better
    items: int  #: measured on
    missing: Mapping[str, int]  #: why there is no value -> items
    mean: float | None  #: of a corpus metric: the value over all items
    interval: Interval | None  #: 95 %; None: too few items
    difference: ScoreDifference | None  #: to the best; None: it is the best, or cannot be compared
    curve: tuple[float, ...]  #: mean over items, at the table's axis
    #: Pearson's, of the table's pair over items; None: it has none, or one number never differs
    correlation: float | None = None
    points: tuple[tuple[float, float], ...] = ()  #: the pairs of some items, evenly spaced
    lists: tuple[ClassWords, ...] = ()  #: of every class; empty: the metric lists no words
    shared: tuple[SharedWords, ...] = ()  #: of every pair of these lists
    spread: Spread | None = None  #: of random relevance drawn several times


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoreTable:
    """One metric for one target: the best method first, random and oracle last."""

    target: str
    metric: str
    title: str
    parameters: Mapping[str, Any]
    baseline: str  #: what stands in the place of hidden positions; "": nothing is hidden
    source: str
    unit: str
    better: Better
    corpus: bool  #: values are of all items together, not means
    of_content: bool  #: says something of where the relevance lies, not of its cost or its sum
    axis: str  #: what the curves run over
    x: tuple[float, ...]  #: of the curves' points; empty: there are no curves
    best: str | None  #: label
    rows: tuple[Row, ...]
    pair: tuple[str, ...] = ()  #: what the two numbers of a row's points are; empty: it has none


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluatedRun(RunInputs):
    """The evaluated model, data and methods."""

    rows: int  #: of the dataset
    items: int | None  #: drawn from it; None: every one
    measured: int  #: items with at least one value
    failed: int  #: items that the model could not read
    seed: int
    targets: tuple[str, ...]
    methods: Mapping[str, Mapping[str, Any]]  #: label -> name, parameters, items
    resamples: int  #: of every bootstrap
    permutations: int  #: of every test, at most
    inputs_digest: str = ""  #: names the run: sha256 of what decides its numbers
    manifest_digest: str = ""  #: sha256 of the whole manifest, execution included


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluationSummary:
    """Everything a report says about one evaluation."""

    headline: tuple[Statement, ...]
    evaluated: EvaluatedRun
    tables: tuple[ScoreTable, ...]  #: by target, then metric, in the order of the plan
    unreadable: UnreadableItems | None = None  #: None: every result is as it was saved
    schema_version: int = SCHEMA_VERSION

    @property
    def whole(self) -> bool:
        """Return whether every stored result is as it was saved."""
        return not damage(self.unreadable)


Matrix = NDArray[np.float64]


def spread_of(values: Sequence[float | None]) -> Spread | None:
    """Of the values of several draws; None below two, and where one has none."""
    known = [value for value in values if value is not None]
    if len(known) < 2 or len(known) < len(values):
        return None
    deviation = float(np.std(known, ddof=1))
    return Spread(draws=len(known), deviation=deviation, low=min(known), high=max(known))


def _added(total: Matrix | None, values: Sequence[float]) -> tuple[Matrix, bool]:
    """The sum of values of one length, and whether these are of it."""
    if total is None:
        return np.array(values, dtype=np.float64), True
    if len(total) != len(values):
        return total, False
    return total + values, True


@dataclass(slots=True)
class ScoreColumn:
    """The scores of one method by one metric for one target."""

    items: "array[int]" = field(default_factory=lambda: array("l"))  #: numbers of measured items
    values: "array[float]" = field(default_factory=lambda: array("d"))
    missing: Counter[str] = field(default_factory=Counter)  #: reason -> items
    details: list[tuple[int, Mapping[str, Any]]] = field(default_factory=list)  #: by item number
    curve: Matrix | None = None  #: (points,) sum over items
    curves: int = 0  #: items in the sum
    odd: bool = False  #: curves differ in length, so that there is no mean curve
    pairs: "array[float]" = field(default_factory=lambda: array("d"))  #: two numbers of an item
    #: of random relevance drawn several times: sums over items of each draw's values
    drawn: Matrix | None = None
    uneven: bool = False  #: items differ in their draws, so that no draw has a mean

    def add(self, number: int, score: MetricScore, corpus: bool) -> None:
        """Count one score of the item `number`."""
        if corpus and score.detail and not score.reason:
            self.details.append((number, score.detail))
        elif score.value is None or not np.isfinite(score.value):
            self.missing[score.reason or "no finite value"] += 1
        else:
            self.items.append(number)
            self.values.append(score.value)
            if score.curve:
                self.curve, summed = _added(self.curve, score.curve)
                self.curves += summed
                self.odd |= not summed
            self.drawn, summed = _added(self.drawn, score.detail.get("draws", ()))
            self.uneven |= not summed
            self.pairs.extend(score.detail.get("pair", ()))

    def spread(self) -> Spread | None:
        """Of the draws' means over the items; None where relevance was drawn once or never."""
        if self.drawn is None or self.uneven or not self.values:
            return None
        return spread_of((self.drawn / len(self.values)).tolist())

    def mean(self) -> float | None:
        """Over the measured items; None where there is none."""
        return math.fsum(self.values) / len(self.values) if self.values else None

    def points(self, most: int) -> tuple[tuple[float, float], ...]:
        """The pairs of at most so many items, evenly spaced over all of them."""
        every = list(zip(self.pairs[::2], self.pairs[1::2], strict=True))
        return tuple(every[:: -(-len(every) // most) or 1])

    def mean_curve(self) -> tuple[float, ...]:
        """(points,) mean over the measured items; empty where there is none."""
        if self.curve is None or self.odd:
            return ()
        return tuple((self.curve / self.curves).tolist())


@dataclass(slots=True)
class Gathered:
    """All scores of a run."""

    items: dict[str, int] = field(default_factory=dict)  #: id -> number
    columns: dict[tuple[str, str], dict[str, ScoreColumn]] = field(default_factory=dict)
    measured: set[int] = field(default_factory=set)  #: items with at least one value

    @property
    def targets(self) -> tuple[str, ...]:
        """As the scores name them."""
        return tuple(dict.fromkeys(target for target, _ in self.columns))

    def of(self, target: str, metric: str) -> dict[str, ScoreColumn]:
        """Method label -> its scores; empty where nothing was measured."""
        return self.columns.get((target, metric), {})

    def matrix(self, columns: Iterable[ScoreColumn]) -> Matrix:
        """(M, N) values of M methods on all N items, NaN where there is none."""
        chosen = list(columns)
        values = np.full((len(chosen), len(self.items)), np.nan)
        for row, column in enumerate(chosen):
            values[row, np.asarray(column.items, dtype=np.intp)] = column.values
        return values


def gather(scores: Iterable[MetricScore], corpus: Iterable[str]) -> Gathered:
    """Sort scores; `corpus` names the metrics whose value is of all items together."""
    gathered, together = Gathered(), frozenset(corpus)
    for score in scores:
        number = gathered.items.setdefault(score.item_id, len(gathered.items))
        by_method = gathered.columns.setdefault((score.target, score.metric), {})
        column = by_method.setdefault(score.method, ScoreColumn())
        column.add(number, score, score.metric in together)
        if not score.reason:
            gathered.measured.add(number)
    return gathered


#: items below which there is no interval: a resample of so few says next to nothing
FEWEST = 5
RESAMPLES = 2000
#: at most; all sign changes are tried where there are fewer
PERMUTATIONS = 1999
#: a difference is beyond chance below this adjusted p
LEVEL = 0.05
#: resamples in memory at once
_BATCH = 50


def intervals(values: Matrix, seed: int) -> list[Interval | None]:
    """The percentile bootstrap interval of each row's mean (Efron and Tibshirani 1993, 13.3).

    Args:
        values: (M, N) of M methods on N items, NaN where there is none.
        seed: of the resampling.

    Returns:
        For each method its interval; None below `FEWEST` items.
    """
    from scipy.stats import bootstrap  # 70 MB that a server of pages does without

    intervals: list[Interval | None] = [None] * len(values)
    for rows, columns in _same_columns(~np.isnan(values)):
        if columns.sum() < FEWEST:
            continue
        result = bootstrap(
            (values[rows][:, columns],),
            np.mean,
            axis=-1,
            n_resamples=RESAMPLES,
            batch=_BATCH,
            method="percentile",
            rng=np.random.default_rng(seed),
        ).confidence_interval
        ends = np.stack([result.low, result.high], axis=-1).tolist()
        for row, (low, high) in zip(rows, ends, strict=True):
            intervals[row] = (low, high)
    return intervals


def differences(values: Matrix, reference: int, seed: int) -> list[ScoreDifference | None]:
    """Each row minus row `reference` on the items that both have.

    The test permutes the signs of an item's differences; its p-values are adjusted over all rows
    that have one (Benjamini and Hochberg 1995).

    Args:
        values: (M, N) of M methods on N items, NaN where there is none.
        reference: row that the others are compared with.
        seed: of the resampling.

    Returns:
        For each method its difference; None for the reference and where no item is common.
    """
    paired = values - values[reference]
    paired[reference] = np.nan
    spans = intervals(paired, seed)
    p = _permuted(paired, seed)
    adjusted = adjust(p)
    counts = (~np.isnan(paired)).sum(axis=1)
    return [
        ScoreDifference(
            items=int(counts[row]),
            mean=float(np.nanmean(paired[row])),
            interval=spans[row],
            p=p[row],
            p_adjusted=adjusted[row],
        )
        if counts[row]
        else None
        for row in range(len(values))
    ]


def adjust(p: Sequence[float | None]) -> list[float | None]:
    """P-values adjusted over those that exist (Benjamini and Hochberg 1995)."""
    from scipy.stats import false_discovery_control  # as above

    known = [value for value in p if value is not None]
    adjusted = iter(false_discovery_control(known) if known else ())
    return [None if value is None else float(next(adjusted)) for value in p]


def _permuted(paired: Matrix, seed: int) -> list[float | None]:
    """(M,) two-sided p of a mean of 0; None where there are fewer than two differences."""
    from scipy.stats import permutation_test  # as above

    p_values: list[float | None] = [None] * len(paired)
    for rows, columns in _same_columns(~np.isnan(paired)):
        if columns.sum() < 2:
            continue
        result = permutation_test(
            (paired[rows][:, columns],),
            np.mean,
            permutation_type="samples",
            axis=-1,
            n_resamples=PERMUTATIONS,
            batch=_BATCH,
            rng=np.random.default_rng(seed),
        )
        for row, p in zip(rows, result.pvalue, strict=True):
            p_values[row] = float(p)
    return p_values


def _same_columns(present: NDArray[np.bool_]) -> Iterator[tuple[list[int], NDArray[np.bool_]]]:
    """Rows that have the same columns, and which those are."""
    groups: dict[bytes, list[int]] = {}
    for row, columns in enumerate(present):
        groups.setdefault(columns.tobytes(), []).append(row)
    for rows in groups.values():
        yield rows, present[rows[0]]


#: random halves of the items
HALVES = 200

Join = Callable[[Sequence[Mapping[str, Any]]], Scored]


class MethodValue(NamedTuple):
    """The value of one method by one metric for one target."""

    items: int  #: measured on
    scored: Scored  #: the mean over items; of a corpus metric the value of all of them
    interval: Interval | None  #: 95 %; None: too few items, or too few halves had a value
    spread: Spread | None  #: of random relevance drawn several times
    of: frozenset[int] = frozenset()  #: of a corpus metric: the items that it was made of
    halves: tuple[float | None, ...] = ()  #: and the value of each half; None: it has none


def wholes(columns: Sequence[ScoreColumn], join: Join, items: int, seed: int) -> list[MethodValue]:
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


def minus(value: MethodValue, best: MethodValue) -> ScoreDifference | None:
    """`value` minus `best`; None where either has none or their items differ."""
    if value.scored.value is None or best.scored.value is None or value.of != best.of:
        return None
    pairs = zip(value.halves, best.halves, strict=True)
    mean = value.scored.value - best.scored.value
    return ScoreDifference(
        items=value.items,
        mean=mean,
        interval=_interval(mean, [None if a is None or b is None else a - b for a, b in pairs]),
        p=None,
        p_adjusted=None,
    )


def _whole(column: ScoreColumn, join: Join, halves: list[list[int]]) -> MethodValue:
    """Of all its details; of those of several draws the mean, and halves of the first draw."""
    every = [(number, detail.get("draws") or [detail]) for number, detail in column.details]
    draws = min((len(drawn) for _, drawn in every), default=0)
    joined = [join([drawn[place] for _, drawn in every]) for place in range(draws)]
    details = {number: drawn[0] for number, drawn in every}
    values: list[float | None] = []
    for half in halves if len(details) >= FEWEST else ():
        chosen = [details[number] for number in half if number in details]
        values.append(join(chosen).value if chosen else None)
    scored = _mean_of(joined) if joined else unmeasured("no item was measured")
    return MethodValue(
        items=len(details),
        scored=scored,
        interval=_interval(scored.value, values),
        spread=spread_of([whole.value for whole in joined]),
        of=frozenset(details),
        halves=tuple(values),
    )


def _mean_of(draws: Sequence[Scored]) -> Scored:
    """The value and the curve that draws have on average, where all have one."""
    values = [draw.value for draw in draws if draw.value is not None]
    if len(draws) == 1 or len(values) < len(draws):
        return next((draw for draw in draws if draw.value is None), draws[0])
    points = zip(*(draw.curve for draw in draws), strict=True)
    curve = tuple(math.fsum(at_point) / len(draws) for at_point in points)
    return Scored(value=math.fsum(values) / len(draws), curve=curve, detail=draws[0].detail)


def _interval(value: float | None, halves: Sequence[float | None]) -> Interval | None:
    known = [half for half in halves if half is not None]
    if value is None or len(known) < HALVES / 2:
        return None
    reach = 1.96 * float(np.std(known, ddof=1))
    return value - reach, value + reach


#: the difference of each method to the one at this place
ToReference = Callable[[int], list[ScoreDifference | None]]


def measured(
    gathered: Gathered, columns: Sequence[ScoreColumn], join: Join | None, seed: int
) -> tuple[list[MethodValue], ToReference]:
    """The value of each method, and what compares them all with one.

    Args:
        gathered: all scores of the run.
        columns: of each method its scores.
        join: of a corpus metric: makes one score of the details of many items.
        seed: of the resampling.
    """
    if join is None:
        matrix = gathered.matrix(columns)
        means = [Scored(value=column.mean(), curve=column.mean_curve()) for column in columns]
        values = [
            MethodValue(len(column.items), scored, span, column.spread())
            for column, scored, span in zip(columns, means, intervals(matrix, seed), strict=True)
        ]
        return values, lambda place: differences(matrix, place, seed)
    values = wholes(columns, join, len(gathered.items), seed)
    return values, lambda place: [
        None if value is values[place] else minus(value, values[place]) for value in values
    ]
