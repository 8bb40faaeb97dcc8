"""Verbs that operate servers: worker, db."""

from typing import Annotated

import typer

from orchestrator.cli import options as opt


def register(app: typer.Typer) -> None:
    """Add this module's verbs."""
    app.command()(worker)
    database = typer.Typer(help="The store's tables: upgrade or check them.", no_args_is_help=True)
    database.command()(upgrade)
    database.command()(check)
    app.add_typer(database, name="db")


def worker(
    *,
    device: Annotated[
        str | None, typer.Option("--device", help="torch device, e.g. cuda:0; default: the plan's")
    ] = None,
    threads: Annotated[
        int | None, typer.Option("--threads", min=1, help="CPU threads of this worker")
    ] = None,
    db: opt.DatabaseUrl = None,
) -> None:
    """Serve the queue: one process, one device; SIGTERM ends it after the batch in hand."""
    from workers.main import run_worker

    code = run_worker(opt.settings_with(db), device=device, threads=threads)
    if code:
        raise typer.Exit(code)


def upgrade(*, db: opt.DatabaseUrl = None) -> None:
    """Create the tables, or bring them to this version."""
    from transexplain.store.database import open_database

    with open_database(opt.settings_with(db).database_url, upgrade=True) as store:
        typer.echo(f"database {store.name} is at this version")


def check(*, db: opt.DatabaseUrl = None) -> None:
    """Say whether the tables are at this version (exit code 4 if not)."""
    from transexplain.store.database import open_database

    with open_database(opt.settings_with(db).database_url) as store:
        typer.echo(f"database {store.name} is at this version")
