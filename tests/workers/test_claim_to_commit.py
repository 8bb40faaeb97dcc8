"""A shard from claim to commit: results, leases lost and kept, failures, stops."""

import io
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock, call

import numpy as np
import pytest
from chaos_groups import wait_for
from gallery import prepare as prepared_audit
from shard_pool import ShardPool
from short_lives import ends_at_once
from tiny_audit import make_audit

from orchestrator.dispatch import local
from orchestrator.plan import PreparedAudit
from transexplain.auditing import explained_shard
from transexplain.errors import DatabaseError, InfrastructureError
from transexplain.explaining import Stopped
from transexplain.settings import Settings
from transexplain.store import readers, results, runs, shards
from transexplain.store.database import Database
from transexplain.store.runs import Claim
from transexplain.types.observer import Observer
from transexplain.types.plans import Shard, ShardResult
from workers import claim_to_commit, device_turns, heartbeat
from workers.claim_to_commit import Device, Watch, Workbench
from workers.heartbeat import LeaseKeeper


def settings_of(folder: Path) -> Settings:
    return Settings(database_url=f"sqlite:///{folder / 'store.db'}", snapshot_dir=folder / "snaps")


@pytest.fixture
def prepared(tmp_path: Path) -> PreparedAudit:
    spec = make_audit(tmp_path, lines={10: '{"text": "", "label": "good"}'})
    return prepared_audit(spec, tmp_path)


@pytest.fixture
def bench(tmp_path: Path, db: Database, prepared: PreparedAudit) -> Workbench:
    made = Workbench(db=db, settings=replace(settings_of(tmp_path), lease_seconds=5.0))
    made.models.put(prepared.plan.model, prepared.model)
    return made


@pytest.fixture
def pool(bench: Workbench) -> ShardPool:
    return ShardPool(bench)


Start = Callable[..., str]


@pytest.fixture
def start(bench: Workbench, prepared: PreparedAudit) -> Start:
    """Creates a run of so many shards, of all five by default."""
    return lambda count=5: runs.create(bench.db, prepared.plan, prepared.shards[:count])


def test_a_run_is_worked_off_and_closed(bench: Workbench, start: Start) -> None:
    run_id = start()
    ends = []
    while not ends or ends[-1] != "nothing":
        ends.append(bench.work(run_id))
    assert ends == ["done"] * 5 + ["nothing"]
    assert runs.get(bench.db, run_id).state == "done"
    found = list(readers.iter_attributions(bench.db, run_id))
    assert len(found) == 39 * 2
    assert max(a.ledger.relative_gap for a in found) < 5e-6


def test_each_run_is_worked_on_by_its_own_plan(
    bench: Workbench, prepared: PreparedAudit, monkeypatch: pytest.MonkeyPatch
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
    bench: Workbench, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = start(1)
    versions = {run_id: {1}}
    monkeypatch.setattr(
        claim_to_commit.run_totals, "aggregate_versions", lambda _, run: versions.get(run, set())
    )
    monkeypatch.setattr(claim_to_commit, "compute", pytest.fail)
    assert bench.work(run_id) == "failed"
    (status,) = shards.list_shards(bench.db, run_id)
    assert "version 1" in (status.error or "")


def test_an_extra_message_does_nothing(bench: Workbench, start: Start) -> None:
    run_id = start()
    assert [bench.work(run_id, 3) for _ in range(2)] == ["done", "nothing"]
    assert runs.progress(bench.db, run_id).items_done == 8


def test_an_error_is_written_and_the_shard_comes_back_until_it_is_dead(
    bench: Workbench, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = start()
    monkeypatch.setattr(bench.models, "get", lambda ref: (_ for _ in ()).throw(OSError("no disk")))
    assert [bench.work(run_id, 0) for _ in range(4)] == ["failed"] * 3 + ["nothing"]
    status = shards.list_shards(bench.db, run_id)[0]
    assert status.state == "dead"
    assert "no disk" in (status.error or "")
    assert shards.redrive(bench.db, run_id) == 1


def breadcrumb(db: Database, claim: Claim) -> tuple[str, ...]:
    return shards.list_shards(db, claim.run_id)[claim.shard.index].breadcrumb


def is_noted(db: Database, claim: Claim) -> bool:
    wait_for(lambda: breadcrumb(db, claim), "the note", 30)
    return breadcrumb(db, claim) == ("0", "1")


def test_a_note_that_would_wait_for_another_writer_is_made_by_the_keeper(
    db: Database, start: Start
) -> None:
    run_id = start()
    claim = shards.claim(db, run_id, "w", 60.0, 0)
    assert claim is not None
    with LeaseKeeper(db, claim, lease_seconds=60.0, item_deadline=60.0) as keeper:
        with db.begin():  # the commit of another shard
            keeper.batch_started(["0", "1"])
            assert not breadcrumb(db, claim)
        assert is_noted(db, claim)


def test_what_a_fast_device_has_in_hand_is_noted_beside_it(
    db: Database, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = start()
    beside, real, here = [], shards.note, threading.get_ident()

    def noting(*args: Any, **options: Any) -> bool:
        beside.append(threading.get_ident() != here)
        return real(*args, **options)

    monkeypatch.setattr(shards, "note", noting)
    for attempt in (1, 2):
        claim = shards.claim(db, run_id, "w", -1.0, 0)
        assert claim is not None and claim.attempt == attempt
        options = {"lease_seconds": 60.0, "item_deadline": 60.0}
        with LeaseKeeper(db, claim, **options, beside=True) as keeper:
            keeper.batch_started(["0", "1"])
            assert is_noted(db, claim)
        assert beside.pop() == (attempt == 1)


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
    db: Database, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = start()
    monkeypatch.setattr(local, "_child", ends_at_once)
    with pytest.raises(InfrastructureError, match=rf"status 5 before .* run {run_id}"):
        local.run_processes(db, run_id, settings_of(tmp_path), 2)
    assert runs.claims(db, run_id) == 0


@pytest.mark.exhaustive
def test_the_numbers_are_those_of_one_shard_after_another(bench: Workbench, start: Start) -> None:
    plain = start()
    while bench.work(plain) != "nothing":
        pass
    overlapped = start()
    pool = ShardPool(bench)
    assert pool.work(overlapped, [2, 0, 1, 3, 4]) == dict.fromkeys(range(5), "done")
    assert [index for index, _ in pool.ends] == [2, 0, 1, 3, 4]
    assert pool.most > 1, "they did overlap"
    assert runs.get(bench.db, overlapped).state == "done"
    one, other = (list(readers.iter_attributions(bench.db, run)) for run in (plain, overlapped))
    assert len(one) == len(other) == 39 * 2
    for left, right in zip(one, other, strict=True):
        assert (left.item_id, left.target, left.logit) == (right.item_id, right.target, right.logit)
        np.testing.assert_array_equal(left.relevance, right.relevance)
    assert runs.progress(bench.db, overlapped).items_failed == 1


@pytest.mark.exhaustive
def test_a_failed_commit_is_reported_and_loses_no_other(
    pool: ShardPool, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database goes away during the first commit: its shard comes back, the others stay."""
    run_id = start()
    pool.bench.settings = replace(pool.bench.settings, lease_seconds=1.0)
    real = results.save

    def gone(db: Database, claim: Claim, result: object) -> None:
        if claim.shard.index == 0:
            raise DatabaseError("database went away")
        real(db, claim, result)

    monkeypatch.setattr(results, "save", gone)
    assert pool.work(run_id, range(5)) == dict.fromkeys(range(1, 5), "done")
    assert "went away" in str(pool.errors[0])
    states = {one.shard.index: one.state for one in shards.list_shards(pool.bench.db, run_id)}
    assert states == {0: "running", **dict.fromkeys(range(1, 5), "done")}, "0 has its lease still"
    monkeypatch.setattr(results, "save", real)
    time.sleep(1.1)
    pool.work(run_id, [0])
    assert runs.get(pool.bench.db, run_id).state == "done"
    assert runs.progress(pool.bench.db, run_id).items_done == 39


@pytest.mark.exhaustive
def test_a_stop_waits_for_the_commit_and_gives_the_rest_back(
    pool: ShardPool, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = start()
    real = results.save

    def stopping(db: Database, claim: Claim, result: object) -> None:
        pool.bench.stop.set()
        time.sleep(0.5)
        real(db, claim, result)

    monkeypatch.setattr(results, "save", stopping)
    pool.work(run_id, range(5))
    states = shards.list_shards(pool.bench.db, run_id)
    done = [one for one in states if one.state == "done"]
    assert done, "what was computed is committed"
    assert all(one.state in ("done", "queued") for one in states)
    assert all(one.attempt == (one.state == "done") for one in states), "given back uncounted"


@pytest.mark.parametrize(
    ("end", "state"), [(DatabaseError("away"), "running"), (KeyboardInterrupt(), "queued")]
)
def test_a_shard_that_is_not_to_blame_comes_back(
    pool: ShardPool, start: Start, monkeypatch: pytest.MonkeyPatch, end: BaseException, state: str
) -> None:
    """By its lease where nothing can be written down, else at once."""
    run_id = start(1)
    monkeypatch.setattr(claim_to_commit, "model_for", Mock(side_effect=end))
    pool.work(run_id, [0])
    (status,) = shards.list_shards(pool.bench.db, run_id)
    assert (status.state, status.error) == (state, None)
    assert status.attempt == (state == "running")
    assert pool.ends == []
    assert type(pool.errors[0]) is type(end)


@pytest.mark.parametrize("cancelled", [True, False])
def test_a_shard_that_is_stopped_is_given_back_if_it_is_still_ours(
    pool: ShardPool, start: Start, monkeypatch: pytest.MonkeyPatch, cancelled: bool
) -> None:
    run_id = start(1)

    def computing(*_: object, observer: Observer, **__: object) -> None:
        if cancelled:
            runs.cancel(pool.bench.db, run_id)
            observer.batch_started(["0"])
            assert observer.should_stop()
        raise Stopped

    monkeypatch.setattr(claim_to_commit, "compute", computing)
    pool.work(run_id, [0])
    (status,) = shards.list_shards(pool.bench.db, run_id)
    assert pool.ends == [(0, "fenced" if cancelled else "stopped")]
    wanted = ("cancelled", 1) if cancelled else ("queued", 0)
    assert (status.state, status.attempt) == wanted


@pytest.mark.parametrize("after", [0, 1])
def test_a_shard_whose_task_is_revoked_stops_after_its_batch(
    pool: ShardPool, start: Start, after: int
) -> None:
    run_id = start(1)
    requested: list[bool] = []

    def revoked() -> bool:
        requested.append(len(requested) >= after)
        return requested[-1]

    assert pool.bench.work(run_id, 0, revoked=revoked) == "stopped"
    assert len(requested) == after + 1
    (status,) = shards.list_shards(pool.bench.db, run_id)
    assert (status.state, status.attempt) == ("queued", 0)


def test_a_late_commit_is_fenced(
    pool: ShardPool, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = start(1)
    real = results.save

    def late(db: Database, claim: Claim, result: object) -> None:
        monkeypatch.setattr(results, "save", real)
        runs.cancel(db, run_id)
        real(db, claim, result)

    monkeypatch.setattr(results, "save", late)
    pool.work(run_id, [0])
    assert pool.ends == [(0, "fenced")]
    assert not list(readers.iter_attributions(pool.bench.db, run_id))


def claimed(attempt: int = 1) -> Claim:
    shard = Shard(index=0, start=0, stop=4)
    return Claim(run_id="r", shard=shard, token=attempt, attempt=attempt)


def keeper() -> Mock:
    return Mock(spec=LeaseKeeper)


def test_there_is_room_for_the_next_near_the_end_and_while_one_is_committed() -> None:
    rooms: list[int] = []
    device = Device(on_room=lambda: rooms.append(device.room))

    def computing(watch: Watch) -> ShardResult:
        for done, name in enumerate("abcd", start=1):
            watch.item_done(name)
            assert device.room == 1 + (done >= 3)
        return cast(ShardResult, "result")

    mine = keeper()
    assert device.compute(claimed(), mine, computing) == "result"
    assert mine.mock_calls == [call.item_done(name) for name in "abcd"]
    with device.committing():
        assert device.room == 2
    assert rooms == [2, 1, 2, 1], "and each change is reported"


def test_a_shard_that_waits_is_touched_while_another_moves() -> None:
    with ThreadPoolExecutor(1, "device") as executor, ThreadPoolExecutor(2) as threads:
        device = Device(executor)
        mine, waiting = keeper(), keeper()
        begun, there = threading.Event(), threading.Event()

        def first(watch: Watch) -> ShardResult:
            watch.batch_started(["a"])
            begun.set()
            assert there.wait(30)
            watch.batch_started(["b"])
            watch.item_done("b")
            return cast(ShardResult, 1)

        def second(watch: Watch) -> ShardResult:
            watch.batch_started(["c"])
            return cast(ShardResult, 2)

        one: Future[Any] = threads.submit(device.compute, claimed(), mine, first)
        assert begun.wait(30)
        other: Future[Any] = threads.submit(device.compute, claimed(), waiting, second)
        wait_for(lambda: device._waiting, "the second waits", 30)
        assert not waiting.mock_calls, "it is not there yet"
        there.set()
        assert (one.result(), other.result()) == (1, 2)
    assert waiting.mock_calls == [call.touch(), call.touch(), call.batch_started(["c"])]
    assert call.touch() in mine.mock_calls, "its turn has come"
    assert call.batch_started(["b"]) in mine.mock_calls


def test_there_is_room_earlier_where_the_rest_takes_but_a_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two of four items took 1.5 s, so the others will; on a retry that does not matter."""
    now = [100.0]
    monkeypatch.setattr(device_turns, "time", SimpleNamespace(monotonic=lambda: now[0]))
    rooms: list[list[int]] = [[], []]
    device = Device()

    def computing(watch: Watch) -> ShardResult:
        watch.item_done("one that could not be encoded")
        for name in "bcd":
            watch.batch_started([name])
            now[0] += 1.5
            watch.item_done(name)
            rooms[-1].append(device.room)
        return cast(ShardResult, "result")

    monkeypatch.setattr(device_turns, "NEAR_END", 1.0)
    device.compute(claimed(), keeper(), computing)
    assert rooms.pop() == [2, 2, 2]
    now[0] = 100.0
    device.compute(claimed(attempt=2), keeper(), computing)
    assert rooms.pop() == [1, 1, 1], "it may take the process along"


def test_two_shards_may_wait_where_the_last_took_but_a_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The pace of a run's last shard decides: 0.4 s, then 1.6 s, then 8 s for four items."""
    now = [100.0]
    monkeypatch.setattr(device_turns, "time", SimpleNamespace(monotonic=lambda: now[0]))
    rooms: list[int] = []
    device = Device(most_ahead=2)

    def computing(seconds: float) -> Any:
        def compute(watch: Watch) -> ShardResult:
            rooms.append(device.room)
            now[0] += seconds
            return cast(ShardResult, "result")

        return compute

    for seconds in (0.4, 1.6, 8.0, 8.0):
        device.compute(claimed(), keeper(), computing(seconds))
    assert rooms == [1, 3, 2, 1]
    device.compute(claimed(), keeper(), computing(0.4))
    device.compute(claimed(attempt=2), keeper(), computing(0.4))
    assert rooms[-1] == 1, "nobody waits for a shard that died before"


def test_a_shard_is_prepared_before_its_turn_by_the_thread_that_claimed_it(
    pool: ShardPool, prepared: PreparedAudit, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = start(2)
    pool.bench.work(run_id, 0)  # what the logits depend on is measured
    threads: dict[str, int] = {}

    def noting(place: Any, name: str) -> None:
        real = getattr(place, name)

        def noted(*args: Any, **options: Any) -> Any:
            threads.setdefault(name, threading.get_ident())
            return real(*args, **options)

        monkeypatch.setattr(place, name, noted)

    for place, name in (
        *((shards, "claim"), (claim_to_commit, "prepare"), (claim_to_commit, "compute")),
        (type(prepared.model.encoder), "padded"),
    ):
        noting(place, name)
    assert pool.work(run_id, [1]) == {1: "done"}
    assert threads["prepare"] == threads["claim"]
    assert len({threads["claim"], threads["compute"], threads["padded"]}) == 3


@pytest.mark.exhaustive
def test_a_shard_that_died_before_is_not_prepared(
    pool: ShardPool, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = start(1)
    claim = shards.claim(pool.bench.db, run_id, "w", 60.0, 0)
    assert claim is not None
    shards.hang(pool.bench.db, claim, ["row-1"], "it hung")
    monkeypatch.setattr(claim_to_commit, "prepare", Mock(side_effect=AssertionError))
    assert pool.work(run_id, [0]) == {0: "done"}


def test_a_shard_is_finished_while_the_next_is_computed(
    pool: ShardPool, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = start(2)
    real = claim_to_commit.compute
    next_is_computed = threading.Event()

    def computing(plan: Any, shard: Shard, *args: Any, **options: Any) -> Any:
        unfinished = real(plan, shard, *args, **options)
        if shard.index == 1:
            next_is_computed.set()
            return unfinished

        def finished() -> ShardResult:
            assert next_is_computed.wait(30)
            return cast(ShardResult, unfinished())

        return finished

    monkeypatch.setattr(claim_to_commit, "compute", computing)
    assert pool.work(run_id, range(2)) == {0: "done", 1: "done"}


def test_an_error_while_records_are_finished_fails_that_shard_alone(
    pool: ShardPool, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = start(2)
    real = explained_shard._Gathered.add
    broken: list[str] = []

    def adding(gathered: Any, done: Any) -> None:
        if done.item is not None and done.item.index == 3 and not broken:
            broken.append(done.item.id)
            raise ValueError("no such total")
        real(gathered, done)

    monkeypatch.setattr(explained_shard._Gathered, "add", adding)
    assert pool.work(run_id, range(2)) == {0: "failed", 1: "done"}
    (status, _) = shards.list_shards(pool.bench.db, run_id)
    assert status.error == "ValueError: no such total"
    assert pool.work(run_id, [0]) == {0: "done", 1: "done"}
