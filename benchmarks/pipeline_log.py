"""When shards were claimed, begun and saved, written down by triggers in the benchmark's database.

The store keeps no such times. A shard is begun at its first breadcrumb, which is written right
before the first batch, and saved when its aggregate, the last of its rows, is there.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from sqlalchemy import text

from transexplain.store.database import Database

_TABLE = (
    "CREATE TABLE benchmark_log (run_id TEXT, shard INTEGER, worker TEXT, items INTEGER, "
    "event TEXT, at DOUBLE PRECISION)"
)
_NOW = {
    "sqlite": "(julianday('now') - 2440587.5) * 86400.0",
    "postgresql": "extract(epoch FROM clock_timestamp())",
}
#: event -> what happens to which table, when it counts, the columns that name the shard
_EVENTS = {
    "claimed": ("UPDATE ON shard", "NEW.state = 'running' AND OLD.state <> 'running'", "index"),
    "begun": ("UPDATE ON shard", "OLD.breadcrumb IS NULL AND NEW.breadcrumb IS NOT NULL", "index"),
    "saved": ("INSERT ON shard_aggregate", None, "shard"),
}


def prepare_log(db: Database) -> None:
    """Add the log's table and triggers to a database that is the benchmark's own."""
    with db.begin() as connection:
        dialect = connection.dialect.name
        connection.execute(text(_TABLE))
        for event, (what, condition, column) in _EVENTS.items():
            insert = (
                "INSERT INTO benchmark_log "
                f"SELECT run_id, \"index\", worker, stop - start, '{event}', {_NOW[dialect]} "
                f'FROM shard WHERE run_id = NEW.run_id AND "index" = NEW."{column}"'
            )
            when = f"WHEN ({condition})" if condition else ""
            for statement in _trigger(dialect, event, what, when, insert):
                connection.exec_driver_sql(statement)


def _trigger(dialect: str, event: str, what: str, when: str, insert: str) -> Iterator[str]:
    head = f"CREATE TRIGGER benchmark_{event} AFTER {what} FOR EACH ROW {when}"
    if dialect == "sqlite":
        yield f"{head} BEGIN {insert}; END"
        return
    yield (
        f"CREATE FUNCTION benchmark_{event}() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$BEGIN {insert}; RETURN NULL; END$$"
    )
    yield f"{head} EXECUTE FUNCTION benchmark_{event}()"


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """One run of one lane."""

    rate: float  #: items/s of all workers together, each from its first batch to its last commit
    seconds: float  #: from the first batch of any worker to the last commit
    start: float  #: seconds from the start of the process to its first claim, the longest
    load: float  #: seconds from the first claim to the first batch: the model, and items, longest
    workers: int
    shard_seconds: float  #: from a worker's commit to its next, median; the first from its begin
    items: dict[str, int]  #: worker -> items


def measured(db: Database, run_id: str, started: float) -> Measured:
    """What the log says of a run whose processes were started at `started` (time.time())."""
    query = text(
        "SELECT worker, event, at, items FROM benchmark_log WHERE run_id = :run ORDER BY at"
    )
    by_worker: dict[str, list[tuple[str, float, int]]] = {}
    with db.read() as connection:
        for worker, event, at, items in connection.execute(query, {"run": run_id}):
            by_worker.setdefault(worker, []).append((event, float(at), items))
    first: dict[tuple[str, str], float] = {}
    rate, gaps, ends, counts = 0.0, [], [], {}
    for worker, rows in by_worker.items():
        for event, at, _ in rows:
            first.setdefault((worker, event), at)
        saved = [(at, items) for event, at, items in rows if event == "saved"]
        if not saved:
            continue
        moments = [first[worker, "begun"], *(at for at, _ in saved)]
        counts[worker] = sum(items for _, items in saved)
        rate += counts[worker] / (moments[-1] - moments[0])
        gaps += [after - before for before, after in pairwise(moments)]
        ends.append(moments[-1])
    return Measured(
        rate=rate,
        seconds=max(ends) - min(first[worker, "begun"] for worker in counts),
        start=max(first[worker, "claimed"] for worker in counts) - started,
        load=max(first[worker, "begun"] - first[worker, "claimed"] for worker in counts),
        workers=len(counts),
        shard_seconds=sorted(gaps)[len(gaps) // 2],
        items=counts,
    )


def wait_until_done(db: Database, run_id: str, seconds: float) -> None:
    """Wait for a run's end; RuntimeError where it takes longer than `seconds`."""
    until = time.monotonic() + seconds
    query = text("SELECT state FROM run WHERE id = :run")
    while True:
        with db.read() as connection:
            state = connection.execute(query, {"run": run_id}).scalar_one()
        if state != "running":
            return
        if time.monotonic() > until:
            raise RuntimeError(f"run {run_id} is not done after {seconds:g} s")
        time.sleep(0.1)
