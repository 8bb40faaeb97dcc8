"""Overlapped shards: the same numbers, every lease kept to its commit, no error lost."""

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tiny_audit import make_audit

from orchestrator.plan import Prepared, prepare_audit
from orchestrator.spec import load_spec
from transexplain.errors import DatabaseError
from transexplain.plans import Shard
from transexplain.settings import Settings
from transexplain.store import results, runs, shards
from transexplain.store.database import Database, open_database
from transexplain.store.records import Claim
from workers import read_ahead
from workers.pipeline import Pipeline
from workers.shard_work import End, Workbench


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
