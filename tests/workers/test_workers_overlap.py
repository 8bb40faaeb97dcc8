"""Overlapped shards: the same numbers, every lease kept to its commit, no error lost."""

import logging
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock, call

import numpy as np
import pytest
from fresh_stores import fresh_store
from shard_pool import ShardPool
from tiny_audit import make_audit

from orchestrator.plan import Prepared, prepare_audit
from orchestrator.spec import load_spec
from transexplain.auditing import explained_shard
from transexplain.errors import DatabaseError, ModelLoadError
from transexplain.explaining import Stopped, reading
from transexplain.settings import Settings
from transexplain.store import results, runs, shards
from transexplain.store.database import Database
from transexplain.store.runs import Claim
from transexplain.types.observer import Observer
from transexplain.types.plans import Shard, ShardResult
from workers import claim_to_commit, device_turns, logs
from workers.claim_to_commit import Device, Watch, Workbench
from workers.heartbeat import LeaseKeeper


@pytest.fixture
def prepared(tmp_path: Path) -> Prepared:
    spec = load_spec(make_audit(tmp_path))
    lines = (tmp_path / "texts.jsonl").read_text(encoding="utf-8").splitlines()
    lines[10] = '{"text": "", "label": "good"}'
    (tmp_path / "texts.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return prepare_audit(spec, Settings(snapshot_dir=tmp_path / "snaps"))


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with fresh_store(tmp_path / "store.db") as store:
        yield store


@pytest.fixture
def bench(db: Database, prepared: Prepared) -> Workbench:
    made = Workbench(db=db, settings=Settings(lease_seconds=5.0))
    made.models.put(prepared.plan.model, prepared.model)
    return made


@pytest.fixture
def pool(bench: Workbench) -> ShardPool:
    return ShardPool(bench)


@pytest.mark.exhaustive
def test_the_numbers_are_those_of_one_shard_after_another(
    bench: Workbench, prepared: Prepared
) -> None:
    plain = runs.create(bench.db, prepared.plan, prepared.shards)
    while bench.work(plain) != "nothing":
        pass
    overlapped = runs.create(bench.db, prepared.plan, prepared.shards)
    pool = ShardPool(bench)
    assert pool.work(overlapped, [2, 0, 1, 3, 4]) == dict.fromkeys(range(5), "done")
    assert [index for index, _ in pool.ends] == [2, 0, 1, 3, 4]
    assert pool.most > 1, "they did overlap"
    assert runs.get(bench.db, overlapped).state == "done"
    one, other = (list(results.iter_attributions(bench.db, run)) for run in (plain, overlapped))
    assert len(one) == len(other) == 39 * 2
    for left, right in zip(one, other, strict=True):
        assert (left.item_id, left.target, left.logit) == (right.item_id, right.target, right.logit)
        np.testing.assert_array_equal(left.relevance, right.relevance)
    assert runs.progress(bench.db, overlapped).items_failed == 1


@pytest.mark.exhaustive
def test_the_next_is_read_and_the_last_is_committed_meanwhile(
    bench: Workbench, pool: ShardPool, prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow commit of shard 0 is still under way when shard 1 is computed and 2 is read."""
    run_id = runs.create(bench.db, prepared.plan, prepared.shards[:3])
    read_two = threading.Event()
    real_read, real_save = reading.read_shard, results.save
    real_compute = claim_to_commit.compute
    threads: dict[str, set[str]] = {"read": set(), "compute": set(), "save": set()}

    def name() -> str:
        return threading.current_thread().name.rpartition("_")[0]

    def reads(ref: Any, shard: Shard, *more: Any) -> object:
        threads["read"].add(name())
        if shard.index == 2:
            read_two.set()
        return real_read(ref, shard, *more)

    def computing(*args: Any, **options: Any) -> ShardResult:
        threads["compute"].add(name())
        return real_compute(*args, **options)

    def saving(db: Database, claim: Claim, result: object) -> None:
        threads["save"].add(name())
        if claim.shard.index == 0:
            assert read_two.wait(30), "shard 2 is read while 0 is being committed"
        real_save(db, claim, result)

    monkeypatch.setattr(reading, "read_shard", reads)
    monkeypatch.setattr(claim_to_commit, "compute", computing)
    monkeypatch.setattr(results, "save", saving)
    assert set(pool.work(run_id, range(3)).values()) == {"done"}
    assert threads == {"read": {"shard-reader"}, "compute": {"device"}, "save": {"shard"}}
    assert runs.get(bench.db, run_id).state == "done"


@pytest.mark.exhaustive
def test_the_lease_is_kept_until_the_commit(
    bench: Workbench, pool: ShardPool, prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = runs.create(bench.db, prepared.plan, prepared.shards[:1])
    bench.settings = replace(bench.settings, lease_seconds=0.6)
    real = results.save

    def slow(db: Database, claim: Claim, result: object) -> None:
        time.sleep(2.0)
        assert shards.claim(db, run_id, "thief", 5.0) is None
        real(db, claim, result)

    monkeypatch.setattr(results, "save", slow)
    pool.work(run_id, [0])
    assert pool.ends == [(0, "done")]


@pytest.mark.exhaustive
def test_a_failed_commit_is_reported_and_loses_no_other(
    bench: Workbench, pool: ShardPool, prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database goes away during the first commit: its shard comes back, the others stay."""
    run_id = runs.create(bench.db, prepared.plan, prepared.shards)
    bench.settings = replace(bench.settings, lease_seconds=1.0)
    real = results.save

    def gone(db: Database, claim: Claim, result: object) -> None:
        if claim.shard.index == 0:
            raise DatabaseError("database went away")
        real(db, claim, result)

    monkeypatch.setattr(results, "save", gone)
    assert pool.work(run_id, range(5)) == dict.fromkeys(range(1, 5), "done")
    assert "went away" in str(pool.errors[0])
    states = {one.shard.index: one.state for one in shards.list_shards(bench.db, run_id)}
    assert states == {0: "running", **dict.fromkeys(range(1, 5), "done")}, "0 has its lease still"
    monkeypatch.setattr(results, "save", real)
    time.sleep(1.1)
    pool.work(run_id, [0])
    assert runs.get(bench.db, run_id).state == "done"
    assert runs.progress(bench.db, run_id).items_done == 39


@pytest.mark.exhaustive
def test_a_stop_waits_for_the_commit_and_gives_the_rest_back(
    bench: Workbench, pool: ShardPool, prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = runs.create(bench.db, prepared.plan, prepared.shards)
    real = results.save

    def stopping(db: Database, claim: Claim, result: object) -> None:
        bench.stop.set()
        time.sleep(0.5)
        real(db, claim, result)

    monkeypatch.setattr(results, "save", stopping)
    pool.work(run_id, range(5))
    states = shards.list_shards(bench.db, run_id)
    done = [one for one in states if one.state == "done"]
    assert done, "what was computed is committed"
    assert all(one.state in ("done", "queued") for one in states)
    assert all(one.attempt == (one.state == "done") for one in states), "given back uncounted"


@pytest.mark.exhaustive
def test_an_error_is_written_to_its_shard(
    bench: Workbench, pool: ShardPool, prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = runs.create(bench.db, prepared.plan, prepared.shards[:1])
    real = reading.read_shard

    def broken(ref: object, shard: Shard, *_: object) -> object:
        raise OSError("disk is gone")

    monkeypatch.setattr(reading, "read_shard", broken)
    pool.work(run_id, [0])
    (status,) = shards.list_shards(bench.db, run_id)
    assert "disk is gone" in (status.error or "")
    monkeypatch.setattr(reading, "read_shard", real)
    pool.work(run_id, [0])
    assert pool.ends == [(0, "failed"), (0, "done")]


def keepers() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name == "lease-keeper"]


def test_a_shard_that_cannot_be_read_fails_with_its_reason(
    bench: Workbench, pool: ShardPool, prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = runs.create(bench.db, prepared.plan, prepared.shards[:1])
    refused = ModelLoadError("the weights are others")
    monkeypatch.setattr(claim_to_commit, "model_for", Mock(side_effect=refused))
    pool.work(run_id, [0])
    (status,) = shards.list_shards(bench.db, run_id)
    assert (status.state, status.fruitless) == ("queued", 1)
    assert status.error == "ModelLoadError: the weights are others"
    assert pool.ends == [(0, "failed")]
    assert keepers() == [], "the lease is not kept any more"


@pytest.mark.parametrize(
    ("end", "state"), [(DatabaseError("away"), "running"), (KeyboardInterrupt(), "queued")]
)
def test_a_shard_that_is_not_to_blame_comes_back(
    bench: Workbench,
    pool: ShardPool,
    prepared: Prepared,
    monkeypatch: pytest.MonkeyPatch,
    end: BaseException,
    state: str,
) -> None:
    """By its lease where nothing can be written down, else at once."""
    run_id = runs.create(bench.db, prepared.plan, prepared.shards[:1])
    monkeypatch.setattr(claim_to_commit, "model_for", Mock(side_effect=end))
    pool.work(run_id, [0])
    (status,) = shards.list_shards(bench.db, run_id)
    assert (status.state, status.error) == (state, None)
    assert status.attempt == (state == "running")
    assert pool.ends == []
    assert type(pool.errors[0]) is type(end)
    assert keepers() == []


@pytest.mark.exhaustive
def test_a_result_that_cannot_be_saved_fails_its_shard(
    bench: Workbench, pool: ShardPool, prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = runs.create(bench.db, prepared.plan, prepared.shards[:1])
    monkeypatch.setattr(results, "save", Mock(side_effect=ValueError("rows are missing")))
    pool.work(run_id, [0])
    (status,) = shards.list_shards(bench.db, run_id)
    assert (status.state, status.error) == ("queued", "ValueError: rows are missing")
    assert pool.ends == [(0, "failed")]
    assert keepers() == []


@pytest.mark.parametrize("cancelled", [True, False])
def test_a_shard_that_is_stopped_is_given_back_if_it_is_still_ours(
    bench: Workbench,
    pool: ShardPool,
    prepared: Prepared,
    monkeypatch: pytest.MonkeyPatch,
    cancelled: bool,
) -> None:
    run_id = runs.create(bench.db, prepared.plan, prepared.shards[:1])

    def computing(*_: object, observer: Observer, **__: object) -> None:
        if cancelled:
            runs.cancel(bench.db, run_id)
            observer.batch_started(["0"])
            assert observer.should_stop()
        raise Stopped

    monkeypatch.setattr(claim_to_commit, "compute", computing)
    pool.work(run_id, [0])
    (status,) = shards.list_shards(bench.db, run_id)
    assert pool.ends == [(0, "fenced" if cancelled else "stopped")]
    wanted = ("cancelled", 1) if cancelled else ("queued", 0)
    assert (status.state, status.attempt) == wanted


@pytest.mark.parametrize("after", [0, 1])
def test_a_shard_whose_task_is_revoked_stops_after_its_batch(
    bench: Workbench, pool: ShardPool, prepared: Prepared, after: int
) -> None:
    run_id = runs.create(bench.db, prepared.plan, prepared.shards[:1])
    requested: list[bool] = []

    def revoked() -> bool:
        requested.append(len(requested) >= after)
        return requested[-1]

    assert bench.work(run_id, 0, revoked=revoked) == "stopped"
    assert len(requested) == after + 1
    (status,) = shards.list_shards(bench.db, run_id)
    assert (status.state, status.attempt) == ("queued", 0)


@pytest.mark.exhaustive
def test_an_error_of_the_database_leaves_the_shard_that_waits_alone(
    bench: Workbench, pool: ShardPool, prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = runs.create(bench.db, prepared.plan, prepared.shards[:2])
    real = claim_to_commit.compute

    def computing(plan: Any, shard: Shard, *args: Any, **options: Any) -> ShardResult:
        made = real(plan, shard, *args, **options)
        if shard.index == 0:
            raise DatabaseError("database went away")
        return made

    monkeypatch.setattr(claim_to_commit, "compute", computing)
    pool.work(run_id, range(2))
    assert pool.ends == [(1, "done")]
    assert "database went away" in str(pool.errors[0])
    assert keepers() == []


@pytest.mark.exhaustive
def test_lines_of_the_log_name_their_run_and_shard(
    bench: Workbench,
    pool: ShardPool,
    prepared: Prepared,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    run_id = runs.create(bench.db, prepared.plan, prepared.shards[:2])
    caplog.handler.addFilter(logs._add_fields)
    monkeypatch.setattr(logs, "_current", ContextVar[dict[str, Any]]("fields", default={}))  # noqa: B039
    real_save, real_compute = results.save, claim_to_commit.compute

    def computing(plan: Any, shard: Shard, *args: Any, **options: Any) -> ShardResult:
        logging.getLogger("computing").warning("shard %d", shard.index)
        return real_compute(plan, shard, *args, **options)

    def saving(db: Database, claim: Claim, result: object) -> None:
        logging.getLogger("committing").warning("shard %d", claim.shard.index)
        real_save(db, claim, result)

    monkeypatch.setattr(claim_to_commit, "compute", computing)
    monkeypatch.setattr(results, "save", saving)
    pool.work(run_id, range(2))
    for where in ("computing", "committing"):
        reported = [record for record in caplog.records if record.name == where]
        assert [(one.run, one.shard, one.attempt) for one in reported] == [  # type: ignore[attr-defined]
            (run_id, 0, 1),
            (run_id, 1, 1),
        ]


def test_a_late_commit_is_fenced(
    bench: Workbench, pool: ShardPool, prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = runs.create(bench.db, prepared.plan, prepared.shards[:1])
    real = results.save

    def late(db: Database, claim: Claim, result: object) -> None:
        monkeypatch.setattr(results, "save", real)
        runs.cancel(db, run_id)
        real(db, claim, result)

    monkeypatch.setattr(results, "save", late)
    pool.work(run_id, [0])
    assert pool.ends == [(0, "fenced")]
    assert not list(results.iter_attributions(bench.db, run_id))


def test_each_shard_is_claimed_by_name_and_for_the_length_of_a_lease(
    bench: Workbench, pool: ShardPool, prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = runs.create(bench.db, prepared.plan, prepared.shards[:2])
    requested: list[tuple[object, ...]] = []
    real = shards.claim

    def claiming(db: Database, *args: Any) -> Claim | None:
        requested.append(args)
        return real(db, *args)

    monkeypatch.setattr(shards, "claim", claiming)
    assert pool.work(run_id, [1, 0]) == {0: "done", 1: "done"}
    assert requested == [(run_id, bench.name, 5.0, 1), (run_id, bench.name, 5.0, 0)], "and no other"


@pytest.mark.parametrize("died", [True, False])
@pytest.mark.exhaustive
def test_nothing_is_claimed_ahead_of_a_shard_that_died_before(
    bench: Workbench,
    pool: ShardPool,
    prepared: Prepared,
    monkeypatch: pytest.MonkeyPatch,
    died: bool,
) -> None:
    run_id = runs.create(bench.db, prepared.plan, prepared.shards[:3])
    if died:
        assert shards.claim(bench.db, run_id, "dead", -1.0, 0) is not None
    real = claim_to_commit.compute
    rooms: list[int] = []

    def computing(*args: Any, observer: Watch, **options: Any) -> ShardResult:
        made = real(*args, observer=observer, **options)
        rooms.append(bench.device.room)
        return made

    monkeypatch.setattr(claim_to_commit, "compute", computing)
    assert bench.work(run_id, 0) == "done"
    assert rooms == [1 if died else 2]
    assert bench.device.room == 1


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


def test_there_is_no_room_after_an_error() -> None:
    device = Device()

    def computing(watch: Watch) -> ShardResult:
        for name in "abcd":
            watch.item_done(name)
        raise ValueError("no result")

    with pytest.raises(ValueError, match="no result"):
        device.compute(claimed(), keeper(), computing)
    assert device.room == 1


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
        until = time.monotonic() + 30
        while not device._waiting and time.monotonic() < until:
            time.sleep(0.001)
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
    bench: Workbench, pool: ShardPool, prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = runs.create(bench.db, prepared.plan, prepared.shards[:2])
    bench.work(run_id, 0)  # what the logits depend on is measured
    encoder = type(prepared.model.encoder)
    threads: dict[str, list[str]] = {"prepare": [], "padded": []}

    def noting(name: str, call: Any) -> Any:
        def noted(*args: Any, **options: Any) -> Any:
            threads[name].append(threading.current_thread().name.rpartition("_")[0])
            return call(*args, **options)

        return noted

    monkeypatch.setattr(claim_to_commit, "prepare", noting("prepare", claim_to_commit.prepare))
    monkeypatch.setattr(encoder, "padded", noting("padded", encoder.padded))
    assert pool.work(run_id, [1]) == {1: "done"}
    assert threads["prepare"] == ["shard"]
    assert threads["padded"][0] == "padding"


def test_a_shard_that_died_before_is_not_prepared(
    bench: Workbench, pool: ShardPool, prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = runs.create(bench.db, prepared.plan, prepared.shards[:1])
    claim = shards.claim(bench.db, run_id, "w", 60.0, 0)
    assert claim is not None
    shards.hang(bench.db, claim, ["row-1"], "it hung")
    monkeypatch.setattr(claim_to_commit, "prepare", Mock(side_effect=AssertionError))
    assert pool.work(run_id, [0]) == {0: "done"}


def test_a_shard_is_finished_while_the_next_is_computed(
    bench: Workbench, pool: ShardPool, prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = runs.create(bench.db, prepared.plan, prepared.shards[:2])
    real = claim_to_commit.compute
    next_is_computed = threading.Event()

    def computing(plan: Any, shard: Shard, *args: Any, **options: Any) -> Any:
        unfinished = real(plan, shard, *args, **options)
        if shard.index == 1:
            next_is_computed.set()
            return unfinished

        def finished() -> ShardResult:
            assert next_is_computed.wait(30)
            assert threading.current_thread().name.startswith("shard")
            return cast(ShardResult, unfinished())

        return finished

    monkeypatch.setattr(claim_to_commit, "compute", computing)
    assert pool.work(run_id, range(2)) == {0: "done", 1: "done"}


def test_an_error_while_records_are_finished_fails_that_shard_alone(
    bench: Workbench, pool: ShardPool, prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = runs.create(bench.db, prepared.plan, prepared.shards[:2])
    real = explained_shard._Gathered.add
    broken: list[str] = []

    def adding(gathered: Any, done: Any) -> None:
        if done.item is not None and done.item.index == 3 and not broken:
            broken.append(done.item.id)
            raise ValueError("no such total")
        real(gathered, done)

    monkeypatch.setattr(explained_shard._Gathered, "add", adding)
    assert pool.work(run_id, range(2)) == {0: "failed", 1: "done"}
    (status, _) = shards.list_shards(bench.db, run_id)
    assert status.error == "ValueError: no such total"
    assert pool.work(run_id, [0]) == {0: "done", 1: "done"}
    assert not [one for one in threading.enumerate() if one.name == "finishing"]
