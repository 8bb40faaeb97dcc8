"""A shard from claim to commit: results, leases lost and kept, failures, stops."""

import io
import sys
import threading
import time
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from fresh_stores import fresh_store
from short_lives import ends_at_once
from tiny_audit import make_audit

from orchestrator.dispatch import local
from orchestrator.plan import Prepared, prepare_audit
from orchestrator.spec import load_spec
from transexplain.errors import InfrastructureError, ModelLoadError
from transexplain.explaining import Stopped
from transexplain.settings import Settings
from transexplain.store import results, runs, shards
from transexplain.store.database import Database
from transexplain.store.runs import Claim
from workers import claim_to_commit, heartbeat, logs
from workers.claim_to_commit import Workbench
from workers.heartbeat import LeaseKeeper
from workers.model_cache import ModelCache
from workers.work_meter import WorkMeter, in_hand


@pytest.fixture
def prepared(tmp_path: Path) -> Prepared:
    return prepare_audit(load_spec(make_audit(tmp_path)), settings_of(tmp_path))


@pytest.fixture
def db(tmp_path: Path):
    with fresh_store(tmp_path / "store.db") as store:
        yield store


def settings_of(folder: Path) -> Settings:
    return Settings(database_url=f"sqlite:///{folder / 'store.db'}", snapshot_dir=folder / "snaps")


@pytest.fixture
def bench(tmp_path: Path, db: Database, prepared: Prepared) -> Workbench:
    made = Workbench(db=db, settings=settings_of(tmp_path))
    made.models.put(prepared.plan.model, prepared.model)
    return made


def test_a_run_is_worked_off_and_closed(bench: Workbench, prepared: Prepared) -> None:
    run_id = runs.create(bench.db, prepared.plan, prepared.shards)
    ends = []
    while not ends or ends[-1] != "nothing":
        ends.append(bench.work(run_id))
    assert ends == ["done"] * 5 + ["nothing"]
    assert runs.get(bench.db, run_id).state == "done"
    found = list(results.iter_attributions(bench.db, run_id))
    assert len(found) == 40 * 2
    assert max(a.ledger.relative_gap for a in found) < 5e-6


def test_a_shard_is_claimed_by_name_for_the_length_of_a_lease_and_named_in_the_log(
    bench: Workbench, prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = runs.create(bench.db, prepared.plan, prepared.shards)
    seen: list[tuple[object, ...]] = []

    def computing(*_: object, **__: object) -> None:
        status = shards.list_shards(bench.db, run_id)[1]
        assert status.lease_left is not None
        assert 50 < status.lease_left <= 60
        seen.append((status.worker, logs._current.get()))
        raise Stopped

    monkeypatch.setattr(logs, "_current", ContextVar[dict[str, Any]]("fields", default={}))  # noqa: B039
    monkeypatch.setattr(claim_to_commit, "compute", computing)
    assert bench.work(run_id, 1) == "stopped"
    known = {"worker": bench.name, "run": run_id, "shard": 1, "attempt": 1}
    assert seen == [(bench.name, known)]


def test_a_stop_after_the_shard_was_lost_gives_nothing_back(
    bench: Workbench, prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = runs.create(bench.db, prepared.plan, prepared.shards[:1])

    def computing(*_: object, observer: LeaseKeeper, **__: object) -> None:
        runs.cancel(bench.db, run_id)
        observer.batch_started(["0"])
        raise Stopped

    monkeypatch.setattr(claim_to_commit, "compute", computing)
    assert bench.work(run_id) == "fenced"
    (status,) = shards.list_shards(bench.db, run_id)
    assert (status.state, status.attempt) == ("cancelled", 1)


def test_an_error_is_written_with_its_type(
    bench: Workbench, prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = runs.create(bench.db, prepared.plan, prepared.shards[:1])
    monkeypatch.setattr(
        claim_to_commit, "compute", Mock(side_effect=ModelLoadError("other weights"))
    )
    assert bench.work(run_id) == "failed"
    (status,) = shards.list_shards(bench.db, run_id)
    assert status.error == "ModelLoadError: other weights"


def test_each_run_is_worked_on_by_its_own_plan(
    bench: Workbench, prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = [
        runs.create(bench.db, replace(prepared.plan, name=name), prepared.shards) for name in "ab"
    ]
    reading = Mock(side_effect=runs.get)
    monkeypatch.setattr(claim_to_commit.runs, "get", reading)
    names = [bench.plan(made[place]).name for place in (0, 0, 1, 1, 0)]
    assert names == ["a", "a", "b", "b", "a"]
    assert reading.call_count == 2, "once for each run"


def test_runs_that_this_version_cannot_continue_are_refused_before_computing(
    bench: Workbench, prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = runs.create(bench.db, prepared.plan, prepared.shards[:1])
    versions = {run_id: {1}}
    monkeypatch.setattr(
        claim_to_commit.run_totals, "aggregate_versions", lambda _, run: versions.get(run, set())
    )
    monkeypatch.setattr(claim_to_commit, "compute", pytest.fail)
    assert bench.work(run_id) == "failed"
    (status,) = shards.list_shards(bench.db, run_id)
    assert "version 1" in (status.error or "")


def test_an_extra_message_does_nothing(bench: Workbench, prepared: Prepared) -> None:
    run_id = runs.create(bench.db, prepared.plan, prepared.shards)
    assert [bench.work(run_id, 3) for _ in range(2)] == ["done", "nothing"]
    assert runs.progress(bench.db, run_id).items_done == 8


def test_an_error_is_written_and_the_shard_comes_back_until_it_is_dead(
    bench: Workbench, prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = runs.create(bench.db, prepared.plan, prepared.shards)
    monkeypatch.setattr(bench.models, "get", lambda ref: (_ for _ in ()).throw(OSError("no disk")))
    assert [bench.work(run_id, 0) for _ in range(4)] == ["failed"] * 3 + ["nothing"]
    status = shards.list_shards(bench.db, run_id)[0]
    assert status.state == "dead"
    assert "no disk" in (status.error or "")
    assert shards.redrive(bench.db, run_id) == 1


@pytest.mark.exhaustive
def test_a_stop_gives_the_shard_back_uncounted(bench: Workbench, prepared: Prepared) -> None:
    run_id = runs.create(bench.db, prepared.plan, prepared.shards)
    bench.stop.set()
    assert bench.work(run_id) == "stopped"
    assert all(s.state == "queued" and s.attempt == 0 for s in shards.list_shards(bench.db, run_id))
    bench.stop.clear()
    assert bench.work(run_id) == "done"


@pytest.mark.exhaustive
def test_a_late_worker_writes_nothing(
    bench: Workbench, prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lease runs out while the worker computes; another one takes the shard and saves it."""
    run_id = runs.create(bench.db, prepared.plan, prepared.shards[:1])
    other = Workbench(db=bench.db, settings=bench.settings)
    other.models.put(prepared.plan.model, prepared.model)
    monkeypatch.setattr(LeaseKeeper, "_keep", lambda self: None)
    monkeypatch.setattr(bench, "settings", replace(bench.settings, lease_seconds=0.05))
    save = results.save

    def slow_save(db, claim, result):
        if claim.attempt == 1:
            time.sleep(0.2)
            assert other.work(run_id) == "done"
        save(db, claim, result)

    monkeypatch.setattr(results, "save", slow_save)
    assert bench.work(run_id) == "fenced"
    assert len(list(results.iter_attributions(bench.db, run_id))) == 16
    (status,) = shards.list_shards(bench.db, run_id)
    assert (status.state, status.attempt) == ("done", 2)


def wait_until_lost(keeper: LeaseKeeper) -> None:
    deadline = time.monotonic() + 20
    while not keeper.lost and time.monotonic() < deadline:
        time.sleep(0.02)
    assert keeper.lost
    assert keeper.should_stop()


@pytest.mark.exhaustive
def test_the_lease_is_renewed_while_there_is_progress(db: Database, prepared: Prepared) -> None:
    run_id = runs.create(db, prepared.plan, prepared.shards)
    claim = shards.claim(db, run_id, "w", 2.0)
    assert claim is not None
    with LeaseKeeper(db, claim, lease_seconds=2.0, item_deadline=60.0) as keeper:
        time.sleep(3.0)
        assert not keeper.should_stop()
        assert shards.claim(db, run_id, "thief", 2.0, claim.shard.index) is None


def test_a_hang_ends_the_process_and_queues_the_shard_at_once(
    db: Database, prepared: Prepared
) -> None:
    run_id = runs.create(db, prepared.plan, prepared.shards)
    claim = shards.claim(db, run_id, "w", 60.0)
    assert claim is not None
    printed: list[str] = []
    with LeaseKeeper(
        db, claim, lease_seconds=60.0, item_deadline=0.3, on_hang=printed.append
    ) as keeper:
        keeper.batch_started(["3", "4", "5", "6"])
        keeper.item_done("3")
        wait_until_lost(keeper)
    assert len(printed) == 1
    assert f"run {run_id} shard 0: items '3', '4', '5', ... made no progress" in printed[0]
    status = shards.list_shards(db, run_id)[0]
    assert (status.state, status.fruitless) == ("queued", 1)
    assert "attempt 1: it hung" in (status.error or "")
    assert status.caution.alone == {"3", "4", "5", "6"}
    heir = shards.claim(db, run_id, "next", 5.0, claim.shard.index)
    assert heir is not None
    assert heir.caution == status.caution


@pytest.mark.exhaustive
def test_a_hang_ends_the_process_even_when_the_lease_was_lost(
    db: Database, prepared: Prepared
) -> None:
    run_id = runs.create(db, prepared.plan, prepared.shards)
    claim = shards.claim(db, run_id, "w", 0.1)
    assert claim is not None
    runs.cancel(db, run_id)
    hung = threading.Event()
    with LeaseKeeper(
        db, claim, lease_seconds=0.1, item_deadline=1.0, on_hang=lambda message: hung.set()
    ) as keeper:
        keeper.batch_started(["0"])
        assert keeper.lost
        assert not hung.is_set()
        assert hung.wait(20)


@pytest.mark.exhaustive
def test_loading_the_model_may_take_longer_than_an_item(db: Database, prepared: Prepared) -> None:
    run_id = runs.create(db, prepared.plan, prepared.shards)
    claim = shards.claim(db, run_id, "w", 60.0)
    assert claim is not None
    printed: list[str] = []
    with LeaseKeeper(
        db, claim, lease_seconds=60.0, item_deadline=0.1, on_hang=printed.append
    ) as keeper:
        time.sleep(0.5)
        assert not printed
        keeper.batch_started(["0"])
        wait_until_lost(keeper)
    assert "item '0'" in printed[0]


def test_a_hang_before_the_first_batch_suspects_no_item(
    db: Database, prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat, "START_DEADLINE", 0.3)
    run_id = runs.create(db, prepared.plan, prepared.shards)
    claim = shards.claim(db, run_id, "w", 60.0)
    assert claim is not None
    printed: list[str] = []
    with LeaseKeeper(
        db, claim, lease_seconds=60.0, item_deadline=0.2, on_hang=printed.append
    ) as keeper:
        wait_until_lost(keeper)
    assert printed == [
        f"run {run_id} shard 0: work outside a batch made no progress within 0.3 seconds; this "
        "process ends (status 70)"
    ]
    status = shards.list_shards(db, run_id)[0]
    assert status.error == "attempt 1: it hung, no progress within 0.3 seconds"
    assert (status.state, status.fruitless) == ("queued", 1)


def breadcrumb(db: Database, claim: Claim) -> tuple[str, ...]:
    return shards.list_shards(db, claim.run_id)[claim.shard.index].breadcrumb


@pytest.mark.exhaustive
def test_a_first_attempt_notes_now_and_then_a_later_one_always(
    db: Database, prepared: Prepared
) -> None:
    run_id = runs.create(db, prepared.plan, prepared.shards)
    first = shards.claim(db, run_id, "w", -1.0, 0)
    assert first is not None
    keeper = LeaseKeeper(db, first, lease_seconds=60.0, item_deadline=60.0)
    keeper.batch_started(["0", "1"])
    assert breadcrumb(db, first) == ("0", "1")
    keeper.batch_started(["2", "3"])
    assert breadcrumb(db, first) == ("0", "1"), "a moment later it is not worth a write"
    time.sleep(0.3)
    keeper.batch_started(["4"])
    assert breadcrumb(db, first) == ("4",)
    second = shards.claim(db, run_id, "w", 60.0, 0)
    assert second is not None
    keeper.batch_started(["5"])
    time.sleep(0.3)
    keeper.batch_started(["6"])
    assert keeper.lost, "a note tells that the lease is gone"
    keeper = LeaseKeeper(db, second, lease_seconds=60.0, item_deadline=60.0)
    for batch in (["0"], ["1"], ["2", "3"]):
        keeper.batch_started(batch)
        assert breadcrumb(db, second) == tuple(batch)
    keeper.item_done("2")
    assert breadcrumb(db, second) == ("2", "3")
    keeper.item_done("3")
    assert breadcrumb(db, second) == ()


def is_noted(db: Database, claim: Claim) -> bool:
    until = time.monotonic() + 30
    while not (found := breadcrumb(db, claim)) and time.monotonic() < until:
        time.sleep(0.01)
    return found == ("0", "1")


def test_a_note_that_would_wait_for_another_writer_is_made_by_the_keeper(
    db: Database, prepared: Prepared
) -> None:
    run_id = runs.create(db, prepared.plan, prepared.shards)
    claim = shards.claim(db, run_id, "w", 60.0, 0)
    assert claim is not None
    with LeaseKeeper(db, claim, lease_seconds=60.0, item_deadline=60.0) as keeper:
        with db.begin():  # the commit of another shard
            keeper.batch_started(["0", "1"])
            assert not breadcrumb(db, claim)
        assert is_noted(db, claim)


def test_what_a_fast_device_has_in_hand_is_noted_beside_it(
    db: Database, prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = runs.create(db, prepared.plan, prepared.shards)
    threads, real = [], shards.note

    def noting(*args: Any, **options: Any) -> bool:
        threads.append(threading.current_thread().name)
        return real(*args, **options)

    monkeypatch.setattr(shards, "note", noting)
    for attempt, wanted in ((1, "lease-keeper"), (2, "MainThread")):
        claim = shards.claim(db, run_id, "w", -1.0, 0)
        assert claim is not None and claim.attempt == attempt
        options = {"lease_seconds": 60.0, "item_deadline": 60.0}
        with LeaseKeeper(db, claim, **options, beside=True) as keeper:
            keeper.batch_started(["0", "1"])
            assert is_noted(db, claim)
        assert threads.pop() == wanted


def test_cancel_reaches_the_work(db: Database, prepared: Prepared) -> None:
    run_id = runs.create(db, prepared.plan, prepared.shards)
    claim = shards.claim(db, run_id, "w", 0.3)
    assert claim is not None
    with LeaseKeeper(db, claim, lease_seconds=0.3, item_deadline=60.0) as keeper:
        runs.cancel(db, run_id)
        wait_until_lost(keeper)


def test_a_changed_model_is_refused(prepared: Prepared) -> None:
    wrong = replace(prepared.plan.model, digest="0" * 64)
    with pytest.raises(ModelLoadError, match="has changed since the run was planned"):
        ModelCache().get(wrong)
    assert ModelCache().get(prepared.plan.model).classes == ("bad", "so-so", "good")


@pytest.mark.exhaustive
def test_items_are_counted_while_they_are_done(bench: Workbench, prepared: Prepared) -> None:
    counts: list[int] = []
    bench.meter = WorkMeter(changed=lambda: counts.append(in_hand([bench.meter.cells])))
    plan = replace(prepared.plan, batch_tokens=20)
    run_id = runs.create(bench.db, plan, prepared.shards)
    bench.work(run_id)
    assert len(set(counts)) > 2, "after every batch"
    assert counts == sorted(counts)
    assert counts[-1] == 8


class Ended(BaseException):
    pass


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("broken", [True, False])
def test_a_hanging_process_writes_its_last_log_lines(
    monkeypatch: pytest.MonkeyPatch, terminal: bool, broken: bool
) -> None:
    class Screen(io.StringIO):
        def isatty(self) -> bool:
            return terminal

        def flush(self) -> None:
            if broken:
                raise OSError("gone")

    dumped: list[object] = []

    def end(status: int) -> None:
        raise Ended(status)

    screen = Screen()
    monkeypatch.setattr(heartbeat.sys, "stderr", screen)
    monkeypatch.setattr(heartbeat.faulthandler, "dump_traceback", dumped.append)
    monkeypatch.setattr(heartbeat.os, "_exit", end)
    with pytest.raises(Ended) as ended:
        heartbeat.end_process("it hung")
    assert ended.value.args == (70,), "whatever becomes of the words"
    assert screen.getvalue() == ("\x1b[?25h" if terminal else "") + "\nit hung\n"
    assert dumped == ([] if broken else [sys.__stderr__])


def test_processes_that_die_before_they_take_a_shard_are_not_replaced_for_ever(
    db: Database, prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = runs.create(db, prepared.plan, prepared.shards)
    monkeypatch.setattr(local, "_child", ends_at_once)
    with pytest.raises(InfrastructureError, match=rf"status 5 before .* run {run_id}"):
        local.run_processes(db, run_id, settings_of(tmp_path), 2)
    assert runs.claims(db, run_id) == 0
