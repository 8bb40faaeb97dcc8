"""The table of one metric for one target, and an evaluation in one record."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace

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
    MethodValue,
    Row,
    RowKind,
    ScoreColumn,
    ScoreTable,
    SharedWords,
    gather,
    measured,
)
from transexplain.reports.report_section import of_run
from transexplain.reports.sections.item_fates import unreadable, unreadable_statements
from transexplain.store import blocks, results, runs
from transexplain.store.database import Database
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
    join = load(facts.corpus) if facts.corpus else None
    values, to_reference = measured(gathered, chosen, join, plan.seed)
    rows = list(map(_row, known.items(), chosen, values))
    if (reference := _best(rows, facts)) is not None:
        rows = [
            replace(row, difference=difference)
            for row, difference in zip(rows, to_reference(reference), strict=True)
        ]
    placed = _placed(rows, facts)
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
        x=next((axis_of(spec, len(row.curve)) for row in placed if row.curve), ()),
        best=None if reference is None else rows[reference].method,
        rows=placed,
        pair=facts.pair,
    )


def _row(known: tuple[str, RowKind], column: ScoreColumn, value: MethodValue) -> Row:
    """One method without its rank and its difference; with the words that a metric lists."""
    missing, scored = dict(column.missing.most_common()), value.scored
    if scored.value is None and value.items:
        missing[scored.reason] = value.items
    word_scores = scored.detail.get("scores", {})
    return Row(
        method=known[0],
        kind=known[1],
        rank=None,
        items=value.items,
        missing=missing,
        mean=scored.value,
        interval=value.interval,
        difference=None,
        curve=scored.curve,
        # of the two numbers of each item, whatever the order of the items
        correlation=RelevanceSums.of(column.pairs[::2], column.pairs[1::2]).correlation,
        points=column.points(POINTS),
        lists=tuple(
            ClassWords(class_name=name, words=tuple(words), scores=tuple(word_scores.get(name, ())))
            for name, words in scored.detail.get("lists", {}).items()
        ),
        shared=tuple(
            SharedWords(classes=tuple(pair["classes"]), words=tuple(pair["words"]))
            for pair in scored.detail.get("shared", ())
        ),
        spread=value.spread,
    )


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
    manifest, damaged = manifest_of(db, run.id), unreadable(db, run.id)
    evaluated = of_run(
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
