"""What the tables say, in plain sentences: the best method, and whether its lead is luck."""

from collections.abc import Iterator, Sequence

from transexplain.reports.evaluation.records import Difference, Evaluated, Row, Table
from transexplain.reports.evaluation.statistics import LEVEL
from transexplain.reports.evaluation.wording import p_value, span, value
from transexplain.reports.records import Statement, StatementKind
from transexplain.reports.wording import named, things


def headline(evaluated: Evaluated, tables: Sequence[Table]) -> tuple[Statement, ...]:
    """The sentences at the top of a report."""
    return (
        *_coverage(evaluated, tables),
        *(line for table in tables for line in _of_table(table, len(evaluated.targets) > 1)),
    )


def beyond_chance(difference: Difference | None) -> bool | None:
    """Whether a difference is beyond chance; None: it cannot be said.

    By the adjusted p; where there is no test, by an interval that excludes 0. On so few items that
    there is no interval no test could tell.
    """
    if difference is None or difference.interval is None:
        return None
    if difference.p_adjusted is not None:
        return difference.p_adjusted < LEVEL
    low, high = difference.interval
    return low > 0 or high < 0


def _coverage(evaluated: Evaluated, tables: Sequence[Table]) -> Iterator[Statement]:
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


def _of_table(table: Table, name_target: bool) -> Iterator[Statement]:
    where = f"{table.title}, {table.target}" if name_target else table.title
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


def _kind(table: Table) -> StatementKind:
    if any(_beats(table, row) is False for row in table.rows if row.kind == "random"):
        return "problem" if table.of_content else "fact"
    lead = [beyond_chance(row.difference) for row in _rivals(table)]
    return "good" if lead and all(lead) else "fact"


def _rivals(table: Table) -> list[Row]:
    return [row for row in table.rows if row.kind == "method" and row.method != table.best]


def _runners_up(table: Table) -> Iterator[str]:
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


def _random(table: Table) -> Iterator[str]:
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


def _beats(table: Table, row: Row) -> bool | None:
    """Whether the best is better than `row` beyond chance; None: it cannot be said."""
    sure = beyond_chance(row.difference)
    if sure is None or row.difference is None:
        return None
    better = row.difference.mean < 0 if table.better == "higher" else row.difference.mean > 0
    return sure and better
