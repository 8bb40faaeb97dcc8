"""What a run must be for a format, and what it means to redact it."""

from dataclasses import dataclass

from transexplain.errors import ConfigurationError
from transexplain.plans import AuditRun
from transexplain.reports.records import Summary
from transexplain.reports.redacted import redacted
from transexplain.reports.redaction import FEWEST, fewest_of
from transexplain.reports.summary import summarise
from transexplain.store.database import Database

#: made of findings: redacted as a report is
_OF_FINDINGS = ("csv", "markdown", "model-card", "annex-iv", "mlflow", "wandb")
#: a row for each attribution: it loses what was said, and stays
_OF_ITEMS = ("parquet", "jsonl")


@dataclass(frozen=True, kw_only=True, slots=True)
class Redaction:
    """That an export may be handed on."""

    fewest: int = FEWEST  #: items behind every number; of formats of findings


def check_explained(run: AuditRun, form: str) -> None:
    """Raise ConfigurationError for an evaluation, which stores no explanations."""
    if run.plan.task == "evaluation":
        raise ConfigurationError(
            f"run {run.id} is an evaluation, which keeps scores and no explanations: there is no "
            f"{form} of it. `transexplain report {run.id}` writes its tables, `--format csv` its "
            "scores"
        )


def check_over(run: AuditRun, form: str) -> None:
    """Raise ConfigurationError for a run that still works: half an export looks like a whole."""
    if run.state == "running":
        raise ConfigurationError(
            f"run {run.id} is not over: its {form} would be a part that looks like the whole. Wait "
            "for it, `transexplain resume` or `transexplain cancel` it"
        )


def redaction_of(run: AuditRun, form: str, redact: bool, min_count: int | None) -> Redaction | None:
    """How this format of this run is redacted; None: it is not to be.

    Raises ConfigurationError: a format or a run that redacting means nothing for, or a `min_count`
    without `redact`, below 2, or for rows of single items.
    """
    fewest = fewest_of(redact, min_count)
    if fewest is None:
        return None
    if form not in (*_OF_FINDINGS, *_OF_ITEMS):
        raise ConfigurationError(f"{form} holds nothing of the data; leave out --redact")
    if form == "csv" and run.plan.task == "evaluation":
        raise ConfigurationError(
            f"run {run.id} is an evaluation, whose tables have a row per item: nothing would be "
            f"left of them. `transexplain report {run.id}` writes means over items, without texts"
        )
    if form in _OF_ITEMS and min_count is not None:
        raise ConfigurationError(
            f"every row of {form} is of one item, so --min-count would leave out all of them; "
            "leave it out, or export csv, which tells counts over items"
        )
    return Redaction(fewest=fewest)


def summary_of(
    db: Database, run: AuditRun, redaction: Redaction | None, gallery: int = 0
) -> Summary:
    """The findings of a run with so many examples for each class, redacted where it is asked."""
    found = summarise(db, run.id, gallery=gallery)
    return found if redaction is None else redacted(found, redaction.fewest)
