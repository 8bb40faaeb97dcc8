"""The verb that imports attributions made elsewhere: import."""

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli import options as opt
from orchestrator.cli.run_commands import ReportDir, audit_before, work_and_report, worked_on
from orchestrator.spec.audit_spec import NameOption, overrides_of
from transexplain.errors import ConfigurationError

File = Annotated[
    str, typer.Argument(help="jsonl or parquet file or glob; docs/how-to/import.md has its columns")
]
Lexicons = Annotated[
    list[str] | None,
    typer.Option(
        "--lexicon",
        help="entity groups: yaml, json, csv or tsv file, or builtin:gender and such; may be "
        "repeated",
    ),
]
Reference = Annotated[
    str | None, typer.Option("--reference", help="reference group; default: all others")
]
Practical = Annotated[
    float | None,
    typer.Option("--practical", help="smallest difference that matters, in the unit of the scores"),
]
Slice = Annotated[
    str | None, typer.Option("--slice", help="column that the statistics are also split by")
]
Columns = Annotated[
    list[str] | None,
    typer.Option("--column", help="which column is which, e.g. --column scores=attr; repeatable"),
]
Classes = Annotated[
    str | None, typer.Option("--classes", help="class names by index, e.g. negative,positive")
]
Unit = Annotated[
    str, typer.Option("--unit", help="unit of the scores: logits, unit_relevance or score")
]
MethodName = Annotated[
    str, typer.Option("--method-name", help="what the attributions were made with")
]
ModelName = Annotated[str, typer.Option("--model-name", help="what the report calls the model")]


def import_(  # noqa: PLR0913 - the options of a command line
    file: File,
    *,
    lexicon: Lexicons = None,
    reference: Reference = None,
    practical: Practical = None,
    slice_: Slice = None,
    column: Columns = None,
    classes: Classes = None,
    unit: Unit = "logits",
    method_name: MethodName = "imported",
    model_name: ModelName = "imported",
    name: NameOption = None,
    set_: opt.Set = None,
    previous: opt.Previous = None,
    processes: opt.Processes = 1,
    db: opt.DatabaseUrl = None,
    report_dir: ReportDir = Path("audits"),
    output: opt.OutputMode,
) -> None:
    """Group statistics and a report over attributions made elsewhere; no model is loaded."""
    from orchestrator.plan.import_plan import ImportRequest, import_spec, prepare_import
    from transexplain.store import runs

    settings = opt.settings_with(db)
    groups = {"lexicon": lexicon, "reference": reference, "practical": practical, "slice": slice_}
    request = ImportRequest(
        columns=_columns(column),
        classes=_names(classes),
        method=method_name,
        unit=unit,
    )
    spec = import_spec(file, overrides_of(name=name, **groups), set_ or (), model_name)
    prepared = prepare_import(spec, request, settings)
    for warning in prepared.warnings:
        opt.warn(warning)
    with opt.open_store(settings) as store:
        before = audit_before(store, previous)
        run_id = runs.create(store, prepared.plan, prepared.shards, before)
        work = worked_on(opt.local_executor(settings, processes), store, run_id)
        work_and_report(store, run_id, work, report_dir, output)


def _names(given: str | None) -> tuple[str, ...]:
    """Names between commas."""
    return tuple(one.strip() for one in given.split(",")) if given else ()


def _columns(given: list[str] | None) -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in given or ():
        meaning, equals, column = pair.partition("=")
        if not (meaning and equals and column):
            raise ConfigurationError(f"--column {pair!r} is not meaning=column")
        found[meaning] = column
    return found
