"""Exports a run as a part of the technical documentation of Annex IV of Regulation (EU) 2024/1689.

The points are named in our own words; what each asks for stands in the Regulation. The data of an
audit are testing data, so they belong to point 2(g); 2(d) is about the data of training.
"""

from collections.abc import Iterable, Iterator, Sequence

from transexplain.extras.filings import bias_scenarios, impact_by_category
from transexplain.extras.filings.impact_by_category import ImpactByCategory, impact_of
from transexplain.extras.filings.local_law_144 import data_facts, impact_tables
from transexplain.reports.exports.export_run import Redaction, explained_summary
from transexplain.reports.exports.run_facts import (
    accuracy,
    checks,
    compared,
    coverage,
    difference,
    errors,
    untested,
    verdict_counts,
    verdicts,
)
from transexplain.reports.page import text_rows
from transexplain.reports.phrasing import markdown_text, method_of, short, sureness
from transexplain.reports.report_records import Summary
from transexplain.store.database import Database
from transexplain.types.plans import AuditRun


def export(db: Database, run: AuditRun, redaction: Redaction | None = None) -> str:
    """Raises ConfigurationError for an evaluation."""
    return render(explained_summary(db, run, redaction, "Annex IV block"))


#: kind of a paragraph of the template -> how it begins in Markdown
_BEGINNINGS = {"title": "# ", "section": "\n## ", "text": "\n", "fact": "- ", "point": "- "}


def render(summary: Summary) -> str:
    """The block, in Markdown."""
    audited, groups, confusion = summary.audited, summary.groups, summary.confusion
    record = impact_of(summary)
    impact = record and [*data_facts(record), *impact_by_category.lines(summary)]
    rows = text_rows(
        "annex_iv.txt.j2",
        s=summary,
        audited=audited,
        groups=groups,
        short=short,
        sureness=sureness,
        coverage=coverage(summary),
        labelled=[
            (label, sum(filter(None, row)), row.count(None))
            for label, row in zip(confusion.labels, confusion.counts, strict=True)
        ],
        method=method_of(audited.method, summary.approximates),
        checks=list(checks(summary)),
        accuracy=accuracy(summary),
        counts=verdict_counts(groups),
        verdicts=lambda *which: list(verdicts(*which)),
        differences=[difference(row, audited) for row in compared(groups) if row.flagged],
        impact=impact,
        errors=list(errors(groups)),
        scenarios=list(bias_scenarios.lines(summary)),
        untested=list(untested(summary)),
    )
    return "\n".join(_lines(rows, record)) + "\n"


def _lines(rows: Iterable[Sequence[str]], record: ImpactByCategory | None) -> Iterator[str]:
    """The rows in Markdown; a section without any says that nothing was measured."""
    before = "title"
    for kind, text in rows:
        if kind == "tables" and record is not None:
            yield from impact_tables(record, 3)
        else:
            if before == "section":
                yield ""
                if kind == "section":
                    yield "- Nothing was measured here."
            yield _BEGINNINGS[kind] + (markdown_text(text) if kind == "fact" else text)
            before = kind
