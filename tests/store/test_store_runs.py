"""Runs: creation, finding them, progress, and the one transition that closes them."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import update
from store_samples import (
    claimable,
    claimed,
    make_plan,
    make_result,
    make_shards,
    start,
    stored_again,
)

from transexplain.errors import ConfigurationError
from transexplain.store import readers, results, run_totals, runs, shards
from transexplain.store.database import Database
from transexplain.store.schema import run
from transexplain.types.scores import MethodSpec


@given(st.text(), st.dictionaries(st.text(), st.integers() | st.text() | st.booleans()))
def test_a_plan_survives_its_json(name: str, params: dict[str, object]) -> None:
    plan = make_plan(name=name, method=MethodSpec(name="lrp", params=params))
    back = stored_again(plan)
    assert (back, back.digest) == (plan, plan.digest)


def test_a_plan_that_is_none_says_so() -> None:
    with pytest.raises(ConfigurationError, match=r"stored plan.*model, dataset"):
        runs.plan_of({"name": "x"})


def test_a_run_begins_with_all_its_shards_queued(db: Database) -> None:
    before = time.time()
    run_id = start(db)
    begun = runs.get(db, run_id)
    assert (begun.id, begun.state, begun.finished) == (run_id, "running", None)
    assert begun.plan == make_plan()
    assert {state: count for state, count in begun.shards.items() if count} == {"queued": 3}
    assert abs(begun.created - before) < 60
    odd = make_plan(name="a\x00b\x10c")  # characters that databases refuse
    assert runs.get(db, runs.create(db, odd, make_shards())).plan == odd


def test_creation_is_all_or_nothing(db: Database) -> None:
    twice = (*make_shards(), make_shards()[0])
    with pytest.raises(Exception, match=r"(?i)unique"):
        runs.create(db, make_plan(), twice)
    assert runs.list_runs(db) == []


def test_runs_are_found_by_prefix_and_as_the_latest(db: Database) -> None:
    first = start(db)
    with db.begin() as connection:
        connection.execute(update(run).values(created=run.c.created - 60))
    second = start(db, name="second")
    assert runs.get(db, "latest").id == second
    assert runs.get(db, first).id == first
    shared = next(n for n in range(12) if first[: n + 1] != second[: n + 1])
    assert runs.get(db, first[: shared + 1]).id == first
    assert [one.id for one in runs.list_runs(db)] == [second, first]
    assert [one.id for one in runs.list_runs(db, limit=1)] == [second]


def test_an_ambiguous_prefix_lists_what_it_could_be(db: Database) -> None:
    ids = [start(db) for _ in range(17)]
    digit = next(d for d in "0123456789abcdef" if sum(one.startswith(d) for one in ids) > 1)
    with pytest.raises(ConfigurationError, match=f" {digit}"):
        runs.get(db, digit)


@pytest.mark.parametrize("wrong", ["nosuchrun", "", "%", "_"])
def test_unknown_runs_are_errors_that_list_the_recent_ones(db: Database, wrong: str) -> None:
    with pytest.raises(ConfigurationError, match="holds no runs"):
        runs.get(db, wrong)
    with pytest.raises(ConfigurationError, match="holds no runs"):
        runs.get(db, "latest")
    run_id = start(db)
    with pytest.raises(ConfigurationError, match=rf"{run_id} \(sample audit\)"):
        runs.get(db, wrong)


def test_every_verb_refuses_an_unknown_run(db: Database) -> None:
    for call in (
        *(runs.progress, runs.finalise, runs.cancel),
        *(shards.redrive, shards.retry_failed, shards.list_shards),
        *(readers.iter_items, readers.iter_attributions, readers.iter_mentions),
        *(run_totals.aggregates, run_totals.accuracy, run_totals.conservation),
    ):
        with pytest.raises(ConfigurationError, match="no run 'feed'"):
            call(db, "feed")


def test_progress_counts_items_and_shards(db: Database) -> None:
    run_id = start(db, 10)
    claim = shards.claim(db, run_id, "w1", 60)
    results.save(db, claim, make_result(claim.shard, failing=frozenset({1})))
    assert shards.claim(db, run_id, "w2", 60) is not None
    seen = runs.progress(db, run_id)
    assert seen.states == {"queued": 1, "running": 1, "done": 1, "dead": 0, "cancelled": 0}
    assert (seen.items_done, seen.items_failed, seen.items_total) == (3, 1, 10)
    assert (seen.seconds, seen.workers, seen.state) == (0.5, 1, "running")
    assert 0 <= seen.elapsed < 60


def test_only_one_of_many_callers_closes_a_run(db: Database) -> None:
    run_id = start(db)
    for _ in range(3):
        assert not runs.finalise(db, run_id)
        claim = claimed(db, run_id)
        results.save(db, claim, make_result(claim.shard))
    with ThreadPoolExecutor(6) as pool:
        closed = list(pool.map(lambda _: runs.finalise(db, run_id), range(12)))
    assert sum(closed) == 1
    ended = runs.get(db, run_id)
    assert ended.state == "done" and ended.finished >= ended.created
    run_id = runs.create(db, make_plan(rows=0), ())
    assert runs.progress(db, run_id).items_total == 0
    assert runs.finalise(db, run_id), "one without rows closes at once"


def test_cancel_stops_claims_and_fences_workers(db: Database) -> None:
    run_id = start(db)
    claim = shards.claim(db, run_id, "w", 60)
    assert runs.cancel(db, run_id)
    assert not runs.cancel(db, run_id)
    assert not shards.renew(db, claim, 60)
    assert shards.claim(db, run_id, "w", 60) is None
    assert claimable(db, run_id) == []
    assert not runs.finalise(db, run_id)
    assert shards.redrive(db, run_id) == 0
    assert runs.get(db, run_id).state == "cancelled"
    assert runs.progress(db, run_id).states["cancelled"] == 3
