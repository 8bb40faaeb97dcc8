"""The table of one metric for one target, and an evaluation in one record and in sentences."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace

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
from transexplain.reports.phrasing import named, probability, signed, span, things, value
from transexplain.reports.report_section import Statement, StatementKind, of_run
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
    return (
        *_coverage(evaluated, tables),
        *(line for table in tables for line in _of_table(table, len(evaluated.targets) > 1)),
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


def _coverage(evaluated: EvaluatedRun, tables: Sequence[ScoreTable]) -> Iterator[Statement]:
    counted = things(evaluated.modality, evaluated.measured)
    verb = "was" if evaluated.measured == 1 else "were"
    failed = f"; {evaluated.failed:,} failed" if evaluated.failed else ""
    yield Statement(kind="fact", text=f"Explanations of {counted} {verb} measured{failed}.")
    if evaluated.state != "done":
        yield Statement(
            kind="problem",
            text=f"The run is {evaluated.state}: everything below is about what is there so far.",
        )
    partly = {
        row.method: sum(row.missing.values())
        for table in tables
        for row in table.rows
        if row.missing and row.items
    }
    if partly:
        yield Statement(
            kind="problem",
            text=f"Not every item could be measured by every metric for {named(list(partly))}; "
            "the tables count them with their reasons.",
        )


def _of_table(table: ScoreTable, name_target: bool) -> Iterator[Statement]:
    where = f"{table.title}, {table.target}" if name_target else table.title
    if table.pair:
        yield from _of_pairs(table, where)
        return
    best = next((row for row in table.rows if row.method == table.best), None)
    if best is None or best.mean is None:
        if table.better == "neither":
            return
        yield Statement(kind="unknown", text=f"{where}: no method could be measured.")
        return
    interval = f", 95\u00a0% interval {span(best.interval)}" if best.interval else ""
    yield Statement(
        kind=_kind(table),
        text=f"{where}: {best.method} is best ({value(best.mean)}{interval}; "
        f"{best.items:,} item{'' if best.items == 1 else 's'}). "
        f"{' '.join([*_runners_up(table), *_random(table)])}".strip(),
    )


def _of_pairs(table: ScoreTable, where: str) -> Iterator[Statement]:
    correlations = [f"{row.method} {correlation(row)}" for row in table.rows if correlation(row)]
    same = [row.method for row in table.rows if row.items > 1 and not correlation(row)]
    if correlations:
        constant = f" {named(same)}: one of both is the same for every item." if same else ""
        yield Statement(
            kind="fact",
            text=f"{where}: correlation of {table.pair[0]} and {table.pair[1]}: "
            f"{', '.join(correlations)}.{constant}",
        )


def _kind(table: ScoreTable) -> StatementKind:
    if any(_beats(table, row) is False for row in table.rows if row.kind == "random"):
        return "problem" if table.of_content else "fact"
    lead = [beyond_chance(row.difference) for row in _rivals(table)]
    return "good" if lead and all(lead) else "fact"


def _rivals(table: ScoreTable) -> list[Row]:
    return [row for row in table.rows if row.kind == "method" and row.method != table.best]


def _runners_up(table: ScoreTable) -> Iterator[str]:
    if not table.of_content:
        return  # what is cheap is measured by batch, so that items are no independent draws
    compared = [row for row in _rivals(table) if row.difference is not None]
    unsure = [row.method for row in compared if beyond_chance(row.difference) is False]
    unknown = [row.method for row in compared if beyond_chance(row.difference) is None]
    if unsure:
        yield f"Its lead over {named(unsure)} may be chance."
    elif compared and not unknown:
        runner = compared[0]
        by = f" ({p_value(runner.difference)})" if p_value(runner.difference) else ""
        yield f"Its lead over {runner.method}{by} and all others is beyond chance."
    if unknown:
        yield f"Too few items to judge its lead over {named(unknown)}."


def _random(table: ScoreTable) -> Iterator[str]:
    if not table.of_content:
        return
    for row in table.rows:
        if row.kind == "random" and row.difference is not None:
            beats = _beats(table, row)
            if beats is None:
                yield f"Too few items to compare it with {row.method}."
            elif beats:
                yield f"It beats {row.method} beyond chance."
            else:
                yield f"It does not beat {row.method} beyond chance."


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


def notes(summary: EvaluationSummary) -> Iterator[str]:
    """Yield a paragraph each on what the numbers are and what they rest on."""
    evaluated, tables = summary.evaluated, summary.tables
    stand_ins = {baseline(t.baseline, evaluated.modality) for t in tables if t.baseline}
    if stand_ins:
        yield (
            "Curves run the model on items with a part hidden, and the numbers depend on what "
            f"replaces the hidden part. Here: {'; '.join(sorted(stand_ins))}."
        )
    yield (
        "Intervals are 95\u00a0% percentile bootstrap intervals over items, "
        f"{evaluated.resamples:,} resamples, seed {evaluated.seed}; with fewer than {FEWEST} items "
        "there is none. They say how much a mean would differ with other items of this kind, not "
        "with another model."
    )
    yield (
        "Differences are to the method of the best mean among those that were measured on at least "
        "half as many items as the most measured one, item by item, on the items that both have. "
        "P-values permute the signs of the differences (all of them, or "
        f"{evaluated.permutations:,} draws) and are adjusted over the methods of a table by "
        "Benjamini and Hochberg, not over metrics. The best was chosen by the same items that it "
        "is compared on, so a narrow lead is a little overstated."
    )
    yield from _special(tables)
    yield (
        "Random relevance is a floor: a method that does not beat it gives no information about "
        "what the model uses. The human rationale (oracle) is no ceiling: a model may use other "
        "evidence than people do."
    )


def _every(tables: Sequence[ScoreTable]) -> Iterator[Row]:
    return (row for table in tables for row in table.rows)


def _special(tables: Sequence[ScoreTable]) -> Iterator[str]:
    if any(table.corpus for table in tables):
        yield (
            "The interval of a metric whose value is of all items together comes from its values "
            f"on {HALVES} random halves of the items; its differences have one from the same "
            "halves and no p-value."
        )
    if len({row.items for table in tables for row in table.rows}) > 1:
        yield (
            "Methods were measured on different numbers of items, which stand in each row: means "
            "are over all of a method's items, differences over common ones."
        )
    if drawn := max((row.spread.draws for row in _every(tables) if row.spread), default=0):
        yield (
            f"Random relevance is drawn {drawn} times: its value of an item is the mean over the "
            "draws, and the standard deviation (SD) is that of the draws' values over all items, "
            "which says how far one draw may lie from it. Metrics that do not depend on where the "
            "relevance lies, and those that explain again, have the first draw alone."
        )
    if any(row.kind == "prediction" for row in _every(tables)):
        yield (
            "The row `prediction` of the runtime is a forward pass alone, which every method needs "
            "as well: what is beyond it is the price of the explanation."
        )
    if any(table.pair for table in tables):
        yield (
            "Conservation is |logit - sum of relevance| / |logit|, with the relevance of all "
            "positions, special ones too. Methods whose unit is no logit (attention, Grad-CAM, "
            "random) promise no such sum: they are compared as they are, and their correlation "
            "with the logit says more than the mean, which a few logits near 0 decide. What biases "
            "take and rules lose is missing from the sum; whether the ledger accounts for it is "
            "another metric, `ledger-gap`."
        )
    if any(table.metric == "runtime" for table in tables):
        yield (
            "Runtime is an item's share of its batch's wall clock: items of a batch are not "
            "independent, so its intervals are too narrow and its p-values too small."
        )
