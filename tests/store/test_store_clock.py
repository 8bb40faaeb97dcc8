"""The database's clock is set back or ahead: no lease, task, hint or schedule waits for it."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from sqlalchemy import update
from store_samples import claimable, make_plan, make_result, make_shards, start

from orchestrator.dispatch import local
from orchestrator.dispatch.local import Reports
from transexplain.settings import Settings
from transexplain.store import fleet_state, queueing, results, runs, schedules, shards
from transexplain.store.database import Database
from transexplain.store.schedules import Planned, Receiver
from transexplain.store.schema import duty, fire_delivery, schedule, shard
from workers import heartbeat
from workers.heartbeat import free_dead, worker_name, worker_prefix

TWO_DAYS = 172_815.0
LEASE = 60.0
HOOK = Receiver(kind="json", address="http://h/")
NIGHTLY = Planned(name="nightly", cron="0 3 * * *", time_zone="UTC", spec={}, receivers=(HOOK,))
_MOMENTS = {
    shard: ("lease_until", "heartbeat", "hinted"),
    duty: ("until",),
    schedule: ("since", "retry_at"),
    fire_delivery: ("next_at",),
}


def set_clock_back(db: Database, seconds: float) -> None:
    """What is written lies `seconds` further ahead of the clock than before."""
    with db.begin() as connection:
        for table, names in _MOMENTS.items():
            connection.execute(
                update(table).values({name: table.c[name] + seconds for name in names})
            )


def test_a_lease_from_before_the_clock_was_set_back_is_void(db: Database) -> None:
    run_id = start(db)
    claim = shards.claim(db, run_id, "lost", LEASE, 0)
    set_clock_back(db, TWO_DAYS)
    assert 0 in claimable(db, run_id)
    assert queueing.waiting(db, {run_id: None}, 9) == 3
    assert fleet_state.status(db).expired == 1
    heir = shards.claim(db, run_id, "heir", LEASE, 0)
    assert heir is not None and heir.token == claim.token + 1
    assert not shards.renew(db, claim, LEASE), "fenced as ever"


def test_a_clock_step_shorter_than_the_lease_leaves_the_lease_valid(db: Database) -> None:
    run_id = start(db)
    claim = shards.claim(db, run_id, "alive", LEASE, 0)
    set_clock_back(db, LEASE / 2)
    assert shards.claim(db, run_id, "thief", LEASE, 0) is None
    results.save(db, claim, make_result(claim.shard))


def test_a_renewed_lease_counts_from_the_new_clock(db: Database) -> None:
    run_id = start(db)
    claim = shards.claim(db, run_id, "alive", LEASE, 0)
    set_clock_back(db, TWO_DAYS)
    assert shards.renew(db, claim, LEASE)
    assert shards.claim(db, run_id, "thief", LEASE, 0) is None
    assert shards.holders(db, run_id) == ["alive"]


def test_items_are_not_suspected_because_of_the_clock(db: Database) -> None:
    run_id = start(db, max_attempts=2)
    for _ in range(5):
        claim = shards.claim(db, run_id, "w", LEASE, 0)
        assert claim is not None, "no attempt without progress is counted"
        assert not claim.caution.alone and not claim.caution.quarantined
        shards.note(db, claim, ["id-0"])
        set_clock_back(db, TWO_DAYS)


def test_messages_and_duties_of_the_future_count_as_over(db: Database) -> None:
    run_id = start(db)
    assert queueing.take(db, {run_id: None}, 9, patience=10) == {run_id: [0, 1, 2]}
    assert queueing.take_task(db, "sweep", 5)
    set_clock_back(db, TWO_DAYS)
    assert queueing.take(db, {run_id: None}, 9, patience=10) == {run_id: [0, 1, 2]}
    assert queueing.take_task(db, "sweep", 5)
    assert not queueing.take_task(db, "sweep", 5)


def test_schedules_go_on_and_make_no_fire_twice(db: Database) -> None:
    schedules.add(db, NIGHTLY)
    audit = (make_plan(), make_shards())
    now = schedules.now(db)
    [due] = schedules.ready(db)
    assert schedules.fire(db, due, now + 1, audit, None)
    schedules.fail(db, "nightly", "no model", 300)
    assert schedules.ready(db) == []
    set_clock_back(db, TWO_DAYS)
    [due] = schedules.ready(db)
    assert due.since <= schedules.now(db)
    assert schedules.fire(db, due, now + 1, audit, None) is None, "made before"
    assert schedules.fire(db, due, now + 2, audit, None)
    assert len(schedules.fires(db, "nightly")) == 2


def test_a_verdict_being_posted_is_free_again(db: Database) -> None:
    schedules.add(db, NIGHTLY)
    [due] = schedules.ready(db)
    run_id = schedules.fire(db, due, schedules.now(db) + 1, (make_plan(rows=0), ()), None)
    assert run_id and runs.finalise(db, run_id)
    assert schedules.claim(db, 300) is not None
    assert schedules.claim(db, 300) is None
    set_clock_back(db, TWO_DAYS)
    assert schedules.claim(db, 300) is not None


def test_shards_of_dead_processes_of_this_host_are_free_at_once(db: Database) -> None:
    run_id = start(db, 16)
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    with subprocess.Popen(["sleep", "60"]) as living:  # which any signal would end
        prefixes = (worker_prefix(dead.pid), worker_prefix(living.pid), "elsewhere:1:")
        names = (*(f"{prefix}abc" for prefix in prefixes), worker_name())
        for index, name in enumerate(names):
            assert shards.claim(db, run_id, name, LEASE, index)
        assert free_dead(db, run_id) == 1
        assert free_dead(db) == 0 and living.poll() is None
        living.kill()
    assert claimable(db, run_id) == [0]
    assert worker_prefix(os.getpid()) in names[-1]


@pytest.mark.parametrize(
    ("space", "prefix"),
    [(0xEFFFFFFC, "host:7:"), (4026532198, "host/4026532198:7:"), (None, "host:7:")],
)
def test_processes_of_a_container_are_its_own(monkeypatch, space: int | None, prefix: str) -> None:
    def stat(path: Path) -> SimpleNamespace:
        if space is None or str(path) != "/proc/self/ns/pid":
            raise FileNotFoundError
        return SimpleNamespace(st_ino=space)

    monkeypatch.setattr(heartbeat.socket, "gethostname", lambda: "host")
    monkeypatch.setattr(heartbeat, "Path", lambda name: SimpleNamespace(stat=lambda: stat(name)))
    assert worker_prefix(7) == prefix


def test_a_run_that_waits_says_for_whom(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "_PATIENCE", 0.1)
    run_id = start(db)
    for index in range(3):
        assert shards.claim(db, run_id, f"elsewhere:{index}:abc", LEASE)
    stop, heard = threading.Event(), []

    def on_wait(reason: str) -> None:
        heard.append(reason)
        stop.set()

    waiting: list[Callable[..., None]] = [local.run_here]
    if db.path is None:
        waiting.append(lambda *args, **options: local.run_processes(*args, 2, **options))
    for wait in waiting:
        stop.clear()
        settings = Settings(database_url=str(db.engine.url))
        with pytest.raises(KeyboardInterrupt):
            wait(db, run_id, settings, report=Reports(wait=on_wait), stop=stop)
    assert len(heard) == len(waiting)
    assert all("more: worker elsewhere:0:abc" in one for one in heard)
