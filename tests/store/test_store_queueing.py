"""Places in the queue: caps that hold among many claimers, pausing, and who waits."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from store_samples import claimed, make_plan, make_result, make_shards

from transexplain.errors import ConfigurationError
from transexplain.store import queueing, results, runs, shards
from transexplain.store.database import Database
from transexplain.store.revisions import open_database
from transexplain.types.plans import QueuePlace

CLAIMERS, CAP, SHARDS = 6, 2, 30


def start(db: Database, count: int = SHARDS, **place: object) -> str:
    plan, made = make_plan(rows=count), make_shards(count, 1)
    return runs.create(db, plan, made, place=QueuePlace(**place))


def work(url: str, run_id: str) -> tuple[int, int]:
    """Claim and save until nothing is left; shards saved, and the most that were in hand."""
    saved = most = 0
    with open_database(url) as db:
        while (state := runs.progress(db, run_id)).state == "running":
            claim = shards.claim(db, run_id, "w", 60.0)
            most = max(most, state.states["running"], runs.progress(db, run_id).states["running"])
            if claim is not None:
                results.save(db, claim, make_result(claim.shard))
                saved += 1
                runs.finalise(db, run_id)
    return saved, most


def test_a_cap_holds_among_claimers_at_once(db: Database) -> None:
    """Of processes, see test_store_claims: each claimer has connections of its own here, too."""
    run_id = start(db, most_workers=CAP)
    url = db.engine.url.render_as_string(hide_password=False)
    with ThreadPoolExecutor(CLAIMERS) as pool:
        jobs = [pool.submit(work, url, run_id) for _ in range(CLAIMERS)]
        saved, most = zip(*(job.result(120) for job in jobs), strict=True)
    assert sum(saved) == SHARDS
    assert max(most) <= CAP


def test_an_expired_lease_holds_its_place_and_is_taken_over(db: Database) -> None:
    run_id = start(db, most_workers=1)
    lost = claimed(db, run_id, lease=-1.0)
    again = claimed(db, run_id)
    assert again.shard == lost.shard
    assert again.capped
    assert shards.claim(db, run_id, "w", 60.0) is None


def test_a_cap_is_raised_and_taken_away_while_the_run_works(db: Database) -> None:
    run_id = start(db, most_workers=1)
    claimed(db, run_id)
    assert shards.claim(db, run_id, "w", 60.0) is None
    assert queueing.change(db, run_id, most_workers=2) == QueuePlace(most_workers=2)
    claimed(db, run_id)
    assert shards.claim(db, run_id, "w", 60.0) is None
    place = QueuePlace(priority=-3, share=2.5)
    assert queueing.change(db, run_id, most_workers=None, share=2.5, priority=-3) == place
    assert not claimed(db, run_id).capped
    assert runs.progress(db, run_id).place == place


def test_a_paused_run_hands_out_nothing_and_finishes_what_is_in_hand(db: Database) -> None:
    run_id = start(db, 3)
    first = claimed(db, run_id)
    lost = claimed(db, run_id, lease=-1.0)
    assert queueing.pause(db, run_id)
    assert not queueing.pause(db, run_id), "once"
    assert runs.progress(db, run_id).paused
    assert shards.claim(db, run_id, "w", 60.0) is None
    assert shards.claim(db, run_id, "w", 60.0, lost.shard.index) is None
    assert shards.renew(db, first, 60.0)
    results.save(db, first, make_result(first.shard))
    assert not runs.finalise(db, run_id), "it is not over"
    assert queueing.handing_out(db) == {}
    assert queueing.unpause(db, run_id)
    assert not queueing.unpause(db, run_id)
    left = [claimed(db, run_id) for _ in range(2)]
    assert {claim.shard.index for claim in left} == {1, 2}
    queueing.pause(db, run_id)
    for claim in left:
        results.save(db, claim, make_result(claim.shard))
    assert runs.finalise(db, run_id), "all was in hand"
    assert not runs.progress(db, run_id).paused


def test_a_paused_run_is_cancelled_as_any_other(db: Database) -> None:
    run_id = start(db)
    queueing.pause(db, run_id)
    assert shards.redrive(db, run_id) == 0
    assert runs.cancel(db, run_id)
    assert not queueing.unpause(db, run_id)
    assert queueing.change(db, run_id, priority=3) is None
    for call in (queueing.pause, queueing.unpause, queueing.change):
        with pytest.raises(ConfigurationError, match="no run 'x'"):
            call(db, "x")


def test_contenders_are_those_that_wait_and_may_be_served(db: Database) -> None:
    low = start(db)
    assert not queueing.choice(db, low), "one run leaves no choice unless it has a cap"
    queueing.change(db, low, most_workers=4)
    assert queueing.choice(db, low)
    queueing.change(db, low, most_workers=None)
    start(db, 0)  # nothing to hand out
    capped, paused, high = start(db, most_workers=1), start(db), start(db)
    queueing.change(db, high, priority=1)
    queueing.pause(db, paused)
    claimed(db, low)
    shards.claim(db, low, "me", 60.0)
    found = queueing.contenders(db, "me")
    assert [(one.run_id, one.others) for one in found] == [(high, 0), (low, 1), (capped, 0)]
    claimed(db, capped)
    assert [one.run_id for one in queueing.contenders(db, "me")] == [high, low]
    assert queueing.choice(db, low)
    assert not queueing.choice(db, "gone")


def test_messages_are_divided_among_runs_and_bounded_by_caps(db: Database) -> None:
    large, small, capped = start(db, 30), start(db, 4), start(db, 30, most_workers=2)
    caps = queueing.handing_out(db)
    assert caps == {large: None, small: None, capped: 2}
    assert queueing.waiting(db, caps, 1000) == 36
    assert queueing.waiting(db, caps, 35) == 35
    chosen = queueing.take(db, caps, 12, patience=60)
    counts = {run_id: len(indices) for run_id, indices in chosen.items()}
    assert counts == {large: 6, small: 4, capped: 2}
