"""The records of an evaluation report: frozen, with plain values.

`schema_version` rises when a key changes its meaning or goes; new keys do not raise it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from transexplain.evaluating.metrics.metric_table import Better
from transexplain.reports.report_section import Statement
from transexplain.reports.sections.unreadable_items import UnreadableItems, damage

SCHEMA_VERSION = 1

Interval = tuple[float, float]
RowKind = Literal["method", "random", "oracle", "prediction"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
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
    """How the values of several draws of random relevance differ, each over all items."""

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
    difference: Difference | None  #: to the best; None: it is the best, or cannot be compared
    curve: tuple[float, ...]  #: mean over items, at the table's axis
    #: Pearson's, of the table's pair over items; None: it has none, or one number never differs
    correlation: float | None = None
    points: tuple[tuple[float, float], ...] = ()  #: the pairs of some items, evenly spaced
    lists: tuple[ClassWords, ...] = ()  #: of every class; empty: the metric lists no words
    shared: tuple[SharedWords, ...] = ()  #: of every pair of these lists
    spread: Spread | None = None  #: of random relevance drawn several times


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
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
class Evaluated:
    """What was evaluated, on what, and how."""

    run_id: str
    name: str
    state: str  #: running | done | cancelled
    created: float  #: seconds since the epoch
    finished: float | None
    plan_digest: str  #: sha256 of the plan
    version: str  #: of TransExplain, when the report was made
    model: str
    model_digest: str  #: sha256 over weights, config and tokenizer
    dtype: str
    device: str
    modality: str
    classes: tuple[str, ...]
    dataset: str
    fingerprint: str  #: sha256 of the dataset's snapshot
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
    evaluated: Evaluated
    tables: tuple[Table, ...]  #: by target, then metric, in the order of the plan
    unreadable: UnreadableItems | None = None  #: None: every result is as it was saved
    schema_version: int = SCHEMA_VERSION

    @property
    def whole(self) -> bool:
        """Whether every stored result is as it was saved."""
        return not damage(self.unreadable)
