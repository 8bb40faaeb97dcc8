"""What a run's numbers are called in an experiment tracker, and the files that go with them."""

import re
from importlib import import_module
from pathlib import Path
from typing import Any

from transexplain.errors import ConfigurationError
from transexplain.exports import csv_tables, texts
from transexplain.exports.facts import compared, verdict_counts
from transexplain.exports.kinds import Redaction, summary_of
from transexplain.plans import AuditRun
from transexplain.reports.json_report import render
from transexplain.reports.records import Summary
from transexplain.reports.summary import GALLERY
from transexplain.reports.wording import short
from transexplain.store.database import Database

#: what MLflow takes in the name of a metric; W&B takes more
_STRANGE = re.compile(r"[^0-9A-Za-z_\-. /]")


def require(extra: str) -> Any:
    """The tracker's module; raises ConfigurationError naming the extra that brings it."""
    try:
        return import_module(extra)
    except ImportError as error:
        raise ConfigurationError(
            f"{extra} is not installed ({error}); pip install 'transexplain[{extra}]'"
        ) from error


def metrics_of(summary: Summary) -> dict[str, float]:
    """Every number that a tracker draws over runs; what was not measured is left out.

    A name that a tracker would not take has `_` in its place; of names that then are one the first
    stays.
    """
    counts = summary.counts
    found: dict[str, float | None] = {
        "items/total": counts.total,
        "items/explained": counts.done,
        "items/failed": counts.failed,
        "items/truncated": counts.truncated,
        "accuracy": counts.accuracy,
    }
    if summary.conservation is not None:
        found["conservation/worst_gap"] = summary.conservation.worst
        found["conservation/mean_gap"] = summary.conservation.mean
        found["conservation/above_tolerance"] = summary.conservation.above
    if summary.class_sensitivity is not None:
        found["class_sensitivity"] = summary.class_sensitivity.mean
    for one in summary.faithfulness.rows if summary.faithfulness else ():
        found[f"faithfulness/{one.target}/{one.metric}"] = one.mean
        found[f"faithfulness/{one.target}/{one.metric}/above_random"] = one.difference
    found |= _groups(summary)
    named: dict[str, float] = {}
    for name, value in found.items():
        if value is not None:
            named.setdefault(_STRANGE.sub("_", name), float(value))
    return named


def _groups(summary: Summary) -> dict[str, float | None]:
    if summary.groups is None:
        return {}
    found: dict[str, float | None] = {
        f"verdicts/{verdict}": count for verdict, count in verdict_counts(summary.groups).items()
    }
    for one in summary.groups.verdicts:
        outcome, swap = one.outcome, one.counterfactual
        found[f"impact_ratio/{one.group}/{one.answer}"] = outcome.impact_ratio if outcome else None
        found[f"swap/{one.group}/{one.answer}"] = swap.effect if swap else None
    for row in compared(summary.groups):
        found[f"difference/{row.group}/{row.target}/{row.class_name}"] = row.difference
    return found


def parameters_of(summary: Summary) -> dict[str, str]:
    """What the numbers hang on."""
    audited = summary.audited
    return {
        "run": audited.run_id,
        "model": short(audited.model),
        "model_digest": audited.model_digest,
        "dataset": short(audited.dataset),
        "dataset_fingerprint": audited.fingerprint,
        "method": audited.method,
        "targets": ", ".join(audited.targets),
        "plan_digest": audited.plan_digest,
        "transexplain": audited.version,
    }


def findings(
    db: Database, run: AuditRun, folder: Path, redaction: Redaction | None = None
) -> Summary:
    """Write the report as JSON, the Markdown texts and the tables into `folder`.

    Attributions are not among them: they may be large, and `export --format parquet` writes them.
    Raises ConfigurationError: the run is an evaluation or not over.
    """
    csv_tables.write(db, run, folder / "tables", redaction)
    (folder / "summary.md").write_text(texts.markdown(db, run, redaction), encoding="utf-8")
    card = texts.model_card(db, run, redaction)
    (folder / "model-card.md").write_text(card, encoding="utf-8")
    summary = summary_of(db, run, redaction, GALLERY)
    (folder / "report.json").write_text(render(summary), encoding="ascii")
    return summary
