"""Schedules in SQL: one run per fire and one poster per verdict, also under concurrency."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import select, text, update
from store_samples import make_plan, make_shards

from transexplain.errors import ConfigurationError
from transexplain.store import runs, schedules
from transexplain.store.database import Database
from transexplain.store.schedules import Planned, Receiver, Schedule
from transexplain.store.schema import fire_delivery, schedule_receiver

AUDIT = (make_plan(), make_shards())
HOOK = Receiver(kind="json", address="https://x.example/hook")


def make(db: Database, name: str = "nightly", **changes: Any) -> Schedule:
    settings: dict[str, Any] = {"cron": "0 3 * * *", "time_zone": "UTC", "spec": {"name": "x"}}
    schedules.add(db, Planned(name=name, **(settings | changes)))
    return schedules.get(db, name)


def fired(db: Database, due: Schedule, at: float) -> str:
    run_id = schedules.fire(db, due, at, AUDIT, None)
    assert run_id is not None
    return run_id


def test_a_schedule_comes_back_as_it_was_written(db: Database) -> None:
    receivers = (HOOK, Receiver(kind="email", address="ann@b.example"))
    made = make(db, on_change=True, receivers=receivers)
    assert (made.name, made.spec, made.state) == ("nightly", {"name": "x"}, "active")
    assert made.on_change and made.receivers == receivers
    assert 0 <= made.since - made.created < 1
    assert abs(made.created - schedules.now(db)) < 30
    with pytest.raises(ConfigurationError, match="already"):
        make(db)
    with pytest.raises(ConfigurationError, match="'weekly'"):
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


def test_a_pause_fires_nothing_and_is_not_caught_up(db: Database) -> None:
    due = make(db)
    assert schedules.set_state(db, "nightly", "paused")
    assert not schedules.set_state(db, "nightly", "paused")
    assert schedules.ready(db) == []
    assert schedules.fire(db, due, due.since + 60, AUDIT, None) is None
    run_id = schedules.fire_now(db, due, AUDIT, None)
    assert schedules.last_run(db, "nightly") == run_id, "a run by name is allowed"
    assert schedules.get(db, "nightly").since == due.since, "and leaves the cadence"
    assert schedules.set_state(db, "nightly", "active")
    assert schedules.get(db, "nightly").since > due.since
    with pytest.raises(ConfigurationError, match="'none'"):
        schedules.set_state(db, "none", "paused")


def test_a_removed_schedule_leaves_its_runs_and_no_receivers(db: Database) -> None:
    run_id = over(db)
    due = schedules.get(db, "nightly")
    schedules.remove(db, "nightly")
    assert schedules.claim(db, 60) is None
    with db.read() as connection:
        for table in (schedule_receiver, fire_delivery):
            assert connection.execute(select(table)).all() == []
    assert runs.get(db, run_id).id == run_id
    assert schedules.fires(db, "nightly") == []
    assert schedules.fire(db, due, due.since + 120, AUDIT, None) is None
    with pytest.raises(ConfigurationError, match="none yet"):
        schedules.fire_now(db, due, AUDIT, None)
    assert len(runs.list_runs(db)) == 1


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


def over(db: Database, *receivers: Receiver) -> str:
    """A fire with receivers, a webhook unless others are given, whose run is over."""
    due = make(db, receivers=receivers or (HOOK,))
    run_id = fired(db, due, due.since + 60)
    assert schedules.claim(db, 60) is None, "the run is not over"
    runs.cancel(db, run_id)
    return run_id


def test_a_verdict_has_one_poster(db: Database) -> None:
    run_id = over(db)
    with ThreadPoolExecutor(8) as pool:
        found = [one for one in pool.map(lambda _: schedules.claim(db, 60), range(8)) if one]
    assert [(one.run_id, one.receiver, one.number) for one in found] == [(run_id, HOOK, 1)]
    assert schedules.posted(db, found[0])
    assert schedules.claim(db, 60) is None
    (done,) = schedules.fires(db, "nightly")[0].deliveries
    assert (done.state, done.attempts) == ("posted", 1)
    assert done.delivered is not None


def test_a_poster_that_died_is_followed_by_another(db: Database) -> None:
    over(db)
    slow = schedules.claim(db, 60)
    with db.begin() as connection:
        connection.execute(update(fire_delivery).values(next_at=fire_delivery.c.next_at - 61))
    quick = schedules.claim(db, 60)
    assert quick.attempts == 2
    assert not schedules.posted(db, slow), "its time was up"
    schedules.not_posted(db, slow, "too late", None)
    assert schedules.posted(db, quick)
    assert schedules.fires(db, "nightly")[0].deliveries[0].error is None


def test_a_post_that_failed_waits_and_is_given_up(db: Database) -> None:
    over(db)
    first = schedules.claim(db, 60)
    schedules.not_posted(db, first, "answered 500", 60)
    assert schedules.claim(db, 60) is None
    schedules.not_posted(db, first, "answered 500", -1)
    second = schedules.claim(db, 60)
    schedules.not_posted(db, second, "answered 501", None)
    assert schedules.claim(db, 60) is None
    (done,) = schedules.fires(db, "nightly")[0].deliveries
    assert (done.state, done.error, done.attempts) == ("failed", "answered 501", 2)


def test_every_receiver_has_its_own_state(db: Database) -> None:
    over(db, HOOK, Receiver(kind="slack", address="https://y.example/"), HOOK)
    states = []
    taken = [schedules.claim(db, 60) for _ in range(3)]
    assert schedules.claim(db, 60) is None
    first, second, third = (one for one in taken if one)
    assert [one.number for one in (first, second, third)] == [1, 2, 3]
    schedules.not_posted(db, second, "answered 404", None)
    schedules.not_posted(db, third, "answered 503", -1)
    states.append(schedules.fires(db, "nightly")[0].post)
    assert schedules.posted(db, first)
    again = schedules.claim(db, 60)
    assert again is not None and (again.number, again.attempts) == (3, 2), "and no other"
    assert schedules.posted(db, again)
    (fire,) = schedules.fires(db, "nightly")
    assert [one.state for one in fire.deliveries] == ["posted", "failed", "posted"]
    assert (*states, fire.post) == ("waiting", "failed")
    (shown,) = schedules.fire_rows(db, "nightly", 5)
    assert (shown["post"], shown["post_attempts"]) == ("failed", 2)
    assert shown["posted"] == max(one.delivered for one in fire.deliveries if one.delivered)


def test_a_fire_without_receivers_or_run_has_nothing_to_deliver(db: Database) -> None:
    due = make(db)
    run_id = fired(db, due, due.since + 60)
    runs.cancel(db, run_id)
    other = make(db, "other", receivers=(HOOK,))
    assert schedules.skip(db, other, other.since + 60, run_id)
    assert schedules.claim(db, 60) is None
    for name in ("nightly", "other"):
        (fire,) = schedules.fires(db, name)
        assert (fire.post, fire.deliveries) == (None, ())
        (shown,) = schedules.fire_rows(db, name, 5)
        assert (shown["post"], shown["post_attempts"], shown["posted"]) == (None, 0, None)


def test_receivers_come_and_go_and_keep_their_numbers(db: Database) -> None:
    mail = Receiver(kind="email", address="ann@b.example")
    over(db, HOOK, mail, HOOK)
    assert schedules.change_receivers(db, "nightly", removed=[2]) == 1, "one waited"
    assert schedules.change_receivers(db, "nightly", added=[mail, HOOK], removed=[1, 1]) == 1
    found = schedules.get(db, "nightly").receivers
    assert [(one.number, one.kind) for one in found] == [(3, "json"), (4, "email"), (5, "json")]
    shown = schedules.receiver_rows(db, "nightly")
    states = {one["number"]: one["state"] for one in shown}
    assert states == {3: "waiting", 4: None, 5: None}
    taken = schedules.claim(db, 60)
    assert taken is not None and (taken.number, taken.receiver) == (3, HOOK)
    assert schedules.change_receivers(db, "nightly", removed=[3]) == 1
    assert not schedules.posted(db, taken), "it was removed meanwhile"
    assert schedules.claim(db, 60) is None


def test_receivers_are_changed_together_or_not_at_all(db: Database) -> None:
    make(db, receivers=(HOOK,))
    with pytest.raises(ConfigurationError, match="receiver 7"):
        schedules.change_receivers(db, "nightly", added=[HOOK], removed=[1, 7])
    assert schedules.get(db, "nightly").receivers == (HOOK,)
    with pytest.raises(ConfigurationError, match="'weekly'"):
        schedules.change_receivers(db, "weekly", added=[HOOK])
    make(db, "bare")
    with pytest.raises(ConfigurationError, match="receiver 1"):
        schedules.change_receivers(db, "bare", removed=[1])


def test_receivers_that_are_added_at_once_have_numbers_of_their_own(db: Database) -> None:
    make(db)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: schedules.change_receivers(db, "nightly", added=[HOOK]), range(8)))
    numbers = [one.number for one in schedules.get(db, "nightly").receivers]
    assert numbers == list(range(1, 9))
