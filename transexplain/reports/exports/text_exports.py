"""Exports that are one text of what a run found."""

from transexplain.reports.exports import annex_iv as annex
from transexplain.reports.exports import markdown as comment
from transexplain.reports.exports import model_card as card
from transexplain.reports.exports.export_run import Redaction, check_explained, summary_of
from transexplain.reports.report_records import Summary
from transexplain.store.database import Database
from transexplain.types.plans import AuditRun


def markdown(db: Database, run: AuditRun, redaction: Redaction | None = None) -> str:
    """See `exports.markdown`; raises ConfigurationError for an evaluation."""
    return comment.render(_summary(db, run, redaction, "summary for a pull request"))


def model_card(db: Database, run: AuditRun, redaction: Redaction | None = None) -> str:
    """See `exports.model_card`; raises ConfigurationError for an evaluation."""
    return card.render(_summary(db, run, redaction, "model card"))


def annex_iv(db: Database, run: AuditRun, redaction: Redaction | None = None) -> str:
    """See `exports.annex_iv`; raises ConfigurationError for an evaluation."""
    return annex.render(_summary(db, run, redaction, "Annex IV block"))


def _summary(db: Database, run: AuditRun, redaction: Redaction | None, form: str) -> Summary:
    check_explained(run, form)
    return summary_of(db, run, redaction)
