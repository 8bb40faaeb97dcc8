"""The verb that looks for ways of deciding: strategies."""

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli import options as opt

Target = Annotated[
    str | None,
    typer.Option("--target", "-t", help="as the audit asked; default: predicted, else its first"),
]
Class = Annotated[str | None, typer.Option("--class", help="look at this class alone")]
Sample = Annotated[int, typer.Option("--sample", help="largest number of items of a class")]
ReportDir = Annotated[Path, typer.Option("--report-dir", help="where the files are written")]


def strategies(
    run_id: opt.RunId = "latest",
    *,
    target: Target = None,
    class_: Class = None,
    sample: Sample = 2000,
    report_dir: ReportDir = Path("audits"),
    json_: opt.AsJson = False,
    db: opt.DatabaseUrl = None,
) -> None:
    """Cluster a run's explanations class by class; point out what looks like a shortcut."""
    from orchestrator import finish
    from transexplain.reports.strategies.json_report import render
    from transexplain.reports.strategies.report import told
    from transexplain.strategies.discover import discover

    with opt.open_store(opt.settings_with(db)) as store:
        found = discover(store, run_id, target=target, class_name=class_, sample=sample)
        report = told(store, found)
    if json_:
        typer.echo(render(report))
    else:
        finish.write_strategies(report, report_dir)
