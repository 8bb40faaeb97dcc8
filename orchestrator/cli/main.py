"""The verbs of `transexplain` and their exit codes.

0 ok, 1 a verdict that is not good (`doctor`, `demo`, `gate`, `verify`), 2 bad configuration or
usage, 3 finished with failed items above the tolerance, 4 infrastructure, 130 interrupted.
"""

import sys

import typer

from orchestrator.cli import (
    audit,
    database,
    demo,
    doctor,
    evaluating,
    explain,
    exporting,
    fleet,
    gate,
    importing,
    matching,
    planning,
    reading,
    runs_compared,
    scheduling,
    strategies,
    training,
    verifying,
)
from transexplain.errors import TransExplainError

app = typer.Typer(
    name="transexplain",
    help="Audit transformer classifiers in bulk by layer-wise relevance propagation.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for _module in (
    demo,
    planning,
    audit,
    importing,
    evaluating,
    training,
    reading,
    matching,
    strategies,
    runs_compared,
    gate,
    exporting,
    verifying,
    explain,
    doctor,
    fleet,
    scheduling,
    database,
):
    _module.register(app)


@app.command()
def version() -> None:
    """Print the version."""
    from transexplain import __version__

    typer.echo(__version__)


def main() -> None:
    """Entry point: errors of this package become one message and their exit code."""
    try:
        app()
    except TransExplainError as error:
        typer.secho(f"error: {error}", fg=typer.colors.RED, err=True)
        sys.exit(error.exit_code)
