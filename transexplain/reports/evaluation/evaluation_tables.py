"""The table of one metric for one target, and an evaluation in one record."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from transexplain.errors import ConfigurationError
from transexplain.evaluating.metrics import axis_of, curve_of, metric_facts
from transexplain.evaluating.metrics.metric_table import MetricFacts
from transexplain.provenance.manifest import manifest_of
from transexplain.registry import load
from transexplain.reports.evaluation.evaluation_text import headline
from transexplain.reports.evaluation.score_statistics import (
    PERMUTATIONS,
    RESAMPLES,
    ClassWords,
    EvaluatedRun,
    EvaluationSummary,
    Gathered,
    Interval,
    Row,
    RowKind,
    ScoreColumn,
    ScoreTable,
    SharedWords,
    differences,
    gather,
    intervals,
    minus,
    wholes,
)
from transexplain.reports.report_section import of_run
from transexplain.reports.sections.item_fates import unreadable, unreadable_statements
from transexplain.store import blocks, results, runs
from transexplain.store.database import Database
from transexplain.types.plans import AuditRun
from transexplain.types.relevance_sums import RelevanceSums
from transexplain.types.scores import (
    ORACLE,
    PREDICTION,
    RANDOM,
    EvaluationPlan,
    MetricScore,
    MetricSpec,
)

#: items of a method in a scatter
POINTS = 200


def kinds(plan: EvaluationPlan) -> dict[str, RowKind]:
    """Label -> what kind of row it is, in the order of the plan, those of no method last."""
    kinds_of_rows: dict[str, RowKind] = {
        method.label: "random" if method.method.name == RANDOM else "method"
        for method in plan.methods
    }
    return {**kinds_of_rows, ORACLE: "oracle", PREDICTION: "prediction"}


def titled(spec: MetricSpec) -> str:
    """The heading of a metric, with its label where that is not its name."""
    title = metric_facts(spec.name).title
    return title if spec.label == spec.name else f"{title}: {spec.label}"


def table(
    gathered: Gathered, plan: EvaluationPlan, target: str, spec: MetricSpec
) -> ScoreTable | None:
    """The table of `spec` for `target`; None where nothing was measured.

    The best is the method of the best mean among those that were measured on at least half as many
    items as the most measured one: a lead on a handful of items is luck. Random relevance and the
    oracle are compared with it and are never it. Nor is there a best where items have pairs: rows
    then stand by their correlation, for means in different units are not compared.
    """
    facts, columns = metric_facts(spec.name), gathered.of(target, spec.label)
    known = {label: kind for label, kind in kinds(plan).items() if label in columns}
    if not known:
        return None
    chosen = [columns[label] for label in known]
    measure = _together if facts.corpus else _averaged
    rows, reference = measure(gathered, facts, known, chosen, plan.seed)
    placed = _placed(rows, facts)
    x = next((axis_of(spec, len(row.curve)) for row in placed if row.curve), ())
    return ScoreTable(
        target=target,
        metric=spec.label,
        title=titled(spec),
        parameters=dict(spec.params),
        baseline=str(curve_of(spec).baseline) if facts.kind == "curve" else "",
        source=facts.source,
        unit=facts.unit,
        better=facts.better,
        corpus=bool(facts.corpus),
        of_content=facts.of_oracle,
        axis=facts.axis,
        x=x,
        best=None if reference is None else rows[reference].method,
        rows=placed,
        pair=facts.pair,
    )


def _averaged(
    gathered: Gathered,
    facts: MetricFacts,
    known: Mapping[str, RowKind],
    chosen: Sequence[ScoreColumn],
    seed: int,
) -> tuple[list[Row], int | None]:
    values = gathered.matrix(chosen)
    counts = [len(column.items) for column in chosen]
    means = [column.mean() for column in chosen]
    curves = [column.mean_curve() for column in chosen]
    rows = _rows(known, chosen, counts, means, intervals(values, seed), curves)
    rows = [replace(row, spread=column.spread()) for row, column in zip(rows, chosen, strict=True)]
    reference = _best(rows, facts)
    if reference is None:
        return rows, None
    versus = differences(values, reference, seed)
    return [
        replace(row, difference=difference) for row, difference in zip(rows, versus, strict=True)
    ], reference


def _together(
    gathered: Gathered,
    facts: MetricFacts,
    known: Mapping[str, RowKind],
    chosen: Sequence[ScoreColumn],
    seed: int,
) -> tuple[list[Row], int | None]:
    measured = wholes(chosen, load(facts.corpus), len(gathered.items), seed)
    counts = [len(whole.items) for whole in measured]
    means = [whole.scored.value for whole in measured]
    curves = [whole.scored.curve for whole in measured]
    rows = _rows(known, chosen, counts, means, [whole.interval for whole in measured], curves)
    rows = [
        replace(row, missing={**row.missing, whole.scored.reason: len(whole.items)})
        if whole.scored.value is None and whole.items
        else replace(_with_words(row, whole.scored.detail), spread=whole.spread)
        for row, whole in zip(rows, measured, strict=True)
    ]
    reference = _best(rows, facts)
    if reference is None:
        return rows, None
    rows = [
        row if place == reference else replace(row, difference=minus(whole, measured[reference]))
        for place, (row, whole) in enumerate(zip(rows, measured, strict=True))
    ]
    return rows, reference


def _with_words(row: Row, detail: Mapping[str, Any]) -> Row:
    """A row with the words that its method lists for each class, where the metric lists any."""
    return replace(
        row,
        lists=tuple(
            ClassWords(
                class_name=name,
                words=tuple(words),
                scores=tuple(detail.get("scores", {}).get(name, ())),
            )
            for name, words in detail.get("lists", {}).items()
        ),
        shared=tuple(
            SharedWords(classes=(first, other), words=tuple(pair["words"]))
            for pair in detail.get("shared", ())
            for first, other in (pair["classes"],)
        ),
    )


def _rows(
    known: Mapping[str, RowKind],
    chosen: Sequence[ScoreColumn],
    counts: Sequence[int],
    means: Sequence[float | None],
    spans: Sequence[Interval | None],
    curves: Sequence[tuple[float, ...]],
) -> list[Row]:
    return [
        Row(
            method=label,
            kind=kind,
            rank=None,
            items=counts[place],
            missing=dict(chosen[place].missing.most_common()),
            mean=means[place],
            interval=spans[place],
            difference=None,
            curve=curves[place],
            correlation=_correlation(chosen[place]),
            points=chosen[place].points(POINTS),
        )
        for place, (label, kind) in enumerate(known.items())
    ]


def _correlation(column: ScoreColumn) -> float | None:
    """Of the two numbers of each item, whatever the order of the items."""
    return RelevanceSums.of(column.pairs[::2], column.pairs[1::2]).correlation


def _best(rows: Sequence[Row], facts: MetricFacts) -> int | None:
    if facts.better == "neither" or facts.pair:
        return None
    real = [(place, row) for place, row in enumerate(rows) if row.kind == "method"]
    most = max((row.items for _, row in real), default=0)
    able = [
        (_cost(row, facts), place)
        for place, row in real
        if row.mean is not None and row.items >= most / 2
    ]
    return min(able)[1] if able else None


def _cost(row: Row, facts: MetricFacts) -> float:
    """A sort key: smaller for a better row."""
    mean = row.mean or 0.0
    return -mean if facts.better == "higher" else mean


def _placed(rows: Sequence[Row], facts: MetricFacts) -> tuple[Row, ...]:
    """Rows with their ranks: methods by mean, those without one last, then what is no method."""
    from scipy.stats import rankdata  # 70 MB that a server of pages does without

    real = [row for row in rows if row.kind == "method"]
    if facts.pair:
        real.sort(
            key=lambda row: -2.0 if row.correlation is None else row.correlation, reverse=True
        )
    elif facts.better != "neither":
        able = [row for row in real if row.mean is not None]
        ranks = rankdata([_cost(row, facts) for row in able], method="min") if able else ()
        ranked = [replace(row, rank=int(rank)) for row, rank in zip(able, ranks, strict=True)]
        ranked.sort(key=lambda row: row.rank or 0)
        real = [*ranked, *(row for row in real if row.mean is None)]
    others = [
        row for kind in ("random", "oracle", "prediction") for row in rows if row.kind == kind
    ]
    return (*real, *others)


def tabulate(db: Database, run_id: str) -> EvaluationSummary:
    """Everything a report says about the scores of a run, finished or not.

    Args:
        db: the store.
        run_id: id, unique beginning of one, or `latest`.

    Raises ConfigurationError for an unknown run, and for one that measured no explanations.
    """
    run = runs.get(db, run_id)
    plan = run.plan.evaluation
    if plan is None:
        raise ConfigurationError(
            f"run {run.id} measured no explanations, so there is nothing to tabulate; "
            "evaluate the model, or let its audit evaluate a sample"
        )
    with blocks.sparing():
        tables, gathered = tables_of(results.iter_scores(db, run.id), plan)
    evaluated, damaged = _evaluated(db, run, plan, gathered), unreadable(db, run.id)
    lines = (*unreadable_statements(damaged), *headline(evaluated, tables))
    return EvaluationSummary(headline=lines, evaluated=evaluated, tables=tables, unreadable=damaged)


def tables_of(
    scores: Iterable[MetricScore], plan: EvaluationPlan
) -> tuple[tuple[ScoreTable, ...], Gathered]:
    """One table for each target and metric that was measured, and what they were made of."""
    corpus = [spec.label for spec in plan.metrics if metric_facts(spec.name).corpus]
    gathered = gather(scores, corpus)
    targets = dict.fromkeys([*plan.targets, *gathered.targets])
    tables = (table(gathered, plan, target, spec) for target in targets for spec in plan.metrics)
    return tuple(entry for entry in tables if entry is not None), gathered


def _evaluated(
    db: Database, run: AuditRun, plan: EvaluationPlan, gathered: Gathered
) -> EvaluatedRun:
    manifest = manifest_of(db, run.id)
    return of_run(
        EvaluatedRun,
        run,
        items=plan.items,
        measured=len(gathered.measured),
        failed=runs.progress(db, run.id).items_failed,
        seed=plan.seed,
        targets=plan.targets,
        methods={
            method.label: {**asdict(method.method), "items": method.items}
            for method in plan.methods
        },
        resamples=RESAMPLES,
        permutations=PERMUTATIONS,
        inputs_digest=manifest.name,
        manifest_digest=manifest.sha256,
    )
