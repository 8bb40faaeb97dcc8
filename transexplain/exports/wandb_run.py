"""An audit as a run of Weights & Biases, in the project that its variables name."""

from pathlib import Path
from tempfile import TemporaryDirectory

from transexplain.exports.kinds import Redaction, check_explained, check_over
from transexplain.exports.tracking import findings, metrics_of, parameters_of, require
from transexplain.plans import AuditRun
from transexplain.store.database import Database


def log(db: Database, run: AuditRun, redaction: Redaction | None = None) -> str:
    """Log configuration, metrics and files; returns a line that names the run.

    `WANDB_PROJECT`, `WANDB_ENTITY` and `WANDB_MODE` say where. Raises ConfigurationError: wandb is
    not installed, or the run is an evaluation or not over.
    """
    check_explained(run, "log for Weights & Biases")
    check_over(run, "log for Weights & Biases")
    wandb = require("wandb")
    with TemporaryDirectory() as name:
        summary = findings(db, run, Path(name), redaction)
        with wandb.init(
            name=f"{run.plan.name}-{run.id}", job_type="audit", config=parameters_of(summary)
        ) as made:
            made.log(metrics_of(summary))
            artifact = wandb.Artifact(f"audit-{run.id}", type="audit")
            artifact.add_dir(name)
            made.log_artifact(artifact)
        where = made.url or made.dir
    return f"wandb: run {made.id} at {where}\n"
