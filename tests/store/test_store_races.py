"""Transitions of one run from many threads at once: no deadlock, no shard left behind."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Barrier, Event

import pytest
from store_samples import make_result, start

from transexplain.errors import FencedError
from transexplain.store import readers, results, runs, shards
from transexplain.store.database import Database

SHARDS, SIZE, WORKERS = 24, 2, 4


def at_once(*jobs: Callable[[], None]) -> None:
    """Run the jobs in threads that begin together; raises what one of them raised."""
    together = Barrier(len(jobs))

    def run(job: Callable[[], None]) -> None:
        together.wait()
        job()

    with ThreadPoolExecutor(len(jobs)) as pool:
        for done in [pool.submit(run, job) for job in jobs]:
            done.result(timeout=120)


def test_cancel_among_workers_leaves_nothing_open(db: Database) -> None:
    run_id = start(db, SHARDS * SIZE, SIZE)
    some_are_done = Event()

    def work() -> None:
        while (claim := shards.claim(db, run_id, "w", 60)) is not None:
            if claim.shard.index % 5 == 0 and claim.attempt == 1:
                shards.fail(db, claim, "once")
                continue
            with suppress(FencedError):
                results.save(db, claim, make_result(claim.shard))
            some_are_done.set()
            runs.finalise(db, run_id)

    def cancel() -> None:
        assert some_are_done.wait(60)
        runs.cancel(db, run_id)

    at_once(*[work] * WORKERS, cancel, cancel)
    found = runs.get(db, run_id)
    assert found.shards["queued"] + found.shards["running"] == 0
    assert found.state == ("cancelled" if found.shards["cancelled"] else "done")
    items = len(list(readers.iter_items(db, run_id)))
    assert items == SIZE * found.shards["done"] == runs.progress(db, run_id).items_done


@pytest.mark.exhaustive
def test_a_run_is_never_closed_with_work_left_nor_left_open_without(db: Database) -> None:
    """Workers kill shards and close the run while a user drives the dead ones again."""
    run_id = start(db, SHARDS * SIZE, SIZE, max_attempts=1)
    again: list[int] = []
    ended = Event()

    def work() -> None:
        while not ended.is_set():
            claim = shards.claim(db, run_id, "w", 60)
            if claim is None:
                continue
            if claim.token < 3:
                shards.fail(db, claim, "not yet")  # closes the run where it was the last
            else:
                results.save(db, claim, make_result(claim.shard))
                runs.finalise(db, run_id)

    def redrive() -> None:
        while runs.progress(db, run_id).items_done < SHARDS * SIZE:
            again.append(shards.redrive(db, run_id))
        ended.set()

    at_once(*[work] * WORKERS, redrive)
    found = runs.get(db, run_id)
    assert (found.state, found.shards["done"]) == ("done", SHARDS)
    assert sum(again) == 2 * SHARDS, "every shard died twice and came back twice"
    assert len(list(readers.iter_items(db, run_id))) == SHARDS * SIZE
