"""Schedules in SQL: one run per fire and one poster per verdict, also under concurrency."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import text, update
from store_samples import make_plan, make_shards

from transexplain.errors import ConfigurationError
from transexplain.store import runs, schedules
from transexplain.store.database import Database
from transexplain.store.schedules import Planned, Schedule
from transexplain.store.schema import schedule, schedule_fire

AUDIT = (make_plan(), make_shards())


def make(db: Database, name: str = "nightly", **changes: Any) -> Schedule:
    settings: dict[str, Any] = {"cron": "0 3 * * *", "time_zone": "UTC", "spec": {"name": "x"}}
    schedules.add(db, Planned(name=name, **(settings | changes)))
    return schedules.get(db, name)


def fired(db: Database, due: Schedule, at: float) -> str:
    run_id = schedules.fire(db, due, at, AUDIT, None)
    assert run_id is not None
    return run_id


def test_a_schedule_comes_back_as_it_was_written(db: Database) -> None:
    made = make(db, on_change=True, webhook="https://x.example/hook")
    assert (made.name, made.spec, made.state, made.on_change) == (
        "nightly",
        {"name": "x"},
        "active",
        True,
    )
    assert 0 <= made.since - made.created < 1
    assert abs(made.created - schedules.now(db)) < 30
    with pytest.raises(ConfigurationError, match="already"):
        make(db)
    with pytest.raises(ConfigurationError, match=r"'weekly'; there are: nightly"):
        schedules.get(db, "weekly")
    make(db, "before")
    assert [one.name for one in schedules.list_schedules(db)] == ["before", "nightly"]


def test_many_that_fire_at_once_make_one_run(db: Database) -> None:
    due = make(db)
    for at in (due.since + 60, due.since + 120):
        with ThreadPoolExecutor(8) as pool:
            made = list(
                pool.map(lambda _, at=at: schedules.fire(db, due, at, AUDIT, None), range(8))
            )
        assert sum(one is not None for one in made) == 1
    assert len(runs.list_runs(db)) == 2, "the losers left no run behind"
    with db.read() as connection:
        assert connection.execute(text("SELECT count(*) FROM shard")).scalar_one() == 6
    assert [one.at for one in schedules.fires(db, "nightly")] == [due.since + 120, due.since + 60]
    assert schedules.fire(db, due, due.since + 90, AUDIT, None) is None, "superseded"


def test_a_fire_is_made_once_even_where_the_schedule_was_set_back(db: Database) -> None:
    due = make(db)
    fired(db, due, due.since + 60)
    with db.begin() as connection:
        connection.execute(update(schedule).values(since=due.since))
    assert schedules.fire(db, due, due.since + 60, AUDIT, None) is None
    assert len(runs.list_runs(db)) == 1


def test_a_pause_fires_nothing_and_is_not_caught_up(db: Database) -> None:
    due = make(db)
    assert schedules.set_state(db, "nightly", "paused")
    assert not schedules.set_state(db, "nightly", "paused")
    assert schedules.ready(db) == []
    assert schedules.fire(db, due, due.since + 60, AUDIT, None) is None
    assert schedules.fire_now(db, due, AUDIT, None), "a run by name is allowed"
    assert schedules.set_state(db, "nightly", "active")
    assert schedules.get(db, "nightly").since > due.since
    with pytest.raises(ConfigurationError, match="'none'"):
        schedules.set_state(db, "none", "paused")


def test_a_removed_schedule_leaves_its_runs(db: Database) -> None:
    due = make(db)
    run_id = fired(db, due, due.since + 60)
    schedules.remove(db, "nightly")
    assert runs.get(db, run_id).id == run_id
    assert schedules.fires(db, "nightly") == []
    assert schedules.fire(db, due, due.since + 120, AUDIT, None) is None
    with pytest.raises(ConfigurationError, match="none yet"):
        schedules.fire_now(db, due, AUDIT, None)
    assert len(runs.list_runs(db)) == 1


def test_a_run_now_leaves_the_cadence(db: Database) -> None:
    due = make(db)
    run_id = schedules.fire_now(db, due, AUDIT, None)
    assert schedules.get(db, "nightly").since == due.since
    assert schedules.last_run(db, "nightly") == run_id


def test_the_last_run_is_the_newest_that_was_not_cancelled(db: Database) -> None:
    due = make(db)
    assert schedules.last_run(db, "nightly") is None
    first, second = fired(db, due, due.since + 60), fired(db, due, due.since + 120)
    assert schedules.skip(db, due, due.since + 180, second)
    assert not schedules.skip(db, due, due.since + 180, second)
    assert schedules.last_run(db, "nightly") == second
    runs.cancel(db, second)
    assert schedules.last_run(db, "nightly") == first


def test_a_failed_preparation_waits_and_a_fire_clears_it(db: Database) -> None:
    due = make(db)
    schedules.fail(db, "nightly", "model gone", 60)
    assert schedules.ready(db) == []
    assert schedules.get(db, "nightly").error == "model gone"
    schedules.fail(db, "nightly", "model gone", -1)
    assert [one.name for one in schedules.ready(db)] == ["nightly"]
    fired(db, due, due.since + 60)
    after = schedules.get(db, "nightly")
    assert (after.error, after.retry_at) == (None, None)


def over(db: Database, **changes: Any) -> str:
    """A fire with a webhook whose run is over."""
    due = make(db, webhook="https://x.example/hook", **changes)
    run_id = fired(db, due, due.since + 60)
    assert schedules.claim(db, 60) is None, "the run is not over"
    runs.cancel(db, run_id)
    return run_id


def test_a_verdict_has_one_poster(db: Database) -> None:
    run_id = over(db)
    with ThreadPoolExecutor(8) as pool:
        found = [one for one in pool.map(lambda _: schedules.claim(db, 60), range(8)) if one]
    assert [(one.run_id, one.webhook) for one in found] == [(run_id, "https://x.example/hook")]
    assert schedules.posted(db, found[0])
    assert schedules.claim(db, 60) is None
    done = schedules.fires(db, "nightly")[0]
    assert (done.post, done.post_attempts) == ("posted", 1)
    assert done.posted is not None


def test_a_poster_that_died_is_followed_by_another(db: Database) -> None:
    over(db)
    slow = schedules.claim(db, 60)
    assert slow is not None
    with db.begin() as connection:
        connection.execute(update(schedule_fire).values(post_at=schedule_fire.c.post_at - 61))
    quick = schedules.claim(db, 60)
    assert quick is not None
    assert quick.fire.post_attempts == 2
    assert not schedules.posted(db, slow), "its time was up"
    schedules.not_posted(db, slow, "too late", None)
    assert schedules.posted(db, quick)
    assert schedules.fires(db, "nightly")[0].post_error is None


def test_a_post_that_failed_waits_and_is_given_up(db: Database) -> None:
    over(db)
    first = schedules.claim(db, 60)
    assert first is not None
    schedules.not_posted(db, first, "answered 500", 60)
    assert schedules.claim(db, 60) is None
    schedules.not_posted(db, first, "answered 500", -1)
    second = schedules.claim(db, 60)
    assert second is not None
    schedules.not_posted(db, second, "answered 501", None)
    assert schedules.claim(db, 60) is None
    done = schedules.fires(db, "nightly")[0]
    assert (done.post, done.post_error, done.post_attempts) == ("failed", "answered 501", 2)
