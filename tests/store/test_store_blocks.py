"""Shards that are made in blocks while others are worked on: each once, counted from the start."""

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import func, select
from store_samples import make_plan, make_result

from orchestrator.dispatch import queue
from transexplain.settings import Settings
from transexplain.store import fleet_state, queueing, readers, results, runs, shard_blocks, shards
from transexplain.store.database import Database
from transexplain.store.fleet_state import running_runs
from transexplain.store.runs import Claim
from transexplain.store.schema import pending_shards, shard
from transexplain.store.upkeep import Age, prune
from transexplain.types.plans import QueuePlace, Shard, ShardCut

#: 11 shards of 3 rows, the last of 2
CUT = ShardCut(rows=32, size=3)
TRILLION = 10**12


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Blocks of four, the next one made where two are left."""
    monkeypatch.setattr(shard_blocks, "BLOCK", 4)
    monkeypatch.setattr(shard_blocks, "LOW", 2)
    yield


def planned(db: Database, cut: ShardCut = CUT, **place: int) -> str:
    plan = make_plan(rows=cut.rows, shard_size=cut.size, max_attempts=2)
    return runs.create(db, plan, cut, place=QueuePlace(**place))


def made(db: Database, run_id: str) -> int:
    with db.read() as connection:
        query = select(func.count()).where(shard.c.run_id == run_id)
        return int(connection.execute(query).scalar_one())


def save(db: Database, claim: Claim) -> None:
    results.save(db, claim, make_result(claim.shard))
    runs.finalise(db, claim.run_id)


def test_a_cut_is_the_same_shards_as_a_list() -> None:
    starts = range(0, 32, 3)
    whole = tuple(Shard(index=i, start=s, stop=min(s + 3, 32)) for i, s in enumerate(starts))
    assert tuple(CUT) == whole
    assert (len(CUT), CUT[-1], CUT[2:4]) == (11, whole[-1], whole[2:4])
    assert len(ShardCut(rows=TRILLION, size=7)) == -(-TRILLION // 7)
    assert list(ShardCut(rows=0, size=7)) == []


def test_every_shard_is_claimed_once_in_order(db: Database) -> None:
    run_id = planned(db)
    assert made(db, run_id) == 4
    taken = []
    while (claim := shards.claim(db, run_id, "w", 60)) is not None:
        taken.append(claim.shard)
        assert not runs.finalise(db, run_id)
        save(db, claim)
    assert taken == list(CUT)
    assert runs.get(db, run_id).state == "done"


def test_counts_know_shards_that_are_not_made(db: Database) -> None:
    run_id = planned(db)
    progress = runs.progress(db, run_id)
    assert (progress.states["queued"], progress.items_total) == (11, 32)
    assert runs.get(db, run_id).shards["queued"] == 11
    assert fleet_state.status(db).shards["queued"] == 11
    (row,) = running_runs(db, 5)
    assert (row["shards"], row["items"]) == (11, 32)
    figures = fleet_state.FigureReader(db, 60.0, 5).read().runs[0]
    assert (figures.shards["queued"], figures.pending) == (11, 32)
    assert fleet_state.demand(db) == 11
    claim = shards.claim(db, run_id, "w", 60)
    assert claim is not None
    states = {state: n for state, n in runs.progress(db, run_id).states.items() if n}
    assert states == {"queued": 10, "running": 1}
    assert fleet_state.demand(db) == 11
    queueing.pause(db, run_id)
    assert fleet_state.demand(db) == 1


def test_claimers_at_once_make_no_block_twice(db: Database) -> None:
    run_id = planned(db, ShardCut(rows=120, size=3))

    def work(name: str) -> list[int]:
        taken = []
        while (claim := shards.claim(db, run_id, name, 60)) is not None:
            taken.append(claim.shard.index)
            save(db, claim)
        return taken

    with ThreadPoolExecutor(4) as pool:
        found = Counter(index for some in pool.map(work, "abcd") for index in some)
    assert found == dict.fromkeys(range(40), 1)
    assert runs.progress(db, run_id).state == "done"


def test_one_block_is_made_at_a_time(db: Database) -> None:
    run_id = planned(db)
    assert shards.claim(db, run_id, "w", 60, 9) is None, "not made, so not to be had by its number"
    assert made(db, run_id) == 4
    assert shard_blocks.make(db, run_id, 4)
    assert not shard_blocks.make(db, run_id, 4)
    assert made(db, run_id) == 8
    assert shard_blocks.make(db, run_id)
    assert not shard_blocks.make(db, run_id)
    assert made(db, run_id) == 11
    with db.read() as connection:
        assert connection.execute(select(pending_shards)).all() == []


def test_a_cancelled_run_makes_none(db: Database) -> None:
    run_id = planned(db)
    claim = shards.claim(db, run_id, "w", 60)
    assert claim is not None
    assert runs.cancel(db, run_id)
    assert not shard_blocks.make(db, run_id)
    assert shards.claim(db, run_id, "w", 60) is None
    progress = runs.progress(db, run_id)
    assert (progress.states["cancelled"], progress.items_total) == (11, 32)
    assert shards.redrive(db, run_id) == 0
    assert prune(db, Age(0.0)).runs[0].id == run_id
    with db.read() as connection:
        assert connection.execute(select(pending_shards)).all() == []


def test_dead_shards_are_driven_again_and_the_rest_is_made(db: Database) -> None:
    run_id = planned(db)
    for _ in range(2 * 4):
        claim = shards.claim(db, run_id, "w", 60)
        shards.fail(db, claim, "broken")
    dead = runs.progress(db, run_id).states["dead"]
    assert shards.redrive(db, run_id) == dead
    done = 0
    while (claim := shards.claim(db, run_id, "w", 60)) is not None:
        save(db, claim)
        done += 1
    assert done == 11
    assert runs.progress(db, run_id).items_done == 32


def test_who_looks_for_runs_sees_one_whose_shards_are_to_be_made(db, monkeypatch) -> None:
    monkeypatch.setattr(shard_blocks, "LOW", -4)  # as if who should make the block had died
    run_id = planned(db)
    for _ in range(4):
        assert shards.claim(db, run_id, "w", 60) is not None
    assert made(db, run_id) == 4
    assert [one.run_id for one in queueing.contenders(db, "w")] == [run_id]
    assert queueing.exhausted(db) == []
    claim = shards.claim(db, run_id, "w", 60)
    assert claim.shard.index == 4


def test_a_sweep_makes_what_messages_need(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    run_id = planned(db)
    sent: list[int] = []
    monkeypatch.setattr(queue, "depth", lambda *_: 0)
    monkeypatch.setattr(queue, "send_messages", lambda _s, _r, indices, _q: sent.extend(indices))
    settings = Settings(database_url="unused", queue="q")
    for _ in range(6):
        queue.top_up(db, settings, patience=0.0)
        for index in sent:
            if (claim := shards.claim(db, run_id, "w", 60, index)) is not None:
                save(db, claim)
        sent.clear()
    assert runs.progress(db, run_id).items_done == 32


def test_rows_beyond_32_bits(db: Database) -> None:
    far = Shard(index=0, start=TRILLION - 10, stop=TRILLION)
    run_id = runs.create(db, make_plan(rows=TRILLION), (far,))
    claim = shards.claim(db, run_id, "w", 60)
    assert claim.shard == far
    results.save(db, claim, make_result(far, failing=frozenset({TRILLION - 4})))
    rows = [one.index for one in readers.iter_items(db, run_id)]
    assert rows == list(range(TRILLION - 10, TRILLION))
    cut = ShardCut(rows=TRILLION, size=10**9)
    assert runs.progress(db, planned(db, cut)).items_total == TRILLION
