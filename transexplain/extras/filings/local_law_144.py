"""Exports a run as the summary of results that New York City's Local Law 144 has employers publish.

The rules (6 RCNY 5-300 to 5-304) are named in our own words; what they ask for stands there.
"""

from collections.abc import Iterator

from transexplain.errors import ConfigurationError
from transexplain.extras.filings.impact_by_category import (
    ImpactAnswer,
    ImpactByCategory,
    ImpactRow,
    impact_of,
)
from transexplain.reports.exports.export_run import Redaction, explained_summary
from transexplain.reports.exports.run_facts import coverage, redaction
from transexplain.reports.page import moment
from transexplain.reports.phrasing import markdown_text, percent, short, signed
from transexplain.reports.report_records import Summary
from transexplain.reports.tables import Column, Columns, markdown_table
from transexplain.store.database import Database
from transexplain.types.plans import AuditRun

_NO_ADVICE = (
    "These are figures of one audit in the form that the rules of Local Law 144 describe. It is "
    "no legal advice, and it is not the work of an independent auditor: whoever publishes it has "
    "to have one, who answers for the data, the categories and the figures."
)
#: what the rules ask for, and where it is
_RULES: tuple[tuple[str, str, str], ...] = (
    ("5-301(b)(1), (c)(2)", "a rate for each category", "columns Selection rate, Scoring rate"),
    ("5-301(b)(2), (c)(3)", "an impact ratio for each category", "columns Impact ratio"),
    (
        "5-301(b)(3), (c)(4)",
        "sex, race/ethnicity and intersections",
        "a table for each column given",
    ),
    ("5-301(b)(4)", "each group that people are classified into", "a part for each answer named"),
    ("5-301(b)(5), (c)(5)", "individuals of unknown category", "the line below each table"),
    ("5-301(c)(1)", "the median score of all", "the line above the tables"),
    ("5-301(d)", "small categories: count, rate, reason", "rows without ratios; the reason above"),
    ("5-303(a)(1)", "date; source and explanation of the data", "the list above, as it was given"),
    ("5-303(a)(2)", "since when the tool is used", "the list above, as it was given"),
    ("5-300, 5-301(a)", "an independent auditor, once a year", "not covered"),
    ("5-302", "historical data, or reasons for test data", "not checked"),
    ("5-304", "notices to candidates and employees", "not covered"),
)


def export(db: Database, run: AuditRun, redaction: Redaction | None = None) -> str:
    """Raises ConfigurationError for an evaluation, and for a run without categories."""
    summary = explained_summary(db, run, redaction, "summary by Local Law 144")
    record = impact_of(summary)
    if record is None:
        why = (
            "no item is explained yet"
            if run.plan.impact and not redaction
            else "too few items are explained to publish any"
            if run.plan.impact
            else "its specification names no columns of categories in groups.impact"
        )
        raise ConfigurationError(f"run {run.id} has no impact ratios by category: {why}")
    return render(summary, record)


def render(summary: Summary, record: ImpactByCategory) -> str:
    """The summary of results, in Markdown."""
    lines = [
        "# Selection rates and impact ratios (New York City, Local Law 144)",
        "",
        _NO_ADVICE,
        "",
        *(f"- {markdown_text(line)}" for line in _facts(summary, record)),
        *impact_tables(record, 2),
        "",
        "## What the rules ask for, and where it is",
        "",
        *markdown_table(_RULE_COLUMNS, _RULES),
    ]
    return "\n".join(lines) + "\n"


_RULE_COLUMNS: Columns[tuple[str, str, str]] = (
    Column("Rule (6 RCNY)", lambda row: row[0]),
    Column("Asks for", lambda row: row[1]),
    Column("Here", lambda row: row[2]),
)


def _facts(summary: Summary, record: ImpactByCategory) -> Iterator[str]:
    audited = summary.audited
    yield f"Tool: {short(audited.model)}, sha256 {audited.model_digest or 'unknown'}."
    yield from data_facts(record)
    yield f"Data set: {short(audited.dataset)}, sha256 {audited.fingerprint}."
    yield f"{coverage(summary)} Those without an answer are in no table."
    yield f"Run {audited.run_id}, TransExplain {audited.version}."
    if sentence := redaction(summary):
        yield sentence


def data_facts(record: ImpactByCategory) -> Iterator[str]:
    """Dates, sources and what is missing, in sentences."""
    yield f"Date of the audit: {moment(record.date)}."
    yield f"Source and explanation of the data: {_as_written(record.data_source)}."
    yield f"Date of the data: {_as_written(record.data_date)}."
    yield f"In use since: {_as_written(record.in_use_since)}."
    columns = ", ".join(f"{name} from {column}" for name, column in record.columns.items())
    yield f"Categories are columns of the data: {columns}."
    if record.exclude_below:
        yield (
            f"A category of less than {percent(record.exclude_below)} of a "
            f"table's items has no impact ratio. Reason: "
            f"{_as_written(record.exclusion_reason)}."
        )
    if record.missing:
        yield f"Missing: {'; '.join(record.missing)}."


def _as_written(text: str) -> str:
    """Return what a person wrote, as a part of a sentence."""
    return text.rstrip(".") or "not given"


def impact_tables(record: ImpactByCategory, level: int) -> Iterator[str]:
    """The tables of every favourable answer, under headings of this level and the next."""
    for answer in record.answers:
        yield from ("", f"{'#' * level} Favourable: {markdown_text(answer.answer)}")
        if answer.median is not None and answer.median_probability is not None:
            yield ""
            yield (
                f"Median score of all items: log-odds {signed(answer.median)}, probability "
                f"{percent(answer.median_probability)}."
            )
        for table in answer.tables:
            yield from ("", f"{'#' * (level + 1)} By {table.by}", "")
            yield from markdown_table(_columns(answer), table.rows)
            unknown = "few" if table.unknown is None else f"{table.unknown:,}"
            by = table.by.replace("and", "or")
            yield from ("", f"Items of unknown {by}, which are not in this table: {unknown}.")


def _columns(answer: ImpactAnswer) -> Columns[ImpactRow]:
    rates: Columns[ImpactRow] = (
        Column("Category", lambda row: row.category),
        Column("Items", lambda row: f"{row.items:,}", right=True),
        Column(
            "Selected", lambda row: "-" if row.selected is None else f"{row.selected:,}", right=True
        ),
        Column("Selection rate", lambda row: _rate(row.rate), right=True),
        Column("Impact ratio", lambda row: _ratio(row.ratio, row), right=True),
    )
    if answer.median is None:
        return rates
    return (
        *rates,
        Column("Scoring rate", lambda row: _rate(row.scoring_rate), right=True),
        Column("Impact ratio of scores", lambda row: _ratio(row.scoring_ratio, row), right=True),
    )


def _rate(value: float | None) -> str:
    return "-" if value is None else percent(value)


def _ratio(value: float | None, row: ImpactRow) -> str:
    if row.excluded:
        return "left out"
    return "-" if value is None else f"{value:.3f}"
