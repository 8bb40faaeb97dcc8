"""What coordination costs a fleet: simulated workers against PostgreSQL and Redis.

    python -m benchmarks.fleet [--items N --shard-size N --claimers N --processes N
                                --shard-seconds S --write full|none --own-postgres]

The explainer sleeps; everything around it is real: plan, messages, claims, leases, breadcrumbs,
rows, commits, sweeps. The default fits a PostgreSQL of 100 connections and runs a minute or two;

    python -m benchmarks.fleet --items 1000000 --claimers 200 --processes 2 --shard-seconds 10 \\
                               --own-postgres

is the full size, on a server of its own. Clients and servers share this machine: rates are what
all of it reaches together, and latencies hold the waiting for a processor.
"""

import argparse
import json
import multiprocessing
import os
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from sqlalchemy import text

from benchmarks import services
from benchmarks.fleet_claimers import Load, Times, work
from benchmarks.fleet_figures import Figures, reported, summarise
from benchmarks.fleet_results import plan_of, texts
from orchestrator.dispatch import queue as sweep
from transexplain.data.shard_reader import make_shards
from transexplain.data.snapshot import prepare
from transexplain.settings import Settings
from transexplain.store import runs
from transexplain.store.database import Database
from transexplain.store.revisions import open_database
from transexplain.types.plans import DatasetSpec
from workers.queue_names import queue_of

#: connections of one worker: three threads and a lease keeper per shard in hand
_CONNECTIONS = 5


def main() -> None:
    """Parse, simulate, print."""
    options = _parsed()
    services.end_cleanly()
    try:
        figures = simulate(options)
    except services.MissingServerError as missing:
        raise SystemExit(f"not measured: {missing}") from missing
    summary = summarise(figures, vars(options))
    for line in reported(summary):
        print(line)
    if options.json:
        Path(options.json).write_text(json.dumps(summary, indent=1), encoding="utf-8")


def simulate(options: argparse.Namespace) -> Figures:
    """One run from its plan to its last shard. Raises services.MissingServerError."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        needed = options.claimers * _CONNECTIONS + 20
        admin = (
            stack.enter_context(services.own_postgres(needed))
            if options.own_postgres
            else services.POSTGRES
        )
        settings = Settings(
            database_url=stack.enter_context(services.own_database(admin)),
            broker_url=services.REDIS,
            snapshot_dir=folder,
            queue=stack.enter_context(services.own_queue()),
        )
        db = stack.enter_context(open_database(settings.database_url, upgrade=True))
        figures = Figures(environment=_environment(db))
        limit = int(figures.environment["max_connections"])
        if not options.own_postgres and limit < needed:
            raise services.MissingServerError(
                f"{options.claimers} claimers need up to {needed} connections and the server has "
                f"{limit}; give --own-postgres or fewer --claimers"
            )
        run_id = _planned(db, options, folder, figures)
        _work(db, settings, run_id, options, figures)
        figures.sizes = _sizes(db)
        return figures


def _planned(db: Database, options: argparse.Namespace, folder: Path, figures: Figures) -> str:
    source = folder / "texts.tsv"
    source.write_text("text\n" + "".join(f"{one}\n" for one in texts(options.items)))
    begun = time.perf_counter()
    dataset = prepare(DatasetSpec(source=str(source)), folder / "snapshots")
    snapshot = time.perf_counter()
    cut = make_shards(dataset.rows, options.shard_size)
    plan = plan_of(dataset.rows, options.shard_size)
    planned = time.perf_counter()
    run_id = runs.create(db, plan, cut)
    figures.plan = {
        "snapshot": snapshot - begun,
        "cut": planned - snapshot,
        "insert": time.perf_counter() - planned,
    }
    return run_id


def _work(
    db: Database, settings: Settings, run_id: str, options: argparse.Namespace, figures: Figures
) -> None:
    context = multiprocessing.get_context("spawn")
    queue = queue_of(settings, runs.get(db, run_id).plan)
    with context.Manager() as manager, ProcessPoolExecutor(options.processes, context) as pool:
        over: Any = manager.Event()
        before = _transactions(db)
        begun = time.perf_counter()
        parts = [
            pool.submit(work, settings, _load(options, run_id, queue, count), over)
            for count in _shares(options.claimers, options.processes)
        ]
        try:
            _watch(db, settings, run_id, figures, parts)
        finally:
            over.set()
        seconds = time.perf_counter() - begun
        figures.statements = {"transactions": (_transactions(db) - before) / seconds}
        for part in parts:
            times, opened = part.result()
            figures.times += times
            figures.opened += opened


def _load(options: argparse.Namespace, run_id: str, queue: str, claimers: int) -> Load:
    return Load(
        run_id=run_id,
        queue=queue,
        claimers=claimers,
        item_seconds=options.shard_seconds / options.shard_size,
        write=options.write == "full",
    )


def _shares(claimers: int, processes: int) -> Iterator[int]:
    for number in range(processes):
        yield claimers // processes + (number < claimers % processes)


def _watch(
    db: Database,
    settings: Settings,
    run_id: str,
    figures: Figures,
    parts: list["Future[tuple[list[Times], int]]"],
) -> None:
    """Sweep as `submit --wait` and `beat` do, until the run is over or a process failed."""
    state, swept = "running", float("-inf")
    while state == "running" and not any(part.done() for part in parts):
        if time.monotonic() - swept > sweep.EVERY:
            swept = time.monotonic()
            begun = time.perf_counter()
            done = sweep.sweep(db, settings, every=sweep.EVERY - 0.1)
            figures.sweeps.append((time.perf_counter() - begun, done[0] if done else 0))
        begun = time.perf_counter()
        state = runs.progress(db, run_id).state
        figures.progress.append(time.perf_counter() - begun)
        figures.connections = max(figures.connections, _connections(db))
        time.sleep(0.5)


def _one(db: Database, query: str) -> Any:
    with db.read() as connection:
        return connection.execute(text(query)).scalar_one()


def _connections(db: Database) -> int:
    return int(_one(db, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"))


def _transactions(db: Database) -> int:
    return int(
        _one(db, "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()")
    )


def _environment(db: Database) -> dict[str, Any]:
    names = ("server_version", "max_connections", "shared_buffers", "synchronous_commit", "fsync")
    return {"processors": os.cpu_count(), **{name: _one(db, f"SHOW {name}") for name in names}}


def _sizes(db: Database) -> dict[str, int]:
    tables = ("run", "shard", "item", "attribution", "mention", "shard_aggregate")
    size = (  # of a table in partitions all of them, without them itself
        "SELECT coalesce((SELECT sum(pg_total_relation_size(relid)) FROM "
        "pg_partition_tree('{0}')), pg_total_relation_size('{0}'))"
    )
    sizes = {name: int(_one(db, size.format(name))) for name in tables}
    return {"database": int(_one(db, "SELECT pg_database_size(current_database())")), **sizes}


def _parsed(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--items", type=int, default=50_000)
    parser.add_argument("--shard-size", type=int, default=100)
    parser.add_argument("--claimers", type=int, default=12)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--shard-seconds", type=float, default=1.0, help="sleep per shard")
    parser.add_argument("--write", choices=("full", "none"), default="full")
    parser.add_argument("--own-postgres", action="store_true", help="start one for the purpose")
    parser.add_argument("--json", help="also write the figures to this file")
    return parser.parse_args(words)


if __name__ == "__main__":
    main()
