"""An audit as a run of MLflow, on the server and in the experiment that its variables name."""

from pathlib import Path
from tempfile import TemporaryDirectory

from transexplain.exports.kinds import Redaction, check_explained, check_over
from transexplain.exports.tracking import findings, metrics_of, parameters_of, require
from transexplain.plans import AuditRun
from transexplain.store.database import Database


def log(db: Database, run: AuditRun, redaction: Redaction | None = None) -> str:
    """Log parameters, metrics and files; returns a line that names the run of MLflow.

    `MLFLOW_TRACKING_URI` and `MLFLOW_EXPERIMENT_NAME` say where. Raises ConfigurationError: MLflow
    is not installed, or the run is an evaluation or not over.
    """
    check_explained(run, "log for MLflow")
    check_over(run, "log for MLflow")
    mlflow = require("mlflow")
    with TemporaryDirectory() as name:
        summary = findings(db, run, Path(name), redaction)
        with mlflow.start_run(run_name=f"{run.plan.name}-{run.id}") as made:
            mlflow.log_params(parameters_of(summary))
            mlflow.log_metrics(metrics_of(summary))
            mlflow.log_artifacts(name)
    return f"mlflow: run {made.info.run_id} at {mlflow.get_tracking_uri()}\n"
