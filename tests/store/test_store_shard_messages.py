"""Which shards are hinted, how often, and one process at a time."""

from concurrent.futures import ThreadPoolExecutor

from sqlalchemy import update
from store_samples import make_result, make_shards, start

from transexplain.store import queueing, results, runs, shards
from transexplain.store.columns import DatabaseTime
from transexplain.store.database import Database
from transexplain.store.schema import shard


def age(db: Database, seconds: float) -> None:
    """Move every hint and lease into the past."""
    with db.begin() as connection:
        connection.execute(
            update(shard).values(
                hinted=shard.c.hinted - seconds, lease_until=shard.c.lease_until - seconds
            )
        )


def taken(db: Database, most: int, *, patience: float) -> dict[str, list[int]]:
    """The shards that are hinted now, of all runs."""
    return queueing.take(db, queueing.handing_out(db), most, patience=patience)


def test_a_duty_has_one_holder_until_it_ends(db: Database) -> None:
    with ThreadPoolExecutor(8) as pool:
        taken = list(pool.map(lambda _: queueing.take_task(db, "sweep", 60), range(8)))
    assert sorted(taken) == [False] * 7 + [True]
    assert queueing.take_task(db, "other", 60), "another duty is another row"
    with db.begin() as connection:
        connection.exec_driver_sql("UPDATE duty SET until = until - 61")
    assert queueing.take_task(db, "sweep", 60)
    assert not queueing.take_task(db, "sweep", 60)


def test_recent_messages_are_trusted_and_the_oldest_go_first(db: Database) -> None:
    run_id = start(db)
    assert taken(db, 1, patience=10) == {run_id: [0]}
    age(db, 5)
    assert taken(db, 1, patience=10) == {run_id: [1]}, "never hinted before hinted"
    assert taken(db, 9, patience=10) == {run_id: [2]}
    assert taken(db, 9, patience=10) == {}
    age(db, 6)
    assert taken(db, 9, patience=10) == {run_id: [0]}, "only its hint is old enough"


def test_an_expired_claim_uses_its_hint_up(db: Database) -> None:
    run_id = start(db)
    queueing.take(db, {run_id: None}, 9, patience=0)
    assert shards.claim(db, run_id, "worker", 5.0, 1)
    assert queueing.waiting(db, queueing.handing_out(db), 100) == 2
    age(db, 6)
    assert queueing.waiting(db, queueing.handing_out(db), 100) == 3
    assert taken(db, 9, patience=60) == {run_id: [1]}
    assert taken(db, 9, patience=60) == {}, "hinted anew"


def test_the_unhinted_then_the_expired_then_the_oldest_hint(db: Database) -> None:
    run_id = start(db, 20)
    assert queueing.take(db, {run_id: None}, 1, patience=10) == {run_id: [0]}
    assert shards.claim(db, run_id, "worker", 5.0, 1)
    age(db, 20)
    assert queueing.take(db, {run_id: None}, 2, patience=10) == {run_id: [2, 3]}
    assert queueing.take(db, {run_id: None}, 9, patience=10) == {run_id: [4, 1, 0]}
    assert queueing.take(db, {run_id: None}, 9, patience=10) == {}


def test_runs_have_equal_parts_and_never_one_that_ended(db: Database) -> None:
    first, second, third = (start(db) for _ in range(3))
    runs.cancel(db, second)
    assert queueing.waiting(db, queueing.handing_out(db), 100) == 6
    assert queueing.waiting(db, queueing.handing_out(db), 4) == 4
    assert taken(db, 4, patience=10) == {first: [0, 1], third: [0, 1]}


def test_takers_at_once_share_the_shards(db: Database) -> None:
    run_id = start(db, 200)
    with ThreadPoolExecutor(4) as pool:
        parts = list(pool.map(lambda _: taken(db, 13, patience=60), range(5)))
    shares = [index for part in parts for index in part.get(run_id, ())]
    assert len(shares) == len(set(shares))
    assert taken(db, 99, patience=60).get(run_id, []) == sorted(set(range(50)) - set(shares))


def test_a_run_with_nothing_left_is_found(db: Database) -> None:
    run_id = start(db)
    for one in make_shards():
        assert queueing.exhausted(db) == []
        claim = shards.claim(db, run_id, "worker", 60.0, one.index)
        results.save(db, claim, make_result(one))
    assert queueing.exhausted(db) == [run_id]
    assert runs.finalise(db, run_id)
    assert queueing.exhausted(db) == []


def test_messages_are_timed_by_the_database(db: Database) -> None:
    run_id = start(db)
    assert shards.claim(db, run_id, "worker", 60.0, 0)
    queueing.take(db, {run_id: None}, 9, patience=0)
    query = shard.select().with_only_columns(DatabaseTime() - shard.c.hinted).order_by("index")
    with db.read() as connection:
        first, *others = connection.execute(query).scalars()
    assert first is None and all(0 <= age < 30 for age in others)
