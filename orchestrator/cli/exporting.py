"""The verb that hands a run's data and findings to other programs: export."""

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli import options as opt
from transexplain.exports import EXPORTS

Format = Annotated[str, typer.Option("--format", "-f", help=", ".join(EXPORTS))]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="file, or folder for csv; default: print, if it is a text"),
]


def export(
    run_id: opt.RunId = "latest",
    *,
    form: Format,
    output: Output = None,
    redact: opt.Redact = False,
    min_count: opt.MinCount = None,
    db: opt.DatabaseUrl = None,
) -> None:
    """Write a run's attributions, tables or findings for other programs; docs/export.md."""
    from transexplain.exports.exporting import export as export_run

    with opt.open_store(opt.settings_with(db)) as store:
        text = export_run(store, run_id, form, output, redact=redact, min_count=min_count)
    if text is not None:
        typer.echo(text, nl=False)
    else:
        typer.echo(f"{form}: {output}")
