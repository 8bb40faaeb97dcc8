"""Verbs of the store itself: db upgrade, check, maintain, prune, vacuum, backup."""

import re
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli import options as opt
from transexplain.errors import ConfigurationError

if TYPE_CHECKING:
    from transexplain.store.database import Database
    from transexplain.store.retention import Old

_SECONDS = {"h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_AHEAD = 3
_SHOWN = 20

Ahead = Annotated[
    int, typer.Option("--ahead", min=0, help="months to make partitions for, besides this one")
]


def database_group() -> typer.Typer:
    """The verb `db` with its own verbs."""
    group = typer.Typer(name="db", no_args_is_help=True, add_completion=False)
    for verb in (upgrade, check, maintain, prune, vacuum, backup):
        group.command()(verb)
    return group


def upgrade(*, db: opt.DatabaseUrl = None) -> None:
    """Create the tables, or bring them to this version; with PostgreSQL make partitions, too."""
    from transexplain.store.database import open_database

    with open_database(opt.settings_with(db).database_url, upgrade=True) as store:
        typer.echo(f"database {store.name} is at this version")
        _maintain(store, _AHEAD)


def check(*, db: opt.DatabaseUrl = None) -> None:
    """Say whether the tables are at this version (exit code 4 if not)."""
    from transexplain.store.database import open_database

    with open_database(opt.settings_with(db).database_url) as store:
        typer.echo(f"database {store.name} is at this version")


def maintain(*, ahead: Ahead = _AHEAD, db: opt.DatabaseUrl = None) -> None:
    """Make the partitions of this month and the next ones (PostgreSQL, as the tables' owner)."""
    from transexplain.store import partitions

    with opt.open_store(opt.settings_with(db)) as store:
        if not partitions.supported(store):
            typer.echo("SQLite has no partitions: nothing to do")
        elif not _maintain(store, ahead):
            typer.echo("every partition is there")


def prune(
    *,
    older_than: Annotated[
        str, typer.Option("--older-than", help="age since the run was over: 90d, 12w or 36h")
    ],
    keep_last: Annotated[
        int, typer.Option("--keep-last", min=0, help="keep so many runs of each audit's name")
    ] = 0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="only say what would go")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="do not ask")] = False,
    db: opt.DatabaseUrl = None,
) -> None:
    """Delete runs that are over for long, but not those that schedules compare with."""
    from transexplain.store import retention

    seconds = _age(older_than)
    with opt.open_store(opt.settings_with(db)) as store:
        old = retention.old_runs(store, seconds, keep_last)
        _show(old)
        if not old or dry_run or not (yes or _agreed(len(old))):
            return
        gone = retention.prune(store, seconds, keep_last)
    typer.echo(f"deleted {len(gone.runs)} runs with {gone.items:,} items")
    if gone.months:
        names = ", ".join(month.name for month in gone.months)
        typer.echo(f"dropped the partitions of {names}: {_mebibytes(gone.freed)}")


def vacuum(*, db: opt.DatabaseUrl = None) -> None:
    """Give back the room of what was deleted, and renew the planner's statistics."""
    from transexplain.store import upkeep

    with opt.open_store(opt.settings_with(db)) as store:
        before = upkeep.size(store)
        upkeep.vacuum(store)
        after = upkeep.size(store)
    typer.echo(f"{_mebibytes(before)} before, {_mebibytes(after)} after")


def backup(
    file: Annotated[Path, typer.Argument(help="the copy; must not exist")],
    *,
    db: opt.DatabaseUrl = None,
) -> None:
    """Copy the SQLite database while workers go on (PostgreSQL: use pg_dump)."""
    from transexplain.store import upkeep
    from transexplain.store.database import open_database

    with open_database(opt.settings_with(db).database_url) as store:
        size = upkeep.backup(store, file)
    typer.echo(f"{file}: {_mebibytes(size)}")


def _maintain(store: "Database", ahead: int) -> bool:
    from transexplain.store import partitions

    made = partitions.maintain(store, ahead)
    if made:
        typer.echo(f"partitions made: {', '.join(month.name for month in made)}")
    return bool(made)


def _age(given: str) -> float:
    found = re.fullmatch(r"(\d+)([hdw])", given.strip())
    if found is None:
        raise ConfigurationError(
            f"--older-than {given!r}: write a whole number of hours, days or weeks: 36h, 90d or 12w"
        )
    return int(found[1]) * _SECONDS[found[2]]


def _show(old: "list[Old]") -> None:
    if not old:
        typer.echo("no run is that old and not needed")
        return
    typer.echo(f"{len(old)} runs with {sum(one.items for one in old):,} items:")
    for one in old[:_SHOWN]:
        day = datetime.fromtimestamp(one.finished, UTC)
        typer.echo(f"  {one.id}  {one.name}  over since {day:%Y-%m-%d}  {one.items:,} items")
    if len(old) > _SHOWN:
        typer.echo(f"  and {len(old) - _SHOWN} more")


def _agreed(count: int) -> bool:
    if not sys.stdin.isatty():
        raise ConfigurationError(
            "db prune deletes results for good and there is no terminal to ask at: "
            "add --yes, or --dry-run to see what would go"
        )
    return typer.confirm(f"delete these {count} runs for good?")


def _mebibytes(count: int) -> str:
    return f"{count / 2**20:,.1f} MiB"
