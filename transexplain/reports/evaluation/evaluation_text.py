"""The numbers and sentences of an evaluation report."""

from collections.abc import Iterator, Sequence

from transexplain.reports.evaluation.score_statistics import (
    FEWEST,
    HALVES,
    LEVEL,
    EvaluatedRun,
    EvaluationSummary,
    Row,
    ScoreDifference,
    ScoreTable,
)
from transexplain.reports.phrasing import named, probability, signed, span, things, value
from transexplain.reports.report_section import Statement, StatementKind


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
