"""Logs an audit as a run of MLflow or of Weights & Biases: its numbers and its files."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from transexplain.registry import require
from transexplain.reports.exports import EXPORTS, csv_tables
from transexplain.reports.exports.export_run import (
    Redaction,
    check_explained,
    check_over,
    summary_of,
)
from transexplain.reports.exports.run_facts import (
    compared,
    measures,
    state_counts,
    verdict_counts,
)
from transexplain.reports.phrasing import encodable, short
from transexplain.reports.report_formats import render_json
from transexplain.reports.report_records import Summary
from transexplain.reports.summary import GALLERY
from transexplain.store.database import Database
from transexplain.types.plans import AuditRun

#: what MLflow takes in the name of a metric; W&B takes more
_STRANGE = re.compile(r"[^0-9A-Za-z_\-. /]")


def metrics_of(summary: Summary) -> dict[str, float]:
    """Every number that a tracker draws over runs; what was not measured is left out.

    A name that a tracker would not take has `_` in its place; of names that then are one the first
    stays.
    """
    counts = summary.counts
    numbers: dict[str, float | None] = {
        "items/total": counts.total,
        "items/explained": counts.done,
        "items/failed": counts.failed,
        "items/truncated": counts.truncated,
        "accuracy": counts.accuracy,
    }
    if (ledgers := summary.conservation) is not None:
        numbers |= {
            "conservation/worst_gap": ledgers.worst,
            "conservation/mean_gap": ledgers.mean,
            "conservation/above_tolerance": ledgers.above,
            "conservation/relevance_error": ledgers.relevance_error,
            "conservation/correlation": ledgers.correlation,
        }
    if summary.class_sensitivity is not None:
        numbers["class_sensitivity"] = summary.class_sensitivity.mean
    for row in summary.faithfulness.rows if summary.faithfulness else ():
        numbers[f"faithfulness/{row.target}/{row.metric}"] = row.mean
        numbers[f"faithfulness/{row.target}/{row.metric}/above_random"] = row.difference
    numbers |= _groups(summary)
    named: dict[str, float] = {}
    for name, value in numbers.items():
        if value is not None:
            named.setdefault(_STRANGE.sub("_", name), float(value))
    return named


def _groups(summary: Summary) -> dict[str, float | None]:
    if summary.groups is None:
        return {}
    groups: dict[str, float | None] = {
        f"verdicts/{state}": count for state, count in verdict_counts(summary.groups).items()
    }
    for question, states in state_counts(summary.groups).items():
        groups |= {f"verdicts/{question}/{state}": count for state, count in states.items()}
    for question, row, measure in measures(summary.groups):
        if not row.stratum:
            groups[f"{question}/{measure.name}/{row.group}/{row.prediction}"] = measure.value
    for statistic in compared(summary.groups):
        key = f"difference/{statistic.group}/{statistic.target}/{statistic.class_name}"
        groups[key] = statistic.difference
    return groups


def parameters_of(summary: Summary) -> dict[str, str]:
    """The parameters that the numbers depend on."""
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
    for form, name in (("markdown", "summary.md"), ("model-card", "model-card.md")):
        text = encodable(EXPORTS.load(form)(db, run, redaction))
        (folder / name).write_text(text, encoding="utf-8")
    summary = summary_of(db, run, redaction, GALLERY)
    (folder / "report.json").write_text(render_json(summary), encoding="ascii")
    return summary


@contextmanager
def _findings_for(
    tool: str, db: Database, run: AuditRun, redaction: Redaction | None
) -> Iterator[tuple[Any, Summary, str]]:
    """The module of a tracker, the findings to log, and the folder of their files."""
    check_explained(run, f"log for {tool}")
    check_over(run, f"log for {tool}")
    require(tool, tool)
    with TemporaryDirectory() as folder:
        yield import_module(tool), findings(db, run, Path(folder), redaction), folder


def log_mlflow(db: Database, run: AuditRun, redaction: Redaction | None = None) -> str:
    """Log parameters, metrics and files; returns a line that names the run of MLflow.

    `MLFLOW_TRACKING_URI` and `MLFLOW_EXPERIMENT_NAME` say where. Raises ConfigurationError: MLflow
    is not installed, or the run is an evaluation or not over.
    """
    with _findings_for("mlflow", db, run, redaction) as (mlflow, summary, folder):
        with mlflow.start_run(run_name=f"{run.plan.name}-{run.id}") as logged:
            mlflow.log_params(parameters_of(summary))
            mlflow.log_metrics(metrics_of(summary))
            mlflow.log_artifacts(folder)
        return f"mlflow: run {logged.info.run_id} at {mlflow.get_tracking_uri()}\n"


def log_wandb(db: Database, run: AuditRun, redaction: Redaction | None = None) -> str:
    """Log configuration, metrics and files; returns a line that names the run.

    `WANDB_PROJECT`, `WANDB_ENTITY` and `WANDB_MODE` say where. Raises ConfigurationError: wandb is
    not installed, or the run is an evaluation or not over.
    """
    with _findings_for("wandb", db, run, redaction) as (wandb, summary, folder):
        with wandb.init(
            name=f"{run.plan.name}-{run.id}", job_type="audit", config=parameters_of(summary)
        ) as logged:
            logged.log(metrics_of(summary))
            artifact = wandb.Artifact(f"audit-{run.id}", type="audit")
            artifact.add_dir(folder)
            logged.log_artifact(artifact)
        return f"wandb: run {logged.id} at {logged.url or logged.dir}\n"
