"""Claims: leases, attempts, fencing, and that two claimers never hold the same shard."""

import multiprocessing
import os
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace

import pytest
from everyday import only
from sqlalchemy import event, select, text
from store_samples import claimable, claimed, make_plan, make_result, make_shards, start, work

from transexplain.errors import DatabaseError, FencedError
from transexplain.store import readers, results, run_totals, runs, shards
from transexplain.store.database import Database
from transexplain.store.revisions import open_database
from transexplain.store.runs import Claim
from transexplain.store.schema import metadata
from transexplain.types.plans import Shard

EXPIRED = -1.0  # seconds: a lease that is over when it begins


def state_of(db: Database, run_id: str, index: int) -> str:
    return shards.list_shards(db, run_id)[index].state


def everything(db: Database) -> dict[str, list[tuple[object, ...]]]:
    with db.read() as connection:
        return {
            table.name: sorted(map(repr, connection.execute(select(table))))
            for table in metadata.sorted_tables
        }


def test_claims_go_through_the_shards_once_and_their_time_is_listed(db: Database) -> None:
    run_id = start(db)
    claims = [claimed(db, run_id) for _ in range(3)]
    assert [claim.shard for claim in claims] == list(make_shards())
    assert {(claim.token, claim.attempt) for claim in claims} == {(1, 1)}
    assert shards.claim(db, run_id, "w", 60) is None
    for claim in reversed(claims):
        assert shards.note(db, claim, ["in hand"])
        taken = replace(make_result(claim.shard), seconds=1.0 + claim.shard.index)
        results.save(db, claim, taken)
    listed = shards.list_shards(db, run_id)
    assert [(one.shard.index, one.seconds) for one in listed] == [(0, 1.0), (1, 2.0), (2, 3.0)]
    assert {one.breadcrumb for one in listed} == {()}


def test_a_named_shard_or_none(db: Database) -> None:
    run_id = start(db)
    claim = shards.claim(db, run_id, "w", 60, shard_index=1)
    assert claim.shard == Shard(index=1, start=4, stop=8)
    assert shards.claim(db, run_id, "w", 60, shard_index=1) is None
    assert shards.claim(db, run_id, "w", 60, shard_index=99) is None
    assert claimable(db, run_id) == [0, 2]
    assert claimable(db, run_id, limit=1) == [0]


@pytest.mark.exhaustive
@pytest.mark.postgres
def test_a_claim_locks_its_shard_only_and_waits_for_no_other(postgres_url: str) -> None:
    with open_database(postgres_url, upgrade=True) as db, ThreadPoolExecutor(1) as pool:
        run_id = start(db)
        second: list[Claim | None] = []

        @event.listens_for(db.engine, "commit", once=True)
        def amid(_: object) -> None:
            claim = pool.submit(shards.claim, db, run_id, "second", 60.0)
            second.append(claim.result(timeout=30))

        first = claimed(db, run_id, worker="first")
        assert first.shard.index == 0
        assert [claim.shard.index for claim in second if claim] == [1]


def test_an_expired_lease_is_taken_over_with_a_higher_token(db: Database) -> None:
    run_id = start(db, 4)
    first = claimed(db, run_id, EXPIRED, worker="first")
    assert claimable(db, run_id) == [0]
    second = claimed(db, run_id, worker="second")
    assert (second.token, second.attempt) == (first.token + 1, 2)
    status = shards.list_shards(db, run_id)[0]
    assert (status.worker, status.state, status.attempt) == ("second", "running", 2)
    assert 0 < status.lease_left <= 60


def test_a_zombie_cannot_save_renew_fail_or_give_back(db: Database) -> None:
    run_id = start(db, 4)
    zombie = claimed(db, run_id, EXPIRED, worker="zombie")
    claimed(db, run_id, worker="heir")
    before = everything(db)
    with pytest.raises(FencedError, match="attempt 1"):
        results.save(db, zombie, make_result(zombie.shard, note="zombie"))
    assert not shards.renew(db, zombie, 60, ["id-2"])
    assert not shards.note(db, zombie, ["id-2"])
    assert shards.hang(db, zombie, ["id-2"], "late") is None
    assert not shards.give_back(db, zombie)
    assert shards.fail(db, zombie, "too late") is None
    assert everything(db) == before


def test_leases_of_a_dead_process_end_in_the_run_that_is_named(db: Database) -> None:
    run_id, other = start(db), start(db)
    results.save(db, claim := claimed(db, run_id, worker="host:1:b"), make_result(claim.shard))
    for run in (run_id, run_id, other):
        claimed(db, run, worker="host:1:b")
    assert shards.expire(db, run_id, "host_1:") == shards.expire(db, run_id, "host:12:") == 0
    assert shards.expire(db, run_id, "host:1:") == 2, "what is done has no lease"
    left = [one.lease_left for one in shards.list_shards(db, run_id)]
    assert left[0] is None
    assert all(lease is not None and lease < 0 for lease in left[1:])
    assert shards.holders(db, run_id) == []
    assert shards.holders(db, other) == ["host:1:b"]


def test_holders_are_listed_once_and_by_name(db: Database) -> None:
    run_id, other = start(db, 40), start(db)
    for worker in "dbfacedbfa":
        claimed(db, run_id, worker=worker)
    claimed(db, other, worker="z")
    assert shards.holders(db, run_id) == list("abcdef")
    assert shards.holders(db, None) == [*"abcdef", "z"]


def test_postgresql_waits_for_no_disk_when_a_breadcrumb_is_noted(db: Database) -> None:
    claim = claimed(db, start(db))
    printed: list[str] = []
    event.listen(db.engine, "before_cursor_execute", lambda *args: printed.append(args[2]))
    assert shards.note(db, claim, ["a"])
    unsynchronised = [one for one in printed if "synchronous_commit TO OFF" in one]
    assert len(unsynchronised) == (db.engine.dialect.name == "postgresql")


def test_failing_ends_in_dead_with_the_message(db: Database) -> None:
    run_id = start(db, 4, max_attempts=2)
    assert shards.fail(db, claimed(db, run_id), "first") == "queued"
    claim = claimed(db, run_id)
    assert shards.note(db, claim, ["id-0", "id-1"])
    assert shards.fail(db, claim, "second \x00") == "dead"
    assert shards.claim(db, run_id, "w", 60) is None
    [status] = shards.list_shards(db, run_id, states=("dead",))
    assert (status.error, status.attempt) == ("second \x00", 2)
    assert (status.lease_left, status.breadcrumb) == (None, ())
    assert shards.redrive(db, run_id) == 1
    assert claimed(db, run_id).attempt == 1


def test_a_worker_that_keeps_vanishing_kills_its_shard_not_the_run(db: Database) -> None:
    run_id = start(db, 8, max_attempts=2)
    for _ in range(2):
        assert shards.claim(db, run_id, "victim", EXPIRED, shard_index=0) is not None
    claim = claimed(db, run_id)
    assert claim.shard.index == 1
    assert shards.claim(db, run_id, "w", 60) is None
    status = shards.list_shards(db, run_id)[0]
    assert (status.state, status.lease_left) == ("dead", None)
    assert status.error is not None and "victim" in status.error
    results.save(db, claim, make_result(claim.shard))
    assert runs.finalise(db, run_id)


def test_a_failing_shard_waits_behind_the_others(db: Database) -> None:
    run_id = start(db)
    shards.fail(db, claimed(db, run_id), "poison")
    assert [claimed(db, run_id).shard.index for _ in range(3)] == [1, 2, 0]


def test_an_error_while_saving_leaves_nothing_behind(db: Database) -> None:
    run_id = start(db, 4)
    claim = claimed(db, run_id)
    before = everything(db)

    def break_off(
        connection: object, cursor: object, statement: str, *_: object, **__: object
    ) -> None:
        if statement.startswith("INSERT INTO shard_aggregate"):
            raise RuntimeError("power cut")

    event.listen(db.engine, "before_cursor_execute", break_off)
    try:
        with pytest.raises(RuntimeError, match="power cut"):
            results.save(db, claim, make_result(claim.shard))
    finally:
        event.remove(db.engine, "before_cursor_execute", break_off)
    assert everything(db) == before
    results.save(db, claim, make_result(claim.shard))
    assert len(list(readers.iter_mentions(db, run_id))) == 4


def drain(url: str, run_id: str, worker: str) -> list[tuple[int, int]]:
    """Claim and save until nothing is left; (shard, token) of each."""
    got = []
    with open_database(url) as db:
        while (claim := shards.claim(db, run_id, worker, 60)) is not None:
            got.append((claim.shard.index, claim.token))
            assert shards.renew(db, claim, 60)
            results.save(db, claim, make_result(claim.shard, note=worker))
    return got


@pytest.mark.parametrize("kind", only("threads", of=["threads", "processes"]))
def test_concurrent_claimers_never_share_a_shard(store_url: str, kind: str) -> None:
    with open_database(store_url, upgrade=True) as db:
        run_id = runs.create(db, make_plan(rows=60), make_shards(60, 2))
        pool = (
            ThreadPoolExecutor(6)
            if kind == "threads"
            else ProcessPoolExecutor(3, mp_context=multiprocessing.get_context("spawn"))
        )
        with pool:
            jobs = [pool.submit(drain, store_url, run_id, f"w{n}") for n in range(6)]
            got = Counter(pair for job in jobs for pair in job.result())
        assert got == Counter({(index, 1): 1 for index in range(30)})
        assert runs.finalise(db, run_id)
        assert runs.progress(db, run_id).items_done == 60


def test_racing_for_one_expired_shard_has_one_winner(db: Database) -> None:
    run_id = start(db, 4)
    claimed(db, run_id, EXPIRED, worker="gone")
    with ThreadPoolExecutor(8) as pool:
        claims = list(pool.map(lambda n: shards.claim(db, run_id, f"w{n}", 60), range(8)))
    winners = [claim for claim in claims if claim is not None]
    assert [(claim.token, claim.attempt) for claim in winners] == [(2, 2)]


def test_redelivery_gives_the_results_once(db: Database) -> None:
    run_id = start(db, 4)
    for note in ("first", "second", "third"):
        claim = claimed(db, run_id)
        results.save(db, claim, make_result(claim.shard, note=note))
        with db.begin() as connection:  # as if the commit's acknowledgement had been lost
            connection.execute(text("UPDATE shard SET state = 'queued', attempt = 0"))
    assert [one.item_id for one in readers.iter_items(db, run_id)] == [f"id-{n}" for n in range(4)]
    assert len(list(readers.iter_attributions(db, run_id))) == 8
    assert len(list(readers.iter_mentions(db, run_id))) == 4
    assert [one["note"] for one in run_totals.aggregates(db, run_id)] == ["third"]


@pytest.mark.exhaustive
@pytest.mark.postgres
def test_a_server_that_goes_away_is_a_database_error(postgres_url: str) -> None:
    with open_database(postgres_url, upgrade=True) as db:
        run_id = start(db)
        with pytest.raises(DatabaseError, match="terminat"), db.begin() as connection:
            connection.execute(text("SELECT pg_terminate_backend(pg_backend_pid())"))
        assert claimed(db, run_id).attempt == 1


# ---- a process that ends at any point of a shard's way leaves a run that others complete


CRASHED = 9
ROWS, SIZE = 12, 4
#: where the process ends, and whether its results are there then
POINTS = {
    **dict.fromkeys(("after claim", "mid results", "before done"), False),
    **dict.fromkeys(("after commit", "while closing"), True),
}


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


@pytest.mark.parametrize("point", only("mid results", of=POINTS))
@pytest.mark.parametrize("rows", only(ROWS, of=[SIZE, ROWS]))
def test_the_run_completes_with_every_item_once(
    db: Database, store_url: str, point: str, rows: int
) -> None:
    run_id, survives = start(db, rows, SIZE), POINTS[point]
    victim = multiprocessing.get_context("spawn").Process(
        target=work_until, args=(store_url, run_id, point)
    )
    victim.start()
    victim.join()
    assert victim.exitcode == CRASHED
    left = list(readers.iter_items(db, run_id))
    assert len(left) == (SIZE if survives else 0)
    assert runs.get(db, run_id).state == "running"
    work(db, run_id, note="heir")
    assert runs.get(db, run_id).state == "done"
    ids = [item.item_id for item in readers.iter_items(db, run_id)]
    assert ids == [f"id-{row}" for row in range(rows)]
    assert len(list(readers.iter_attributions(db, run_id))) == 2 * rows
    assert len(list(readers.iter_mentions(db, run_id))) == rows
    wanted = ["victim" if survives else "heir"] + ["heir"] * (rows // SIZE - 1)
    assert [one["note"] for one in run_totals.aggregates(db, run_id)] == wanted
