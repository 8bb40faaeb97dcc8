"""Exports that are one text of what a run found."""

from transexplain.exports import annex_iv as annex
from transexplain.exports import markdown as comment
from transexplain.exports import model_card as card
from transexplain.exports.kinds import check_explained
from transexplain.plans import AuditRun
from transexplain.reports.records import Summary
from transexplain.reports.summary import summarise
from transexplain.store.database import Database


def markdown(db: Database, run: AuditRun) -> str:
    """See `exports.markdown`; raises ConfigurationError for an evaluation."""
    return comment.render(_summary(db, run, "summary for a pull request"))


def model_card(db: Database, run: AuditRun) -> str:
    """See `exports.model_card`; raises ConfigurationError for an evaluation."""
    return card.render(_summary(db, run, "model card"))


def annex_iv(db: Database, run: AuditRun) -> str:
    """See `exports.annex_iv`; raises ConfigurationError for an evaluation."""
    return annex.render(_summary(db, run, "Annex IV block"))


def _summary(db: Database, run: AuditRun, form: str) -> Summary:
    check_explained(run, form)
    return summarise(db, run.id, gallery=0)
