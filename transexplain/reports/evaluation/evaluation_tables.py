"""The table of one metric for one target, and an evaluation in one record and in sentences."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from typing import Any

from transexplain.errors import ConfigurationError
from transexplain.evaluating.metrics import axis_of, curve_of, metric_facts
from transexplain.evaluating.metrics.metric_table import MetricFacts
from transexplain.provenance.manifest import manifest_of
from transexplain.registry import load
from transexplain.reports.evaluation.score_statistics import (
    FEWEST,
    HALVES,
    LEVEL,
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
    ScoreDifference,
    ScoreTable,
    SharedWords,
    gather,
    measured,
)
from transexplain.reports.page import paragraphs
from transexplain.reports.phrasing import probability, signed
from transexplain.reports.report_section import Statement, StatementKind, of_run, statements
from transexplain.reports.sections.item_fates import unreadable, unreadable_statements
from transexplain.store import blocks, readers, runs
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
        tables, gathered = tables_of(readers.iter_scores(db, run.id), plan)
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


def p_value(difference: ScoreDifference | None) -> str:
    """The adjusted p of a difference, as `p = 0.012`; nothing where there is no test."""
    return probability(None if difference is None else difference.p_adjusted)


def correlation(row: Row) -> str:
    """The correlation of a row's pairs in two decimals; nothing where there is none."""
    return "" if row.correlation is None else signed(row.correlation, 2)


def scale(table: ScoreTable) -> float:
    """The largest size of a mean in a table: all its numbers get the decimals of that one."""
    return max((abs(row.mean) for row in table.rows if row.mean is not None), default=0.0)


def headline(evaluated: EvaluatedRun, tables: Sequence[ScoreTable]) -> tuple[Statement, ...]:
    """The sentences at the top of a report."""
    rows = [row for table in tables for row in table.rows]
    return tuple(
        statements(
            "evaluation_headline.txt.j2",
            evaluated=evaluated,
            tables=tables,
            partly=list(dict.fromkeys(row.method for row in rows if row.missing and row.items)),
            kind=_kind,
            compared=_compared,
            beats=_beats,
            correlation=correlation,
            p_value=p_value,
        )
    )


def beyond_chance(difference: ScoreDifference | None) -> bool | None:
    """Return whether a difference is beyond chance; None: unknown.

    By the adjusted p; where there is no test, by an interval that excludes 0. On so few items that
    there is no interval no test could decide.
    """
    if difference is None or difference.interval is None:
        return None
    if difference.p_adjusted is not None:
        return difference.p_adjusted < LEVEL
    low, high = difference.interval
    return low > 0 or high < 0


def _kind(table: ScoreTable) -> StatementKind:
    if any(_beats(table, row) is False for row in table.rows if row.kind == "random"):
        return "problem" if table.of_content else "fact"
    lead = [beyond_chance(row.difference) for row in _rivals(table)]
    return "good" if lead and all(lead) else "fact"


def _rivals(table: ScoreTable) -> list[Row]:
    return [row for row in table.rows if row.kind == "method" and row.method != table.best]


def _compared(table: ScoreTable) -> dict[str, Any]:
    """The rivals of the best method by what is known of its lead; the nearest where it is sure."""
    known = [row for row in _rivals(table) if row.difference is not None]
    by: dict[bool | None, list[str]] = {True: [], False: [], None: []}
    for row in known:
        by[beyond_chance(row.difference)].append(row.method)
    sure = known and not by[False] and not by[None]
    return {"unsure": by[False], "unknown": by[None], "nearest": known[0] if sure else None}


def _beats(table: ScoreTable, row: Row) -> bool | None:
    """Return whether the best is better than `row` beyond chance; None: unknown."""
    sure = beyond_chance(row.difference)
    if sure is None or row.difference is None:
        return None
    better = row.difference.mean < 0 if table.better == "higher" else row.difference.mean > 0
    return sure and better


_BASELINES = {
    ("auto", "text"): "the mask token, else the unknown token, else padding (auto)",
    ("mask", "text"): "the mask token",
    ("unk", "text"): "the unknown token",
    ("pad", "text"): "the padding token",
    ("remove", "text"): "nothing: hidden tokens are not attended to (remove)",
    ("auto", "image"): "0 in the model's input, the mean colour (auto)",
    ("mean", "image"): "0 in the model's input, the mean colour",
    ("black", "image"): "black",
    ("blur", "image"): "the picture, blurred",
    ("auto", "nodes"): "nothing: hidden nodes are removed, else their features are 0 (auto)",
    ("remove", "nodes"): "nothing: hidden nodes are removed, with their rows and columns (remove)",
    ("zero", "nodes"): "nodes whose features are 0",
}


def baseline(name: str, modality: str) -> str:
    """Return what stands in the place of hidden positions, in words."""
    return _BASELINES.get((name, modality), f"token {name}" if name.isdigit() else name)


def notes(summary: EvaluationSummary) -> tuple[str, ...]:
    """A paragraph each on what the numbers are and what they rest on."""
    evaluated, tables = summary.evaluated, summary.tables
    stand_ins = {baseline(t.baseline, evaluated.modality) for t in tables if t.baseline}
    return paragraphs(
        "evaluation_notes.txt.j2",
        evaluated=evaluated,
        tables=tables,
        stand_ins=sorted(stand_ins),
        fewest=FEWEST,
        halves=HALVES,
    )
