"""A process that ends at any point of a shard's way leaves a run that others complete."""

import multiprocessing
import os

import pytest
from everyday import only
from sqlalchemy import event
from store_samples import claimable, make_plan, make_result, make_shards

from transexplain.store import results, runs, shards
from transexplain.store.database import Database
from transexplain.store.revisions import open_database

CRASHED = 9
EXPIRED = -1.0  # seconds: a lease that is over when it begins
ROWS, SIZE = 12, 4


def crash(*_: object, **__: object) -> None:
    os._exit(CRASHED)


def crash_in_statement(db: Database, beginning: str) -> None:
    def before(connection: object, cursor: object, statement: str, *_: object) -> None:
        if statement.startswith(beginning):
            crash()

    event.listen(db.engine, "before_cursor_execute", before)


def work_until(url: str, run_id: str, point: str) -> None:
    """Work on the run like a worker whose lease is short, and end the process at `point`."""
    with open_database(url) as db:
        claim = shards.claim(db, run_id, "victim", EXPIRED)
        if point == "after claim":
            crash()
        result = make_result(claim.shard, note="victim")
        if point == "mid results":
            crash_in_statement(db, "INSERT INTO shard_aggregate")
        elif point == "before done":
            event.listen(db.engine, "commit", crash)  # all is written, nothing committed
        results.save(db, claim, result)
        if point == "after commit":
            crash()
        # while it closes the run, or sees that it is not the one to close it
        crash_in_statement(db, "SELECT" if claimable(db, run_id) else "UPDATE run")
        runs.finalise(db, run_id)


@pytest.mark.parametrize(
    ("point", "survives"),
    only(
        ("mid results", False),
        of=[
            ("after claim", False),
            ("mid results", False),
            ("before done", False),
            ("after commit", True),
            ("while closing", True),
        ],
    ),
)
@pytest.mark.parametrize("rows", only(ROWS, of=[SIZE, ROWS]))
def test_the_run_completes_with_every_item_once(
    db: Database, database_url: str, point: str, survives: bool, rows: int
) -> None:
    run_id = runs.create(db, make_plan(rows=rows), make_shards(rows, SIZE))
    victim = multiprocessing.get_context("spawn").Process(
        target=work_until, args=(database_url, run_id, point)
    )
    victim.start()
    victim.join()
    assert victim.exitcode == CRASHED
    left = list(results.iter_items(db, run_id))
    assert len(left) == (SIZE if survives else 0)
    assert runs.get(db, run_id).state == "running"
    while (claim := shards.claim(db, run_id, "heir", 60)) is not None:
        results.save(db, claim, make_result(claim.shard, note="heir"))
    assert runs.finalise(db, run_id)
    assert [one.item_id for one in results.iter_items(db, run_id)] == [
        f"id-{row}" for row in range(rows)
    ]
    assert len(list(results.iter_attributions(db, run_id))) == 2 * rows
    assert len(list(results.iter_mentions(db, run_id))) == rows
    wanted = ["victim" if survives else "heir"] + ["heir"] * (rows // SIZE - 1)
    assert [one["note"] for one in results.aggregates(db, run_id)] == wanted
