"""Overlapped shards: the same numbers, every lease kept to its commit, no error lost."""

import logging
import threading
import time
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock, call

import numpy as np
import pytest
from tiny_audit import make_audit

from orchestrator.plan import Prepared, prepare_audit
from orchestrator.spec import load_spec
from transexplain.errors import DatabaseError, ModelLoadError
from transexplain.explaining import Stopped
from transexplain.plans import Shard
from transexplain.settings import Settings
from transexplain.store import results, runs, shards
from transexplain.store.database import Database, open_database
from transexplain.store.records import Claim
from transexplain.supervision import Observer
from workers import logs, read_ahead
from workers import pipeline as pipeline_module
from workers.claim_to_commit import End, Workbench
from workers.pipeline import Pipeline


@pytest.fixture
def prepared(tmp_path: Path) -> Prepared:
    spec = load_spec(make_audit(tmp_path))
    lines = (tmp_path / "texts.jsonl").read_text(encoding="utf-8").splitlines()
    lines[10] = '{"text": "", "label": "good"}'
    (tmp_path / "texts.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return prepare_audit(spec, Settings(snapshot_dir=tmp_path / "snaps"))


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with open_database(f"sqlite:///{tmp_path / 'store.db'}", upgrade=True) as store:
        yield store


@pytest.fixture
def bench(db: Database, prepared: Prepared) -> Workbench:
    made = Workbench(db=db, settings=Settings(lease_seconds=5.0))
    made.models.put(prepared.plan.model, prepared.model)
    return made


class Ends:
    """How each shard ended, by index."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, End]] = []

    def __call__(self, claim: Claim, end: End) -> None:
        self.seen.append((claim.shard.index, end))


def test_the_numbers_are_those_of_one_shard_after_another(
    bench: Workbench, prepared: Prepared
) -> None:
    plain = runs.create(bench.db, prepared.plan, prepared.shards)
    while bench.work(plain) != "nothing":
        pass
    overlapped = runs.create(bench.db, prepared.plan, prepared.shards)
    ends = Ends()
    with Pipeline(bench, ends) as pipeline:
        assert pipeline.stint(overlapped, 2) == 5
    assert [index for index, _ in ends.seen] == [2, 0, 1, 3, 4]
    assert {end for _, end in ends.seen} == {"done"}
    assert runs.get(bench.db, overlapped).state == "done"
    one, other = (list(results.iter_attributions(bench.db, run)) for run in (plain, overlapped))
    assert len(one) == len(other) == 39 * 2
    for left, right in zip(one, other, strict=True):
        assert (left.item_id, left.target, left.logit) == (right.item_id, right.target, right.logit)
        np.testing.assert_array_equal(left.relevance, right.relevance)
    assert runs.progress(bench.db, overlapped).items_failed == 1


def test_the_next_is_read_and_the_last_is_committed_meanwhile(
    bench: Workbench, prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow commit of shard 0 is still under way when shard 1 is computed and 2 is read."""
    run_id = runs.create(bench.db, prepared.plan, prepared.shards[:3])
    read_two = threading.Event()
    real_read, real_save = read_ahead.read_shard, results.save
    threads: dict[str, set[str]] = {"read": set(), "save": set()}

    def reading(ref: object, shard: Shard) -> object:
        threads["read"].add(threading.current_thread().name)
        if shard.index == 2:
            read_two.set()
        return real_read(ref, shard)

    def saving(db: Database, claim: Claim, result: object) -> None:
        threads["save"].add(threading.current_thread().name)
        if claim.shard.index == 0:
            assert read_two.wait(30), "shard 2 is read while 0 is being committed"
        real_save(db, claim, result)

    monkeypatch.setattr(read_ahead, "read_shard", reading)
    monkeypatch.setattr(results, "save", saving)
    with Pipeline(bench) as pipeline:
        assert pipeline.stint(run_id) == 3
    assert {name.rpartition("_")[0] for name in threads["read"]} == {"shard-reader"}
    assert {name.rpartition("_")[0] for name in threads["save"]} == {"shard-writer"}
    assert runs.get(bench.db, run_id).state == "done"


def test_the_lease_is_kept_until_the_commit(
    bench: Workbench, prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = runs.create(bench.db, prepared.plan, prepared.shards[:1])
    bench.settings = replace(bench.settings, lease_seconds=0.6)
    real = results.save

    def slow(db: Database, claim: Claim, result: object) -> None:
        time.sleep(2.0)
        assert shards.claim(db, run_id, "thief", 5.0) is None
        real(db, claim, result)

    monkeypatch.setattr(results, "save", slow)
    ends = Ends()
    with Pipeline(bench, ends) as pipeline:
        pipeline.stint(run_id)
    assert ends.seen == [(0, "done")]


def test_a_failed_commit_is_told_and_loses_no_other(
    bench: Workbench, prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database goes away during the first commit: its shard comes back, the second stays."""
    run_id = runs.create(bench.db, prepared.plan, prepared.shards)
    bench.settings = replace(bench.settings, lease_seconds=1.0)
    real = results.save

    def gone(db: Database, claim: Claim, result: object) -> None:
        if claim.shard.index == 0:
            raise DatabaseError("database went away")
        real(db, claim, result)

    monkeypatch.setattr(results, "save", gone)
    ends = Ends()
    with pytest.raises(DatabaseError, match="went away"), Pipeline(bench, ends) as pipeline:
        pipeline.stint(run_id)
    assert dict(ends.seen)[1] == "done"
    states = {one.shard.index: one.state for one in shards.list_shards(bench.db, run_id)}
    assert (states[0], states[1]) == ("running", "done"), "the lease of 0 runs out by itself"
    assert states[2] == "queued", "what was claimed ahead is given back"
    monkeypatch.setattr(results, "save", real)
    time.sleep(1.1)
    with Pipeline(bench) as pipeline:
        while pipeline.stint(run_id):
            pass
    assert runs.get(bench.db, run_id).state == "done"
    assert runs.progress(bench.db, run_id).items_done == 39


def test_a_stop_waits_for_the_commit_and_gives_the_rest_back(
    bench: Workbench, prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = runs.create(bench.db, prepared.plan, prepared.shards)
    real = results.save

    def stopping(db: Database, claim: Claim, result: object) -> None:
        bench.stop.set()
        time.sleep(0.5)
        real(db, claim, result)

    monkeypatch.setattr(results, "save", stopping)
    ends = Ends()
    with Pipeline(bench, ends) as pipeline:
        pipeline.stint(run_id)
    states = shards.list_shards(bench.db, run_id)
    done = [one for one in states if one.state == "done"]
    assert done, "what was computed is committed"
    assert all(one.state in ("done", "queued") for one in states)
    assert all(one.attempt == (one.state == "done") for one in states), "given back uncounted"


def test_an_error_is_written_to_its_shard(
    bench: Workbench, prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = runs.create(bench.db, prepared.plan, prepared.shards[:1])
    real = read_ahead.read_shard

    def broken(ref: object, shard: Shard) -> object:
        raise OSError("disk is gone")

    monkeypatch.setattr(read_ahead, "read_shard", broken)
    ends = Ends()
    with Pipeline(bench, ends) as pipeline:
        assert pipeline.stint(run_id) == 1
        (status,) = shards.list_shards(bench.db, run_id)
        assert "disk is gone" in (status.error or "")
        monkeypatch.setattr(read_ahead, "read_shard", real)
        assert pipeline.stint(run_id) == 1
    assert ends.seen == [(0, "failed"), (0, "done")]


def keepers() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name == "lease-keeper"]


def test_a_shard_that_cannot_be_opened_fails_with_its_reason(
    bench: Workbench, prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = runs.create(bench.db, prepared.plan, prepared.shards[:1])
    refused = ModelLoadError("the weights are others")
    monkeypatch.setattr(pipeline_module, "model_for", Mock(side_effect=refused))
    ends = Ends()
    with Pipeline(bench, ends) as pipeline:
        assert pipeline.stint(run_id) == 0
    (status,) = shards.list_shards(bench.db, run_id)
    assert (status.state, status.fruitless) == ("queued", 1)
    assert status.error == "ModelLoadError: the weights are others"
    assert ends.seen == [(0, "failed")]
    assert keepers() == [], "the lease is not kept any more"


@pytest.mark.parametrize("end", [DatabaseError("away"), KeyboardInterrupt()])
def test_a_shard_that_is_not_to_blame_comes_back_by_its_lease(
    bench: Workbench, prepared: Prepared, monkeypatch: pytest.MonkeyPatch, end: BaseException
) -> None:
    run_id = runs.create(bench.db, prepared.plan, prepared.shards[:1])
    monkeypatch.setattr(pipeline_module, "model_for", Mock(side_effect=end))
    ends = Ends()
    with pytest.raises(type(end)), Pipeline(bench, ends) as pipeline:
        pipeline.stint(run_id)
    (status,) = shards.list_shards(bench.db, run_id)
    assert (status.state, status.error) == ("running", None)
    assert ends.seen == []
    assert keepers() == []


def test_a_result_that_cannot_be_saved_fails_its_shard(
    bench: Workbench, prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = runs.create(bench.db, prepared.plan, prepared.shards[:1])
    monkeypatch.setattr(results, "save", Mock(side_effect=ValueError("rows are missing")))
    ends = Ends()
    with Pipeline(bench, ends) as pipeline:
        assert pipeline.stint(run_id) == 1
    (status,) = shards.list_shards(bench.db, run_id)
    assert (status.state, status.error) == ("queued", "ValueError: rows are missing")
    assert ends.seen == [(0, "failed")]
    assert keepers() == []


@pytest.mark.parametrize("cancelled", [True, False])
def test_a_shard_that_is_stopped_is_given_back_if_it_is_still_ours(
    bench: Workbench, prepared: Prepared, monkeypatch: pytest.MonkeyPatch, cancelled: bool
) -> None:
    run_id = runs.create(bench.db, prepared.plan, prepared.shards[:1])

    def computing(*_: object, observer: Observer, **__: object) -> None:
        if cancelled:
            runs.cancel(bench.db, run_id)
            observer.batch_started(["0"])
            assert observer.should_stop()
        raise Stopped

    monkeypatch.setattr(pipeline_module, "compute", computing)
    ends = Ends()
    with Pipeline(bench, ends) as pipeline:
        assert pipeline.stint(run_id) == 1
    (status,) = shards.list_shards(bench.db, run_id)
    assert ends.seen == [(0, "fenced" if cancelled else "stopped")]
    wanted = ("cancelled", 1) if cancelled else ("queued", 0)
    assert (status.state, status.attempt) == wanted


@pytest.mark.parametrize("ahead", [True, False])
def test_an_error_of_the_database_gives_back_what_was_claimed_ahead_if_it_can(
    bench: Workbench,
    prepared: Prepared,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    ahead: bool,
) -> None:
    run_id = runs.create(bench.db, prepared.plan, prepared.shards[:2])

    def computing(_: object, shard: Shard, *__: object, observer: Observer, **___: object) -> None:
        for row in range(shard.start, shard.stop if ahead else shard.start):
            observer.item_done(str(row))
        raise DatabaseError("database went away")

    monkeypatch.setattr(pipeline_module, "compute", computing)
    monkeypatch.setattr(shards, "give_back", Mock(side_effect=DatabaseError("still away")))
    with pytest.raises(DatabaseError, match="database went away"), Pipeline(bench) as pipeline:
        pipeline.stint(run_id)
    told = [record.getMessage() for record in caplog.records]
    assert told == ["shard claimed ahead not given back: still away"] * ahead
    assert keepers() == []


def test_lines_of_the_log_say_whose_work_they_tell_of(
    bench: Workbench,
    prepared: Prepared,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    run_id = runs.create(bench.db, prepared.plan, prepared.shards[:2])
    caplog.handler.addFilter(logs._add_fields)
    monkeypatch.setattr(logs, "_current", ContextVar[dict[str, Any]]("fields", default={}))  # noqa: B039
    real = results.save

    def saving(db: Database, claim: Claim, result: object) -> None:
        logging.getLogger("committing").warning("shard %d", claim.shard.index)
        if claim.shard.index == 1:
            raise DatabaseError("database went away")
        real(db, claim, result)

    monkeypatch.setattr(results, "save", saving)
    with pytest.raises(DatabaseError), Pipeline(bench) as pipeline:
        pipeline.stint(run_id)
    told = [record for record in caplog.records if record.name == "committing"]
    assert [(one.run, one.shard, one.attempt) for one in told] == [  # type: ignore[attr-defined]
        (run_id, 0, 1),
        (run_id, 1, 1),
    ]
    last = caplog.records[-1].getMessage()
    assert last == "commit failed, the shard comes back when its lease ends: database went away"


def test_a_late_commit_is_fenced(
    bench: Workbench, prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = runs.create(bench.db, prepared.plan, prepared.shards[:1])
    real = results.save

    def late(db: Database, claim: Claim, result: object) -> None:
        monkeypatch.setattr(results, "save", real)
        runs.cancel(db, run_id)
        real(db, claim, result)

    monkeypatch.setattr(results, "save", late)
    ends = Ends()
    with Pipeline(bench, ends) as pipeline:
        pipeline.stint(run_id)
    assert ends.seen == [(0, "fenced")]
    assert not list(results.iter_attributions(bench.db, run_id))


def test_a_stint_ends_after_its_share(bench: Workbench, prepared: Prepared) -> None:
    run_id = runs.create(bench.db, prepared.plan, prepared.shards)
    with Pipeline(bench) as pipeline:
        assert pipeline.stint(run_id, most=2) == 2
        assert pipeline.stint(run_id, 4, seconds=0.0) == 1
    states = [one.state for one in shards.list_shards(bench.db, run_id)]
    assert states == ["done", "done", "queued", "queued", "done"]


def test_each_shard_is_claimed_by_name_and_for_the_length_of_a_lease(
    bench: Workbench, prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = runs.create(bench.db, prepared.plan, prepared.shards[:2])
    asked: list[tuple[object, ...]] = []
    real = shards.claim

    def claiming(db: Database, *args: Any) -> Claim | None:
        asked.append(args)
        return real(db, *args)

    monkeypatch.setattr(shards, "claim", claiming)
    with Pipeline(bench) as pipeline:
        assert pipeline.stint(run_id, 1) == 2
    assert asked == [
        (run_id, bench.name, 5.0, 1),
        (run_id, bench.name, 5.0, None),
        (run_id, bench.name, 5.0, None),
    ]


def test_nothing_is_claimed_ahead_of_a_shard_that_died_before(
    bench: Workbench, prepared: Prepared
) -> None:
    run_id = runs.create(bench.db, prepared.plan, prepared.shards[:3])
    assert shards.claim(bench.db, run_id, "dead", -1.0, 0) is not None
    with Pipeline(bench) as pipeline:
        assert pipeline.stint(run_id, 0) == 1
    states = [one.state for one in shards.list_shards(bench.db, run_id)]
    assert states == ["done", "queued", "queued"]


def test_one_thread_reads_and_one_commits(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Mock()
    monkeypatch.setattr(pipeline_module, "ThreadPoolExecutor", made)
    Pipeline(bench)
    assert made.mock_calls == [call(1, "shard-reader"), call(1, "shard-writer")]
