"""Selection rates, scoring rates and impact ratios by sex, by ethnicity, and by both.

As New York City's Local Law 144 defines them (6 RCNY 5-300): the rate of a category over that of
the category with the highest one. Unlike the rates of `outcomes`, which compare who is mentioned,
these are about the people that the items are of: the data says in columns who they are.
"""

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from math import nan
from operator import itemgetter
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from transexplain.analysis.groups.answers import Answer, favourable_answers, probability
from transexplain.analysis.groups.intervals import Interval, Share, ratio
from transexplain.reports.phrasing import percent
from transexplain.reports.redaction import RedactionRules, Redactor, is_large, published
from transexplain.reports.report_section import Section, SectionSource, Statement
from transexplain.reports.tables import Column, Table, record_columns
from transexplain.store import readers, runs
from transexplain.types.plans import ImpactPlan

By = Literal["sex", "ethnicity", "sex and ethnicity"]
#: predicted class, logits (C,) or none, metadata
Answered = tuple[str, Sequence[float], Mapping[str, str]]
_Key = tuple[str | None, str | None]  #: sex and ethnicity; None: unknown
_TOGETHER = 4096  #: items whose log-odds are computed at once


@dataclass(frozen=True, kw_only=True, slots=True)
class ImpactRow:
    """One category of people, for one favourable answer."""

    sex: str  #: "": the table is not by sex
    ethnicity: str  #: "": the table is not by ethnicity
    items: int
    share: float  #: of the items of the table
    excluded: bool  #: a smaller share than the plan asks for: no ratios
    selected: int | None  #: predicted to have the answer; None: too few to be published
    rate: float | None  #: selected / items
    interval: Interval | None  #: of the rate, 95 %, Wilson
    ratio: float | None  #: rate over the highest rate of a category that is not excluded
    ratio_interval: Interval | None  #: 95 %; its end may be infinite; None: it is the highest
    above: int | None  #: items with a score above the median; None: there are no scores
    scoring_rate: float | None  #: above / items
    scoring_ratio: float | None  #: as `ratio`, of scoring rates

    @property
    def category(self) -> str:
        """The name of the category in the report."""
        return ", ".join(part for part in (self.sex, self.ethnicity) if part)


@dataclass(frozen=True, kw_only=True, slots=True)
class ImpactTable:
    """The categories of one kind."""

    by: By
    items: int  #: whose category is known
    unknown: int | None  #: whose category is not; in no row. None: too few to be published
    rows: tuple[ImpactRow, ...]  #: sorted by sex and ethnicity


@dataclass(frozen=True, kw_only=True, slots=True)
class ImpactAnswer:
    """The tables of one favourable answer."""

    answer: str
    median: float | None  #: log-odds of the answer, over all items; None: not all have logits
    median_probability: float | None  #: the same as a probability
    tables: tuple[ImpactTable, ...]


#: log-odds of the items of one sex and ethnicity, and how many of them have the answer
_Cells = Mapping[_Key, tuple["array[float]", int]]


def impact_answers(
    plan: ImpactPlan,
    answers: Sequence[Answer],
    classes: Sequence[str],
    items: Iterable[Answered],
) -> tuple[ImpactAnswer, ...]:
    """The tables of every favourable answer, in the order of `answers`.

    Memory grows by 8 bytes for each item and answer: the median is the exact one.
    """
    unknown = {value.strip().casefold() for value in plan.unknown} | {""}

    def category(meta: Mapping[str, str], column: str | None) -> str | None:
        value = str(meta.get(column) or "").strip() if column is not None else ""
        return None if value.casefold() in unknown else value

    scores: dict[_Key, list[array[float]]] = {}
    selected: dict[_Key, list[int]] = {}
    rest, width = iter(items), len(classes)
    while some := list(islice(rest, _TOGETHER)):
        # an item without all logits has scores that are not a number
        full = [logits if len(logits) == width else (nan,) * width for _, logits, _ in some]
        odds = [answer.log_odds(np.array(full, dtype=np.float64)) for answer in answers]
        for row, (predicted, _, meta) in enumerate(some):
            key = category(meta, plan.sex), category(meta, plan.ethnicity)
            if key not in scores:
                scores[key], selected[key] = [array("d") for _ in answers], [0] * len(answers)
            for number, answer in enumerate(answers):
                selected[key][number] += answer.selects(predicted, classes)
                scores[key][number].append(odds[number][row])
    return tuple(
        _of_answer(plan, answer, {key: (of[n], selected[key][n]) for key, of in scores.items()})
        for n, answer in enumerate(answers)
    )


def _of_answer(plan: ImpactPlan, answer: Answer, cells: _Cells) -> ImpactAnswer:
    scores = np.concatenate([np.zeros(0), *(of_cell for of_cell, _ in cells.values())])
    median = float(np.median(scores)) if scores.size and not np.isnan(scores).any() else None
    return ImpactAnswer(
        answer=answer.name,
        median=median,
        median_probability=None if median is None else float(probability(median)),
        tables=tuple(_impact_table(plan, cells, median, by) for by in _kinds(plan)),
    )


def _kinds(plan: ImpactPlan) -> Iterator[By]:
    if plan.sex is not None:
        yield "sex"
    if plan.ethnicity is not None:
        yield "ethnicity"
    if plan.sex is not None and plan.ethnicity is not None:
        yield "sex and ethnicity"


_PARTS: Mapping[By, Callable[[_Key], _Key]] = {
    "sex": lambda key: (key[0], ""),
    "ethnicity": lambda key: ("", key[1]),
    "sex and ethnicity": lambda key: key,
}


def _impact_table(plan: ImpactPlan, cells: _Cells, median: float | None, by: By) -> ImpactTable:
    sums: dict[tuple[str, str], NDArray[np.int64]] = {}
    unknown = 0
    for key, (scores, selected) in cells.items():
        sex, ethnicity = _PARTS[by](key)
        if sex is None or ethnicity is None:
            unknown += len(scores)
            continue
        above = 0 if median is None else int(np.count_nonzero(np.asarray(scores) > median))
        total = sums.setdefault((sex, ethnicity), np.zeros(3, dtype=np.int64))
        total += (len(scores), selected, above)
    totals: dict[tuple[str, str], list[int]] = {key: sums[key].tolist() for key in sorted(sums)}
    rows = tuple(_rows(totals, plan.exclude_below, scored=median is not None))
    return ImpactTable(by=by, items=sum(n for n, *_ in totals.values()), unknown=unknown, rows=rows)


def _rows(
    totals: Mapping[tuple[str, str], Sequence[int]], least: float, *, scored: bool
) -> Iterator[ImpactRow]:
    """`totals`: of each category its items, those selected and those above the median."""
    items = sum(n for n, *_ in totals.values())
    shares = {
        key: Share(count=selected, total=n, effective=float(n), freedom=float("inf"))
        for key, (n, selected, _) in totals.items()
    }
    kept = [key for key, share in shares.items() if share.total / items >= least]
    # of several with the highest rate the largest is what intervals are against
    best = max(kept, key=lambda key: (shares[key].value, shares[key].total), default=None)
    reference = shares[best] if best is not None and shares[best].count else None
    scoring = max((totals[key][2] / totals[key][0] for key in kept), default=0.0) if scored else 0.0
    for key, (n, selected, above) in totals.items():
        share, against = shares[key], reference if key in kept else None
        yield ImpactRow(
            sex=key[0],
            ethnicity=key[1],
            items=n,
            share=n / items,
            excluded=key not in kept,
            selected=selected,
            rate=share.value,
            interval=share.interval(),
            ratio=share.value / against.value if against else None,
            ratio_interval=ratio(share, against) if against and key != best else None,
            above=above if scored else None,
            scoring_rate=above / n if scored else None,
            scoring_ratio=above / n / scoring if scoring and key in kept else None,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class ImpactByCategory:
    """The tables of every favourable answer, and what they rest on."""

    columns: Mapping[str, str]  #: `sex` and `ethnicity`, where given -> column of the data
    unknown_values: tuple[str, ...]  #: besides the empty one
    exclude_below: float  #: share of the items below which a category has no ratio
    limit: float  #: smallest impact ratio within practical limits, `groups.practical.impact_ratio`
    items: int  #: explained, which the tables count
    left_out: int  #: failed or not explained yet
    date: float  #: when the run ended, or was begun where it has not; seconds since the epoch
    exclusion_reason: str
    data_source: str
    data_date: str
    in_use_since: str
    missing: tuple[str, ...]  #: what a published summary needs and the specification does not say
    answers: tuple[ImpactAnswer, ...]

    def compared(self, *, scored: bool) -> Iterator[tuple[list[tuple[float, str]], str]]:
        """Yield of each table its impact ratios, each with what it is of, and why it has none.

        `scored`: by scores, not by selections. The reason is "" where categories are compared.
        """
        for answer in self.answers:
            for table in answer.tables:
                ratios = [ratio for row in table.rows if (ratio := _ratio(row, answer, scored))]
                short = len(ratios) < COMPARED
                yield ratios, _no_ratios(table, answer, scored) if short else ""


COMPARED = 2  #: categories that a table needs to compare any


def _ratio(row: ImpactRow, answer: ImpactAnswer, scored: bool) -> tuple[float, str] | None:
    """A category's ratio, and what it is of; None: the report has none."""
    value, count = (row.scoring_ratio, row.above) if scored else (row.ratio, row.selected)
    if value is None or count is None:
        return None
    deed = "score above the median" if scored else "are selected"
    return value, f"{row.category} for {answer.answer}, {count:,} of {row.items:,} {deed}"


def _no_ratios(table: ImpactTable, answer: ImpactAnswer, scored: bool) -> str:
    """Why a table does not compare categories."""
    large = sum(not row.excluded for row in table.rows)
    if large < COMPARED:
        seen = f"{len(table.rows)} in the data, {large} of them large enough"
        why = f"{seen}, at least {COMPARED} are needed"
    elif scored:
        why = "the items have no scores, or none above the median"
    else:
        why = "nobody was selected"
    return f"no impact ratios by {table.by} for {answer.answer}: {why}"


def _collect(source: SectionSource) -> ImpactByCategory | None:
    """None where the plan asks for none, or before an item is explained."""
    run = source.run
    plan, state = run.plan.impact, runs.progress(source.db, run.id)
    if plan is None or not state.items_done:
        return None
    items = readers.iter_answers(source.db, run.id)
    classes, answers = run.plan.model.classes, favourable_answers(run.plan)
    tables = impact_answers(plan, answers, classes, items)
    return ImpactByCategory(
        columns={n: c for n in ("sex", "ethnicity") if (c := getattr(plan, n)) is not None},
        unknown_values=plan.unknown,
        exclude_below=plan.exclude_below,
        limit=run.plan.matters.impact_ratio,
        items=state.items_done,
        left_out=state.items_total - state.items_done,
        date=run.finished or run.created,
        exclusion_reason=plan.exclusion_reason,
        data_source=plan.data_source,
        data_date=plan.data_date,
        in_use_since=plan.in_use_since,
        missing=tuple(_missing(plan, tables)),
        answers=tables,
    )


def _missing(plan: ImpactPlan, answers: Sequence[ImpactAnswer]) -> Iterator[str]:
    for name, other in (("sex", plan.ethnicity), ("ethnicity", plan.sex)):
        if getattr(plan, name) is None:
            assert other is not None  # the specification asks for one
            yield f"categories of {name}, and so the intersections (groups.impact.{name})"
    if not plan.data_source:
        yield "the source of the data (groups.impact.data_source)"
    if not plan.data_date:
        yield "the day or period of the data (groups.impact.data_date)"
    if not plan.in_use_since:
        yield "since when the model is in use (groups.impact.in_use_since)"
    if not plan.exclusion_reason and any(row.excluded for row in rows_of(answers)):
        yield "why small categories are left out (groups.impact.exclusion_reason)"
    if any(answer.median is None for answer in answers):
        yield "scoring rates: the logits of some items are not known"


def rows_of(answers: Iterable[ImpactAnswer]) -> Iterator[ImpactRow]:
    """Every category of every table."""
    return (row for answer in answers for table in answer.tables for row in table.rows)


def impact_of(report: Any) -> ImpactByCategory | None:
    """The record that a summary has; None: no categories were given."""
    record: ImpactByCategory | None = report.sections.get("impact")
    return record


def lowest_sentence(answer: ImpactAnswer, limit: float) -> str:
    """The lowest ratios of an answer, by rates and by scores."""
    return " ".join((_lowest_rate(answer, limit), *_lowest_score(answer)))


def _lowest_rate(answer: ImpactAnswer, limit: float) -> str:
    known = [(row.ratio, row) for row in rows_of([answer]) if row.ratio is not None]
    if not known:
        # counts that are not published may be above 0
        nobody = all(row.selected == 0 for row in rows_of([answer]))
        why = "nobody was selected" if nobody else "too few people to publish one"
        return f"No category has an impact ratio for {answer.answer}: {why}."
    (least, row), below = min(known, key=itemgetter(0)), sum(ratio < limit for ratio, _ in known)
    return (
        f"Impact ratios by category for {answer.answer}: the lowest is {least:.3f} "
        f"({row.category}, {percent(row.rate or 0.0)} of {row.items:,} selected), {below} of "
        f"{len(known)} {'is' if below == 1 else 'are'} below {limit:g}."
    )


def _lowest_score(answer: ImpactAnswer) -> Iterator[str]:
    rows = rows_of([answer])
    known = [(row.scoring_ratio, row) for row in rows if row.scoring_ratio is not None]
    if known:
        least, row = min(known, key=itemgetter(0))
        yield f"By scores the lowest is {least:.3f} ({row.category})."


def _sentences(report: Any) -> Iterable[Statement]:
    record = impact_of(report)
    if record is None:
        return
    for answer in record.answers:
        intervals = [row.ratio_interval for row in rows_of([answer])]
        beyond_chance = any(ends is not None and ends[1] < record.limit for ends in intervals)
        yield Statement(
            kind="problem" if beyond_chance else "fact",
            text=lowest_sentence(answer, record.limit),
        )


def _tables(record: ImpactByCategory) -> Iterator[Table]:
    columns = (
        Column("answer", lambda row: row[0][0]),
        Column("by", lambda row: row[0][1]),
        *record_columns(ImpactRow, 1),
    )
    rows = (
        ((answer.answer, table.by), row)
        for answer in record.answers
        for table in answer.tables
        for row in table.rows
    )
    yield Table(name="impact_ratios", columns=columns, rows=rows)


def lines(summary: Any) -> Iterator[str]:
    """The lowest impact ratio by category of person, for every favourable answer."""
    record = impact_of(summary)
    if record is not None:
        yield from (lowest_sentence(answer, record.limit) for answer in record.answers)


def _published(value: Any, row: ImpactRow, redactor: Redactor) -> Any:
    """Nothing about answers where those selected, or those not, are few."""
    return value if is_large(row.selected or 0, row.items, redactor.fewest) else None


def _scores_published(value: Any, row: ImpactRow, redactor: Redactor) -> Any:
    return value if is_large(row.above or 0, row.items, redactor.fewest) else None


def _rows_published(rows: tuple[ImpactRow, ...], _: ImpactTable, redactor: Redactor) -> Any:
    """Ratios are kept only where their reference category is published: they reveal its rate."""
    return tuple(redactor.within(_without_ratios(rows, redactor.fewest)))


def _without_ratios(rows: tuple[ImpactRow, ...], fewest: int) -> tuple[ImpactRow, ...]:
    best = [row for row in rows if row.ratio == 1.0]
    highest = [row for row in rows if row.scoring_ratio == 1.0]
    if not any(
        row.items >= fewest and is_large(row.selected or 0, row.items, fewest) for row in best
    ):
        rows = tuple(replace(row, ratio=None, ratio_interval=None) for row in rows)
    if not any(
        row.items >= fewest and is_large(row.above or 0, row.items, fewest) for row in highest
    ):
        rows = tuple(replace(row, scoring_ratio=None) for row in rows)
    return rows


def _unknown_published(count: int, _: ImpactTable, redactor: Redactor) -> int | None:
    return count if count == 0 or count >= redactor.fewest else None


def _median_published(
    value: float | None, impact_answer: ImpactAnswer, redactor: Redactor
) -> float | None:
    table = impact_answer.tables[0]
    return value if table.items + (table.unknown or 0) >= redactor.fewest else None


_OF_SELECTION = ("selected", "rate", "interval", "ratio", "ratio_interval")
_OF_SCORES = ("above", "scoring_rate", "scoring_ratio")
_OF_FEW: Mapping[str, Any] = {
    **dict.fromkeys(_OF_SELECTION, _published),
    **dict.fromkeys(_OF_SCORES, _scores_published),
}
_RULES: Mapping[type, RedactionRules] = {
    ImpactByCategory: published(
        "columns unknown_values missing exclusion_reason data_source data_date in_use_since"
    ),
    ImpactAnswer: published(
        "answer", median=_median_published, median_probability=_median_published
    ),
    ImpactTable: published(unknown=_unknown_published, rows=_rows_published),
    ImpactRow: published("sex ethnicity", least="items", **_OF_FEW),
}


SECTION = Section(
    template="impact_by_category.html.j2",
    links=(("impact", "Impact ratios"),),
    redaction=_RULES,
    present=lambda report: impact_of(report) is not None,
    drawing=lambda _report: {"lowest_sentence": lowest_sentence},
    sentences=_sentences,
    tables=_tables,
    record=ImpactByCategory,
    collect=_collect,
)
