"""Faithfulness, conservation and class sensitivity of the audit's method, measured on a sample."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from transexplain.analysis.groups.shard_aggregate import ShardAggregate
from transexplain.evaluating.metrics import metric_facts
from transexplain.evaluating.metrics.map_metrics import HARDLY
from transexplain.registry import load
from transexplain.reports import phrasing
from transexplain.reports.charts import Drawing, scatter_drawing
from transexplain.reports.evaluation.evaluation_tables import kinds, titled
from transexplain.reports.evaluation.score_statistics import (
    LEVEL,
    Gathered,
    ScoreColumn,
    adjust,
    gather,
    measured,
)
from transexplain.reports.phrasing import percent
from transexplain.reports.redaction import empty, inside, published
from transexplain.reports.report_section import Section, Statement, statements
from transexplain.store import readers, run_totals
from transexplain.store.database import Database
from transexplain.types.plans import AuditRun
from transexplain.types.scores import Approximation, EvaluationPlan, MetricSpec


@dataclass(frozen=True, kw_only=True, slots=True)
class Conservation:
    """Over all attributions with a ledger: whether its ledgers close, and whether relevance is
    conserved, that is, sums to the logit over all positions (Ali et al. 2022, section 6.1).
    """

    attributions: int
    worst: float  #: largest |gap| / sum of |terms|
    mean: float
    worst_item: str
    tolerance: float | None  #: for this number type; None: measured, not judged
    above: int  #: attributions above the tolerance; 0 where there is none
    average: Mapping[str, float]  #: ledger entry -> mean over attributions, in the unit
    average_size: Mapping[str, float]  #: the same of absolute values
    relevance_error: float | None = None  #: mean |logit - sum of relevance| / |logit|
    correlation: float | None = None  #: Pearson's, of logit and sum of relevance
    #: logit and sum of relevance of attributions evenly spaced over the data
    points: tuple[tuple[float, float], ...] = ()

    @property
    def size_shares(self) -> Mapping[str, float]:
        """Ledger entry -> its share of the mean sizes of all entries; empty where all are 0."""
        whole = sum(self.average_size.values())
        return {entry: size / whole for entry, size in self.average_size.items() if whole}


#: largest acceptable |gap| / sum of |terms|, by number type (half precision is only measured)
TOLERANCES = {"float64": 1e-12, "float32": 5e-6}
_ENTRIES = ("inputs", "special", "embeddings", "biases", "rules")
#: relevance is said to sum to the logit where the mean of |logit - sum| / |logit| is not above it
CONSERVED = 0.05
#: rows of the data in the scatter: so many places, and so many rows at each
_PLACES, _ROWS = 16, 32


def conservation_of(db: Database, run: AuditRun) -> Conservation | None:
    """Measure whether the ledgers add up and relevance is conserved; None without a ledger."""
    tolerance = TOLERANCES.get(run.plan.model.dtype)
    totals = run_totals.conservation(db, run.id, tolerance)
    if totals is None:
        return None
    relevance = run_totals.relevance_sums(db, run.id)
    return Conservation(
        attributions=totals.n,
        worst=totals.max_relative_gap,
        mean=totals.mean_relative_gap,
        worst_item=totals.worst_item,
        tolerance=tolerance,
        above=totals.above,
        average={entry: totals.sums[entry] / totals.n for entry in _ENTRIES},
        average_size={entry: totals.absolute[entry] / totals.n for entry in _ENTRIES},
        relevance_error=relevance.error,
        correlation=relevance.correlation,
        points=tuple(run_totals.relevance_points(db, run.id, _some_rows(run.plan.dataset.rows))),
    )


def _some_rows(rows: int) -> list[range]:
    """All rows of a small dataset, else evenly spaced ones, whatever its shards are."""
    if rows <= _PLACES * _ROWS:
        return [range(rows)]
    places = [rows * place // _PLACES for place in range(_PLACES)]
    return [range(first, first + _ROWS) for first in places]


def conservation_chart(conservation: Conservation) -> Drawing | None:
    """Sum of relevance over logit, an attribution a point; None where there are too few."""
    return scatter_drawing(
        conservation.points,
        titles=("explained logit", "sum of relevance"),
        label=f"Sum of relevance over the explained logit of {len(conservation.points)} "
        f"explanations; on the dashed line both are equal.",
    )


def conservation_sentences(conservation: Conservation) -> Iterator[Statement]:
    """Yield whether the ledgers make up the logits, and whether relevance alone sums to them."""
    return statements("conservation.txt.j2", **_conserved(conservation))


def _conserved(conservation: Conservation) -> Mapping[str, Any]:
    shares = conservation.size_shares
    return {
        "conservation": conservation,
        "conserved": CONSERVED,
        "shares": [f"{name} {percent(shares[name])}" for name in _ENTRIES if shares.get(name)],
    }


CONSERVATION_RULES = published(
    "average average_size",
    worst_item=empty(""),
    points=empty(()),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class FaithfulnessRow:
    """The result of one metric for the audit's method and for random relevance on a sample."""

    target: str
    metric: str
    title: str
    unit: str
    better: str  #: higher | lower | neither
    of_content: bool  #: says something of where the relevance lies
    items: int  #: measured on
    missing: int  #: of the sample, could not be measured
    mean: float | None
    interval: tuple[float, float] | None  #: 95 %
    random: float | None  #: mean of random relevance
    difference: float | None  #: the method's minus random's, on common items
    difference_interval: tuple[float, float] | None  #: 95 %
    common: int  #: items of the difference
    p: float | None  #: of the difference, adjusted over the rows
    beats: bool | None  #: random, beyond chance; None: unknown, or not applicable


@dataclass(frozen=True, kw_only=True, slots=True)
class Faithfulness:
    """The faithfulness of the audit's method to this model, measured on a sample."""

    method: str  #: label in the evaluation
    items: int  #: of the sample that were measured
    rows: tuple[FaithfulnessRow, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class ClassSensitivity:
    """The sensitivity of the method to the class, on a sample of the run; see metrics."""

    mean: float  #: 0: the same map for every class, 0.5: unrelated maps, 1: opposite ones
    items: int  #: measured on


def sensitivity_of(total: ShardAggregate) -> ClassSensitivity | None:
    """None where no shard measured it."""
    measured_on = total.class_sensitivity
    return measured_on and ClassSensitivity(mean=measured_on[0], items=measured_on[1])


def faithfulness(db: Database, run: AuditRun) -> Faithfulness | None:
    """Return what was measured about the explanations of an audit; None where nothing was."""
    plan = run.plan.evaluation
    if plan is None or run.plan.task != "audit":
        return None
    corpus = [spec.label for spec in plan.metrics if metric_facts(spec.name).corpus]
    gathered = gather(readers.iter_scores(db, run.id), corpus)
    method = audited_label(run, plan)
    rows = [
        row
        for target in dict.fromkeys([*plan.targets, *gathered.targets])
        for spec in plan.metrics
        if (row := _row(gathered, plan, target, spec, method)) is not None
    ]
    if not rows:
        return None
    return Faithfulness(method=method, items=len(gathered.measured), rows=tuple(_judged(rows)))


def audited_label(run: AuditRun, plan: EvaluationPlan) -> str:
    """The label of the audit's own method, else of the first that is not random."""
    audited = [method.label for method in plan.methods if method.method == run.plan.method]
    real = [label for label, kind in kinds(plan).items() if kind == "method"]
    return (*audited, *real, plan.methods[0].label)[0]


def _sentences(report: Any) -> Iterator[Statement]:
    conservation, faithfulness = report.conservation, report.faithfulness
    return statements(
        "evidence_headline.txt.j2",
        audited=report.audited,
        counts=report.counts,
        approximates=report.approximates,
        approximation_sentences=phrasing.approximation_sentences,
        sensitivity=report.class_sensitivity,
        hardly=HARDLY,
        faithfulness=faithfulness,
        judged=[row for row in faithfulness.rows if row.beats is not None] if faithfulness else [],
        **(_conserved(conservation) if conservation else {"conservation": None}),
    )


def _row(
    gathered: Gathered, plan: EvaluationPlan, target: str, spec: MetricSpec, method: str
) -> FaithfulnessRow | None:
    facts, columns = metric_facts(spec.name), gathered.of(target, spec.label)
    if method not in columns:
        return None
    chance = next((label for label, kind in kinds(plan).items() if kind == "random"), "")
    pair = [columns[method], columns.get(chance, ScoreColumn())]
    join = load(facts.corpus) if facts.corpus else None
    (value, random), to_reference = measured(gathered, pair, join, plan.seed)
    difference = to_reference(1)[0]
    return FaithfulnessRow(
        target=target,
        metric=spec.label,
        title=titled(spec),
        unit=facts.unit,
        better=facts.better,
        of_content=facts.of_oracle,
        items=value.items,
        missing=sum(pair[0].missing.values()),
        mean=value.scored.value,
        interval=value.interval,
        random=random.scored.value,
        difference=difference.mean if difference else None,
        difference_interval=difference.interval if difference else None,
        common=difference.items if difference else 0,
        p=difference.p if difference else None,
        beats=None,
    )


def _judged(rows: Sequence[FaithfulnessRow]) -> Iterator[FaithfulnessRow]:
    """Rows with p adjusted over all of them, and what follows from it."""
    for row, p in zip(rows, adjust([row.p for row in rows]), strict=True):
        judged = row.better != "neither" and row.of_content
        yield replace(row, p=p, beats=_beats(row, p) if judged else None)


def _beats(row: FaithfulnessRow, p: float | None) -> bool | None:
    if row.difference is None or row.difference_interval is None:
        return None
    low, high = row.difference_interval
    sure = p < LEVEL if p is not None else low > 0 or high < 0
    return sure and (row.difference > 0 if row.better == "higher" else row.difference < 0)


def _shown(report: Any) -> Any:
    return report.conservation or report.faithfulness or report.class_sensitivity


SECTION = Section(
    template="evidence.html.j2",
    links=(("evidence", "Faithfulness"),),
    redaction={
        Conservation: CONSERVATION_RULES,
        ClassSensitivity: published(),
        Faithfulness: published("method"),
        FaithfulnessRow: published("target metric title unit better"),
        Approximation: published("teacher mode"),
    },
    present=lambda report: bool(report.counts.done and (_shown(report) or report.approximates)),
    linked=lambda report: bool(report.counts.done and _shown(report)),
    of_summary=inside("conservation class_sensitivity faithfulness approximates"),
    sentences=_sentences,
    drawing=lambda _report: {
        "approximation": phrasing.approximation_sentences,
        "conservation_chart": conservation_chart,
    },
)
