"""Options that several verbs share, and what they turn into."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from transexplain.errors import ConfigurationError
from transexplain.settings import Settings

if TYPE_CHECKING:
    from transexplain.store.database import Database

SpecPath = Annotated[
    Path | None, typer.Argument(help="audit specification (YAML); options override it")
]
Model = Annotated[
    str | None,
    typer.Option("--model", "-m", help="directory, hub id, or timm:NAME?checkpoint=FILE"),
]
Data = Annotated[
    str | None,
    typer.Option(
        "--data",
        "-d",
        help="csv|tsv|jsonl|parquet file or glob, imagefolder:DIR or eraser:DIR#split",
    ),
]
Targets = Annotated[
    list[str] | None,
    typer.Option(
        "--target",
        "-t",
        help="predicted, label, all, class:NAME, top:K, contrast:A-B; may be repeated",
    ),
]
Method = Annotated[str | None, typer.Option("--method", help="explanation method")]
Params = Annotated[
    list[str] | None,
    typer.Option("--param", help="parameter of the method, e.g. --param gamma=0.25"),
]
Lexicon = Annotated[
    str | None,
    typer.Option(
        "--lexicon", help="entity groups: yaml, json, csv or tsv file, or builtin:gender and such"
    ),
]
Name = Annotated[str | None, typer.Option("--name", help="name of the audit")]
Set = Annotated[
    list[str] | None, typer.Option("--set", help="set any key, e.g. --set data.limit=100")
]
LongText = Annotated[
    str | None,
    typer.Option("--long-text", help="texts too long for the model: truncate, window or error"),
]
Window = Annotated[
    int | None, typer.Option("--window", help="positions of a window (with --long-text window)")
]
Stride = Annotated[
    int | None,
    typer.Option("--stride", help="positions of text between windows; default: no overlap"),
]
Join = Annotated[
    str | None, typer.Option("--join", help="mean (default) or sum of the windows' logits")
]
DatabaseUrl = Annotated[
    str | None,
    typer.Option("--db", help="SQLAlchemy URL; default $TRANSEXPLAIN_DATABASE_URL or SQLite here"),
]
Processes = Annotated[int, typer.Option("--processes", "-p", min=1, help="local processes")]
Redact = Annotated[bool, typer.Option("--redact", help="without texts, ids, and rows of few items")]
MinCount = Annotated[
    int | None,
    typer.Option("--min-count", help="items behind a row, with --redact; default: 10"),
]
RunId = Annotated[str, typer.Argument(help="run id, its beginning, or `latest`")]
Previous = Annotated[
    str | None,
    typer.Option("--previous", help="compare the report with this run: id, beginning or `latest`"),
]
AsJson = Annotated[bool, typer.Option("--json", help="print JSON")]


def settings_with(database_url: str | None) -> Settings:
    """The environment's settings, with `--db` over them."""
    from dataclasses import replace

    settings = Settings.from_environment()
    return replace(settings, database_url=database_url) if database_url else settings


def open_store(settings: Settings) -> "Database":
    """The store, created or upgraded where it is a file of one's own (SQLite)."""
    from transexplain.store.database import open_database

    return open_database(settings.database_url, upgrade=settings.database_url.startswith("sqlite"))


def long_texts(
    long_text: str | None, window: int | None, stride: int | None, join: str | None
) -> dict[str, Any]:
    """The options of long texts under their names in a specification; what is not given, not."""
    given = {
        "long_text": long_text,
        "window": window,
        "stride": stride,
        "long_text_join": join,
    }
    return {name: value for name, value in given.items() if value is not None}


def parameters(given: list[str] | None) -> dict[str, Any]:
    """`name=value` pairs, the values in YAML; raises ConfigurationError."""
    from orchestrator.documents import yaml_value

    found: dict[str, Any] = {}
    for pair in given or ():
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise ConfigurationError(f"--param {pair!r} is not name=value")
        found[name] = yaml_value(value, f"--param {name}")
    return found
