"""Verbs of operators: worker, and db (upgrade, check, maintain, prune, delete-run,
vacuum, backup, results, grant-read).
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli import options as opt
from transexplain.errors import ConfigurationError, ObjectStoreError
from transexplain.files.paths import AnyPath
from transexplain.settings import Settings, age_of

if TYPE_CHECKING:
    from transexplain.store.database import Database
    from transexplain.store.upkeep import OldRun
    from workers.device_worker import WorkerOptions

_MAX_SHARDS = 200
_LINGER = 10.0

Device = Annotated[
    str | None,
    typer.Option("--device", help="one process on this torch device; default: the plan's"),
]
Devices = Annotated[
    str | None,
    typer.Option(
        "--devices",
        help="one supervised process per device: cuda:0,cuda:1, spread for one on all cards, "
        "or cpu:2 for two on the CPU",
    ),
]
Threads = Annotated[
    int | None,
    typer.Option("--threads", min=1, help="CPU threads per process; default: its share"),
]
MaxShards = Annotated[
    int | None,
    typer.Option(
        "--max-shards",
        min=0,
        help=f"a process ends after this many shards, 0: never; {_MAX_SHARDS} where it is replaced",
    ),
]
UntilIdle = Annotated[
    bool,
    typer.Option("--until-idle", help="end when no shard waits that it could take"),
]
Linger = Annotated[
    float | None,
    typer.Option(
        "--linger", min=0, help="seconds without work before that; default: 10", show_default=False
    ),
]
LogFormat = Annotated[str, typer.Option("--log-format", help="text or json")]


def worker(  # noqa: PLR0913 - the options of a command line
    *,
    device: Device = None,
    devices: Devices = None,
    threads: Threads = None,
    host_processes: opt.HostProcesses = None,
    max_shards: MaxShards = None,
    modality: opt.Modalities = None,
    until_idle: UntilIdle = False,
    linger: Linger = None,
    log_format: LogFormat = "text",
    db: opt.DatabaseUrl = None,
) -> None:
    """Serve the queues; SIGTERM ends it after the current batch.

    `--device` is one process. `--devices` starts one per device and replaces those that end. With
    `--until-idle` it ends by itself (status 0), and sends lost messages again meanwhile: a batch
    system's job needs no `transexplain beat`.
    """
    from orchestrator.dispatch.queue import check_broker
    from workers import logs
    from workers.device_worker import WorkerOptions, run_worker

    if device and devices:
        raise ConfigurationError("--device is for one process, --devices for several; give one")
    if linger is not None and not until_idle:
        raise ConfigurationError("--linger is how long --until-idle waits; give both")
    settings = opt.settings_with(db, host_processes)
    check_broker(settings, must_answer=False)
    options = WorkerOptions(
        device=device,
        threads=threads,
        max_shards=max_shards or 0,
        modalities=opt.modalities_of(modality),
        log_format=logs.form_of(log_format),
        until_idle=None if not until_idle else _LINGER if linger is None else linger,
    )
    if devices:
        code = _supervise(settings, devices, options, max_shards)
    else:
        code = run_worker(settings, options)
    if code:
        raise typer.Exit(code)


def _supervise(
    settings: Settings, devices: str, options: "WorkerOptions", max_shards: int | None
) -> int:
    from transexplain.store.revisions import open_database
    from workers import logs
    from workers.supervisor import free, options_per_device, supervise

    several = replace(options, max_shards=_MAX_SHARDS if max_shards is None else max_shards)
    crew = options_per_device(devices, several)
    logs.configure(options.log_format)
    # connect now: otherwise every child would report the same error
    with open_database(settings.database_url) as store:
        return supervise(settings, crew, on_death=lambda pid: free(store, pid))


_AHEAD = 3
_SHOWN = 20

Ahead = Annotated[
    int, typer.Option("--ahead", min=0, help="months to make partitions for, besides this one")
]

KeepReport = Annotated[bool, typer.Option("--keep-report", help="leave the files of reports")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="skip the confirmation")]


def database_group() -> typer.Typer:
    """The store: its tables, partitions, old runs, backups and readers."""
    return opt.group_of(
        *(upgrade, check, maintain, prune, delete_run, vacuum, backup, results, grant_read)
    )


def upgrade(*, db: opt.DatabaseUrl = None) -> None:
    """Create the tables, or bring them to this version; with PostgreSQL make partitions, too."""
    from transexplain.store.revisions import open_database

    with open_database(opt.settings_with(db).database_url, upgrade=True) as store:
        typer.echo(f"database {store.name} is at this version")
        _maintain(store, _AHEAD)


def check(*, db: opt.DatabaseUrl = None) -> None:
    """Say whether the tables are at this version (exit code 4 if not)."""
    from transexplain.store.revisions import open_database

    with open_database(opt.settings_with(db).database_url) as store:
        typer.echo(f"database {store.name} is at this version")


def maintain(*, ahead: Ahead = _AHEAD, db: opt.DatabaseUrl = None) -> None:
    """Make the partitions of this month and the next ones (PostgreSQL, as the tables' owner)."""
    from transexplain.store import upkeep

    with opt.open_store(opt.settings_with(db)) as store:
        if not upkeep.supported(store):
            typer.echo("SQLite has no partitions: nothing to do")
        elif not _maintain(store, ahead):
            typer.echo("every partition is there")


def prune(
    *,
    older_than: Annotated[
        str, typer.Option("--older-than", help="age since the run was over: 90d, 12w or 36h")
    ],
    keep_last: Annotated[
        int, typer.Option("--keep-last", min=0, help="keep this many runs of each audit's name")
    ] = 0,
    hold: Annotated[
        list[str] | None, typer.Option("--hold", help="a run that stays; may be repeated")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="only list what would be deleted")
    ] = False,
    keep_report: KeepReport = False,
    report_dir: opt.ReportDir = Path("audits"),
    yes: Yes = False,
    db: opt.DatabaseUrl = None,
) -> None:
    """Delete old finished runs, but not those that schedules compare with."""
    from transexplain.store import runs, upkeep

    settings = opt.settings_with(db)
    seconds = age_of(older_than, "--older-than")
    if seconds < settings.retention:
        opt.warn(f"runs stay for {settings.retention / 86_400:g} days (TRANSEXPLAIN_RETENTION)")
    with opt.open_store(settings) as store:
        held = frozenset(runs.get(store, run_id).id for run_id in hold or ())
        age = upkeep.Age(max(seconds, settings.retention), keep_last, held)
        old = upkeep.old_runs(store, age)
        stray, away = upkeep.stray_files(store)
        _show(old, stray)
        for run_id, reason in away.items():
            opt.warn(f"run {run_id}: {reason}")
        beside = f" and {len(stray)} files" if stray else ""
        if not (old or stray) or dry_run:
            return
        if not (yes or _agreed(f"these {len(old)} runs{beside}")):
            return
        before = upkeep.data_of_runs(store)
        gone = upkeep.prune(store, age)
        typer.echo(f"deleted {len(gone.runs)} runs with {gone.items:,} items")
        if gone.months:
            names = ", ".join(month.name for month in gone.months)
            typer.echo(f"dropped the partitions of {names}: {_mebibytes(gone.freed)}")
        _delete_beside(store, settings, before, gone.runs, None if keep_report else report_dir)
    if gone.files:
        typer.echo(f"deleted {gone.files} Parquet files that no run refers to")
    for reason in gone.kept:
        opt.warn(f"kept: {reason}")


def delete_run(
    run: opt.RunId,
    *,
    keep_report: KeepReport = False,
    report_dir: opt.ReportDir = Path("audits"),
    yes: Yes = False,
    db: opt.DatabaseUrl = None,
) -> None:
    """Delete a run: its rows, its files in a sink, its report, and data that no other run reads."""
    from transexplain.store import runs, upkeep

    settings = opt.settings_with(db)
    with opt.open_store(settings) as store:
        run_id = runs.get(store, run).id
        if not (yes or _agreed(f"run {run_id}")):
            return
        before = upkeep.data_of_runs(store)
        gone = upkeep.delete_run(store, run_id, settings.retention)
        typer.echo(f"deleted run {run_id} with {gone.items:,} items")
        _delete_beside(store, settings, before, [gone], None if keep_report else report_dir)


def _delete_beside(
    store: "Database",
    settings: Settings,
    before: Mapping[str, set[str]],
    gone: "Sequence[OldRun]",
    reports: AnyPath | None,
) -> None:
    """Delete the data that were of these runs alone, and their reports in a folder."""
    from orchestrator.dispatch.finish import report_files
    from transexplain.data.snapshot import delete_data
    from transexplain.store import upkeep

    left = set().union(*upkeep.data_of_runs(store).values())
    for place in sorted(set().union(*(before.get(run.id, set()) for run in gone)) - left):
        try:
            if delete_data(place, settings):
                typer.echo(f"deleted the data {place}")
        except (ObjectStoreError, OSError) as error:
            opt.warn(f"kept the data {place}: {error}")
    files = [file for run in gone for file in report_files(reports, run.name, run.id)]
    for file in files:
        try:
            file.unlink()
            typer.echo(f"deleted {file}")
        except OSError as error:
            opt.warn(f"kept {file}: {error.strerror}")


def vacuum(*, db: opt.DatabaseUrl = None) -> None:
    """Free the space of deleted rows, and renew the planner's statistics."""
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
    from transexplain.store.revisions import open_database

    with open_database(opt.settings_with(db).database_url) as store:
        size = upkeep.backup(store, file)
    typer.echo(f"{file}: {_mebibytes(size)}")


def results(
    *,
    again: Annotated[
        bool, typer.Option("--again", help="also of runs that have them, computed anew")
    ] = False,
    db: opt.DatabaseUrl = None,
) -> None:
    """Put what reports say of finished runs into the tables for SQL; docs/sql.md."""
    from transexplain.reports import sql_results
    from transexplain.store import result_rows

    written = 0
    with opt.open_store(opt.settings_with(db)) as store:
        for run_id in result_rows.over(store, again=again):
            written += sql_results.close(store, run_id)
    typer.echo(f"{written} runs written")


def grant_read(
    role: Annotated[str, typer.Argument(help="a role of PostgreSQL that is there")],
    *,
    texts: Annotated[
        bool, typer.Option("--texts", help="also every item: texts, relevance, mentions, errors")
    ] = False,
    db: opt.DatabaseUrl = None,
) -> None:
    """Let a role read results and progress, but no texts (PostgreSQL, as the tables' owner)."""
    from transexplain.store import upkeep

    with opt.open_store(opt.settings_with(db)) as store:
        upkeep.grant_read(store, role, texts=texts)
    typer.echo(f"{role} may read results and progress{', and every item' if texts else ''}")


def _maintain(store: "Database", ahead: int) -> bool:
    from transexplain.store import upkeep

    partitions = upkeep.maintain(store, ahead)
    if partitions:
        typer.echo(f"partitions made: {', '.join(month.name for month in partitions)}")
    return bool(partitions)


def _show(old: "list[OldRun]", stray: list[str]) -> None:
    if old:
        typer.echo(f"{len(old)} runs with {sum(run.items for run in old):,} items:")
    else:
        typer.echo("no run is that old and not needed")
    for run in old[:_SHOWN]:
        day = datetime.fromtimestamp(run.finished, UTC)
        typer.echo(f"  {run.id}  {run.name}  over since {day:%Y-%m-%d}  {run.items:,} items")
    if len(old) > _SHOWN:
        typer.echo(f"  and {len(old) - _SHOWN} more")
    if stray:
        typer.echo(f"{len(stray)} Parquet files that no run refers to:")
        typer.echo("\n".join(f"  {url}" for url in stray[:_SHOWN]))


def _agreed(what: str) -> bool:
    if not sys.stdin.isatty():
        raise ConfigurationError(
            "this deletes results for good and there is no terminal to confirm it: add --yes, or "
            "list by `db prune --dry-run` what is old"
        )
    return typer.confirm(f"delete {what} for good?")


def _mebibytes(count: int) -> str:
    return f"{count / 2**20:,.1f} MiB"
