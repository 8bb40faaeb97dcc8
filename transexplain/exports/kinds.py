"""What a run must be for a format."""

from transexplain.errors import ConfigurationError
from transexplain.plans import AuditRun


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
