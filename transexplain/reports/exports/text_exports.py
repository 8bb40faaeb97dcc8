"""Exports that are one text file, and the published JSON Schemas."""

import json
from typing import Any

from transexplain.errors import ConfigurationError
from transexplain.registry import Registry
from transexplain.reports.exports import annex_iv as annex
from transexplain.reports.exports import local_law_144 as law
from transexplain.reports.exports import markdown as comment
from transexplain.reports.exports import model_card as card
from transexplain.reports.exports.export_run import Redaction, check_explained, summary_of
from transexplain.reports.report_records import Summary
from transexplain.reports.sections.impact_by_category import impact_of
from transexplain.store.database import Database
from transexplain.types.plans import AuditRun

SCHEMAS = Registry(
    "JSON document",
    {
        "report": "transexplain.reports.report_formats:schema",
        "evaluation": "transexplain.reports.evaluation.evaluation_formats:schema",
        "comparison": "transexplain.reports.runs_compared.comparison_summary:schema",
        "strategies": "transexplain.reports.strategies_report:schema",
    },
)


def schema_text(name: str) -> str:
    """The schema of one kind of document, as its file holds it."""
    return json.dumps(SCHEMAS.load(name)(), indent=1, sort_keys=True) + "\n"


def file_name(name: str) -> str:
    """Of the published schema, with the version of the document."""
    document: dict[str, Any] = SCHEMAS.load(name)()
    return f"{name}-v{document['properties']['schema_version']['const']}.schema.json"


def render(db: Database, run: AuditRun) -> str:
    """The schema of what `transexplain report --json` prints for this run."""
    return schema_text("evaluation" if run.plan.task == "evaluation" else "report")


def markdown(db: Database, run: AuditRun, redaction: Redaction | None = None) -> str:
    """See `exports.markdown`; raises ConfigurationError for an evaluation."""
    return comment.render(_summary(db, run, redaction, "summary for a pull request"))


def model_card(db: Database, run: AuditRun, redaction: Redaction | None = None) -> str:
    """See `exports.model_card`; raises ConfigurationError for an evaluation."""
    return card.render(_summary(db, run, redaction, "model card"))


def annex_iv(db: Database, run: AuditRun, redaction: Redaction | None = None) -> str:
    """See `exports.annex_iv`; raises ConfigurationError for an evaluation."""
    return annex.render(_summary(db, run, redaction, "Annex IV block"))


def local_law_144(db: Database, run: AuditRun, redaction: Redaction | None = None) -> str:
    """See `exports.local_law_144`; raises ConfigurationError for a run without categories."""
    summary = _summary(db, run, redaction, "summary by Local Law 144")
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
    return law.render(summary, record)


def _summary(db: Database, run: AuditRun, redaction: Redaction | None, form: str) -> Summary:
    check_explained(run, form)
    return summary_of(db, run, redaction)
