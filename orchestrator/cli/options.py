"""Options that several verbs share; those of a specification stand in its sections."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from transexplain.settings import Settings

if TYPE_CHECKING:
    from transexplain.store.database import Database

SpecPath = Annotated[
    Path | None, typer.Argument(help="audit specification (YAML); options override it")
]
Params = Annotated[
    list[str] | None,
    typer.Option("--param", help="parameter of the method, e.g. --param gamma=0.25"),
]
Set = Annotated[
    list[str] | None, typer.Option("--set", help="set any key, e.g. --set data.limit=100")
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
    from transexplain.store.revisions import open_database

    return open_database(settings.database_url, upgrade=settings.database_url.startswith("sqlite"))
