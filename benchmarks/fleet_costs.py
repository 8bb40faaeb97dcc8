"""What claims, commits' ends, sweeps and progress cost by the number of shards of a run.

    python -m benchmarks.fleet_costs [--shards N ...] [--repeats N] [--own-postgres]

Each size is one run in a PostgreSQL database of its own, looked at when nothing is done, when half
is, and when 1,000 shards are left; nobody else works on it. Milliseconds, medians. `finalise` is
what each commit ends with; a sweep is `exhausted` + `waiting` + `take`.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from sqlalchemy import text

from benchmarks import services
from benchmarks.fleet_results import plan_of
from orchestrator.dispatch import queue
from transexplain.store import queueing, runs, shards
from transexplain.store.database import Database
from transexplain.store.revisions import open_database

_SIZE = 100  #: items of a shard
_LEFT = 1_000
#: SQL, not the store: what is timed comes after
_INSERT = (
    'INSERT INTO shard (run_id, "index", start, stop, state, attempt, token, explained, failed) '
    f"SELECT :run, n, n * {_SIZE}, (n + 1) * {_SIZE}, 'queued', 0, 0, 0, 0 "
    "FROM generate_series(0, :last) AS n"
)
_DONE = (
    "UPDATE shard SET state = 'done', attempt = 1, token = 1, worker = 'w', seconds = 1.0, "
    f"explained = {_SIZE} WHERE run_id = :run AND state = 'queued' AND \"index\" < :done"
)


def main(words: list[str] | None = None) -> None:
    """Parse, measure, print."""
    options = _parsed(words)
    services.end_cleanly()
    rows = []
    try:
        for count in options.shards:
            for row in costs(count, options.repeats, own=options.own_postgres):
                print(shown(row), flush=True)
                rows.append(row)
    except services.MissingServerError as missing:
        raise SystemExit(f"not measured: {missing}") from missing
    if options.json:
        Path(options.json).write_text(json.dumps(rows, indent=1), encoding="utf-8")


def costs(count: int, repeats: int, *, own: bool = False) -> Iterator[dict[str, Any]]:
    """One row per state of a run of `count` shards; milliseconds."""
    with ExitStack() as stack:
        admin = stack.enter_context(services.own_postgres(20)) if own else services.POSTGRES
        url = stack.enter_context(services.own_database(admin))
        db = stack.enter_context(open_database(url, upgrade=True))
        run_id = runs.create(db, plan_of(count * _SIZE, _SIZE), ())
        with db.begin() as connection:
            connection.execute(text(_INSERT), {"run": run_id, "last": count - 1})
        for done in sorted({0, count // 2, max(0, count - _LEFT)}):
            with db.begin() as connection:
                connection.execute(text(_DONE), {"run": run_id, "done": done})
            _vacuum(db)  # as autovacuum does sooner or later
            row: dict[str, Any] = {"shards": count, "done": done}
            for name, call in _operations(db, run_id).items():
                row[name] = statistics.median(_milliseconds(call) for _ in range(repeats))
            yield row


def _operations(db: Database, run_id: str) -> dict[str, Callable[[], object]]:
    def claim() -> None:
        found = shards.claim(db, run_id, "benchmark", 60.0)
        assert found is not None
        given.append(found)

    given: list[Any] = []
    return {
        "claim": claim,
        "give_back": lambda: shards.give_back(db, given.pop()),
        "finalise": lambda: runs.finalise(db, run_id),
        "exhausted": lambda: queueing.exhausted(db),
        "waiting": lambda: queueing.waiting(db, {run_id: None}, queue.BOUND),
        "take": lambda: queueing.take(db, {run_id: None}, queue.BOUND, 0.0),
        "progress": lambda: runs.progress(db, run_id),
    }


def _milliseconds(call: Callable[[], object]) -> float:
    begun = time.perf_counter()
    call()
    return 1000 * (time.perf_counter() - begun)


def _vacuum(db: Database) -> None:
    with db.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("VACUUM ANALYZE shard"))


def shown(row: dict[str, Any]) -> str:
    """A row as it is printed."""
    times = ", ".join(
        f"{name} {value:.2f}" for name, value in row.items() if name not in ("shards", "done")
    )
    return f"{row['shards']:>9} shards, {row['done']:>9} done: {times} ms"


def _parsed(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--shards", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--own-postgres", action="store_true", help="start one for the purpose")
    parser.add_argument("--json", help="also write the figures to this file")
    return parser.parse_args(words)


if __name__ == "__main__":
    main()
