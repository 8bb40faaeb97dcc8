"""What a report costs: over a run of 10^6 items and 10^7 mentions, every table filled.

    python -m benchmarks.report_at_scale [--items N] [--entities N] [--pool N]
        [--shard-size N] [--sqlite]

A run is made up in a database of its own, dropped afterwards, on the PostgreSQL server of
`TRANSEXPLAIN_TEST_POSTGRES`, or in a file. `--pool` shards are made by the code that audits use:
texts of about 30 words of which a third name an entity, one explanation each, wrong answers and
failures. The others are copies of these under ids of their own. Then `transexplain report` is
run once, its time and highest memory are taken, and its parts once more.
Aims: under 25 s and 800 MiB for 10^6 items and 10^7 mentions.
"""

import argparse
import json
import multiprocessing
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Text, cast, func, literal, select

from benchmarks.report_rows import Corpus, moved, shard_of
from benchmarks.services import end_cleanly, own_database
from transexplain.provenance.manifest import manifest_of
from transexplain.reports.report_section import merged
from transexplain.reports.sections.gallery_items import choose, collect, scale_of
from transexplain.reports.sections.group_section import groups_of
from transexplain.reports.sections.item_fates import counts_of, failures
from transexplain.reports.sections.measured_faithfulness import conservation_of
from transexplain.reports.summary import GALLERY
from transexplain.store import results, runs
from transexplain.store import shards as claims
from transexplain.store.database import Database
from transexplain.store.revisions import open_database
from transexplain.store.runs import recorded_shards
from transexplain.store.schema import OF_ITEMS, shard, shard_aggregate
from transexplain.store.shard_digests import damaged, held_digest


def store(url: str, corpus: Corpus, pool: int, processes: int, previous: str | None = None) -> str:
    """Save `pool` shards as a worker would, the others as copies of them; the run's id."""
    pool = min(pool, corpus.shards)
    with open_database(url, upgrade=True) as db:
        run_id = runs.create(db, corpus.plan, corpus.cut, previous)
        fresh = multiprocessing.get_context("spawn")
        with fresh.Pool(processes) as workers:
            wanted = [(corpus, index) for index in range(pool)]
            for made in workers.imap_unordered(shard_of, wanted):
                claim = claims.claim(db, run_id, "benchmark", 600.0, shard_index=made.shard.index)
                assert claim is not None
                results.save(db, claim, made)
        for first in range(pool, corpus.shards, pool):
            _copy(db, run_id, corpus.shard_size, first, min(pool, corpus.shards - first))
            _sign(db, run_id)
        runs.finalise(db, run_id)
        _settle(db)
    return run_id


def _copy(db: Database, run_id: str, size: int, first: int, count: int) -> None:
    """Shards `first` and following, of `size` items each, as copies of the first `count`."""
    done = {"state": "done", "explained": size - 1, "failed": 1, "attempt": 1, "token": 1}
    with db.begin() as connection:
        for table in (*OF_ITEMS, shard_aggregate):
            values = {column.name: column for column in table.c}
            values["shard"] = table.c.shard + first
            if "idx" in values:
                values["idx"] = table.c.idx + first * size
            if "item_id" in values:
                values["item_id"] = literal("row-").concat(cast(values["idx"], Text))
            query = select(*values.values()).where(table.c.run_id == run_id, table.c.shard < count)
            connection.execute(table.insert().from_select(list(values), query))
        copies = (shard_aggregate.c.run_id == run_id) & (shard_aggregate.c.shard >= first)
        stored = select(shard_aggregate.c.shard, shard_aggregate.c.summary).where(copies)
        for index, summary in connection.execute(stored).all():
            at = copies & (shard_aggregate.c.shard == index)
            further = {"summary": moved(summary, first * size)}
            connection.execute(shard_aggregate.update().where(at).values(further))
        connection.execute(
            shard.update()
            .where(shard.c.run_id == run_id, shard.c.index >= first, shard.c.index < first + count)
            .values(**done)
        )


def _sign(db: Database, run_id: str) -> None:
    """Record the digests of shards that have none."""
    copies = [
        each for each in recorded_shards(db, run_id) if each.state == "done" and not each.digest
    ]
    with db.begin() as connection:
        for recorded in copies:
            digest = held_digest(connection, run_id, recorded)
            at = (shard.c.run_id == run_id) & (shard.c.index == recorded.index)
            connection.execute(shard.update().where(at).values(digest=digest))


def _settle(db: Database) -> None:
    """What a server's own upkeep does in the minutes after so many rows."""
    with db.engine.connect() as connection:
        plain = connection.execution_options(isolation_level="AUTOCOMMIT")
        wanted = "VACUUM (ANALYZE)" if db.engine.name == "postgresql" else "ANALYZE"
        plain.exec_driver_sql(wanted)


def count_rows(url: str) -> None:
    """Print what is in the tables."""
    with open_database(url) as db, db.read() as connection:
        for table in (*OF_ITEMS, shard_aggregate):
            number = connection.execute(select(func.count()).select_from(table)).scalar_one()
            print(f"{table.name:<24}{number:>12,} rows")


#: runs a command and writes what it used into the file that comes first. A process of its own,
#: because the highest memory of a child counts from what its parent held when it was started.
_MEASURED = """
import json, resource, subprocess, sys
code = subprocess.call(sys.argv[2:])
used = resource.getrusage(resource.RUSAGE_CHILDREN)
with open(sys.argv[1], "w") as file:
    json.dump({"mib": used.ru_maxrss / 1024, "seconds": used.ru_utime + used.ru_stime}, file)
sys.exit(code)
"""


def report(url: str, run_id: str) -> None:
    """Run the command, print its time and highest memory."""
    with tempfile.TemporaryDirectory() as folder, tempfile.NamedTemporaryFile() as figures:
        begun = time.perf_counter()
        command = [sys.executable, "-m", "orchestrator.cli", "report", run_id]
        measured = [sys.executable, "-c", _MEASURED, figures.name, *command]
        code = subprocess.call([*measured, "--db", url, "--report-dir", folder])
        spent = time.perf_counter() - begun
        if code:
            raise SystemExit(code)
        used = json.load(figures)
        sizes = {path.name: path.stat().st_size for path in Path(folder).rglob("*.*")}
    print(f"transexplain report     {spent:8.1f} s   aim 25 s for 10^6 items, 10^7 mentions")
    print(f"of it computing here    {used['seconds']:8.1f} s")
    print(f"highest memory          {used['mib']:8.0f} MiB   aim 800")
    for name, size in sorted(sizes.items()):
        print(f"  {name:<22}{size / 2**20:8.2f} MiB")


def stages(url: str, run_id: str) -> None:
    """The parts of a report one after the other, in this process."""
    with open_database(url) as db:
        run = runs.get(db, run_id)
        total = _timed("merging the totals", lambda: merged(db, run_id))
        chosen = _timed("examples by index", lambda: choose(db, run_id, GALLERY))
        scale = _timed("scale by index", lambda: scale_of(db, run_id, total.seen.count.total()))
        _timed("digests of shards", lambda: damaged(db, run_id))
        _timed("failures", lambda: failures(db, run_id))
        _timed("counts", lambda: counts_of(db, run))
        _timed("ledgers", lambda: conservation_of(db, run))
        _timed("groups and controls", lambda: groups_of(db, run, total))
        _timed("manifest", lambda: manifest_of(db, run_id))
        _timed("gallery", lambda: collect(db, run_id, chosen, scale))


def _timed(what: str, work: Callable[[], Any]) -> Any:
    begun, spent = time.perf_counter(), time.process_time()
    found = work()
    wall, here = time.perf_counter() - begun, time.process_time() - spent
    print(f"  {what:<22}{wall:8.1f} s   {here:6.1f} s of it computing here", flush=True)
    return found


@contextmanager
def made_up_database(options: argparse.Namespace) -> Iterator[str]:
    """The URL of an empty database that goes away afterwards, as the options want it."""
    if not options.sqlite:
        with own_database() as url:
            yield url
        return
    with tempfile.TemporaryDirectory() as folder:
        yield f"sqlite:///{Path(folder) / 'made-up.db'}"


def main() -> None:
    """Parse, make up, report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--entities", type=int, default=10_000)
    parser.add_argument("--groups", type=int, default=20)
    parser.add_argument("--pool", type=int, default=16, help="shards that are no copies")
    parser.add_argument("--shard-size", type=int, help="items; else as a plan cuts this many")
    parser.add_argument("--processes", type=int, default=2, help="that make these")
    parser.add_argument("--sqlite", action="store_true", help="a file instead of a server")
    options = parser.parse_args()
    end_cleanly()
    corpus = Corpus(
        items=options.items,
        entities=options.entities,
        groups=options.groups,
        size=options.shard_size or "auto",
    )
    with made_up_database(options) as url:
        begun = time.perf_counter()
        run_id = store(url, corpus, options.pool, options.processes)
        count_rows(url)
        print(f"made in                 {time.perf_counter() - begun:8.1f} s", flush=True)
        report(url, run_id)
        fresh = multiprocessing.get_context("spawn")
        parts = fresh.Process(target=stages, args=(url, run_id))
        parts.start()
        parts.join()
    raise SystemExit(parts.exitcode)


if __name__ == "__main__":
    main()
