"""The supervisor: one process per device, replaced when it ends, stopped by one signal."""

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from chaos_groups import wait_for
from gallery import prepare as prepared_audit
from learned_audits import explainer_for, learned
from short_lives import deaf, hangs_up, misses_its_database, patient, refuses
from store_samples import claimable, make_plan, make_shards
from tiny_audit import make_audit
from tiny_models import bert, wordpiece

from transexplain.errors import BrokerError, ConfigurationError, DatabaseError
from transexplain.models import load
from transexplain.models.load import load_model
from transexplain.settings import Settings
from transexplain.store import runs, shards
from transexplain.store.revisions import open_database
from transexplain.types.plans import ModelRef
from workers import device_worker, supervisor
from workers.claim_to_commit import Workbench
from workers.device_worker import EXIT_AWAY, EXIT_IDLE, IdleWatch, WorkerOptions
from workers.heartbeat import worker_prefix
from workers.model_cache import ModelCache, size_of
from workers.supervisor import options_per_device, supervise


def lives(settings: Settings) -> list[str]:
    """A line (device, process) for every life that began."""
    file = settings.snapshot_dir / "lives"
    return file.read_text(encoding="utf-8").splitlines() if file.exists() else []


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(snapshot_dir=tmp_path)


@contextmanager
def meanwhile(*steps: Callable[[], object]) -> Iterator[None]:
    """Do the steps in a thread, then signal this process if it was not ended by them."""
    failed: list[BaseException] = []

    def play() -> None:
        try:
            for step in steps:
                step()
        except BaseException as error:
            failed.append(error)
            for _ in range(2):
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(0.5)
            raise

    thread = threading.Thread(target=play)
    thread.start()
    yield
    thread.join()
    assert not failed


def until(condition: Callable[[], bool]) -> Callable[[], None]:
    return lambda: wait_for(condition, "a life", 60)


def send(number: signal.Signals) -> Callable[[], None]:
    return lambda: os.kill(os.getpid(), number)


def test_devices_become_processes_with_their_share_of_the_cores(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    crew = options_per_device("cuda:0, cuda:1,cpu:2", WorkerOptions(max_shards=5))
    assert [one.device for one in crew] == ["cuda:0", "cuda:1", "cpu", "cpu"]
    assert [one.neighbours for one in crew] == [1, 1, 2, 2]
    assert {(one.threads, one.max_shards) for one in crew} == {(2, 5)}
    assert options_per_device("cpu", WorkerOptions(threads=3))[0].threads == 3


@pytest.mark.parametrize("devices", ["", "cuda:x", "cpu:0", "cuda:", "cuda:0,cuda:0", "cpu:-1"])
def test_devices_that_cannot_be_read(devices: str) -> None:
    with pytest.raises(ConfigurationError, match="device"):
        options_per_device(devices, WorkerOptions())


@pytest.mark.exhaustive
def test_a_killed_worker_is_replaced_its_shards_are_free_and_a_stop_is_graceful(
    settings: Settings, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with open_database(f"sqlite:///{tmp_path / 'store.db'}", upgrade=True) as db:
        run_id = runs.create(db, make_plan(), make_shards())
        dead: list[int] = []

        def claim_and_kill() -> None:
            pid = int(lives(settings)[0].split()[1])
            assert shards.claim(db, run_id, f"{worker_prefix(pid)}abcdef", 3600.0, 0)
            assert shards.claim(db, run_id, "elsewhere:1:abcdef", 3600.0, 1)
            os.kill(pid, signal.SIGKILL)

        def on_death(pid: int) -> None:
            dead.append(pid)
            supervisor.free(db, pid)

        with meanwhile(
            until(lambda: len(lives(settings)) == 2),
            claim_and_kill,
            until(lambda: len(lives(settings)) == 3),
            send(signal.SIGTERM),
        ):
            crew = options_per_device("cpu:2", WorkerOptions(threads=1))
            assert supervise(settings, crew, work=patient, on_death=on_death) == 0
        assert dead[0] == int(lives(settings)[0].split()[1])
        assert claimable(db, run_id) == [2, 0]
    assert len(list(settings.snapshot_dir.glob("graceful-*"))) == 2
    assert "was killed by SIGKILL" in caplog.text


@pytest.mark.exhaustive
def test_a_second_signal_kills(settings: Settings) -> None:
    begun = time.monotonic()
    with meanwhile(
        until(lambda: len(lives(settings)) == 1),
        send(signal.SIGINT),
        lambda: time.sleep(0.5),
        send(signal.SIGINT),
    ):
        code = supervise(settings, options_per_device("cpu", WorkerOptions()), work=deaf)
    assert code == 128 + signal.SIGINT
    assert time.monotonic() - begun < 30


@pytest.mark.exhaustive
def test_pauses_grow_where_it_dies_at_once(
    settings: Settings, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.WARNING)
    monkeypatch.setattr(supervisor, "_LONGEST_PAUSE", 2.0)
    faster = SimpleNamespace(monotonic=lambda: 5 * time.monotonic())
    monkeypatch.setattr(supervisor, "time", faster)
    monkeypatch.setattr(supervisor, "_AT_ONCE", 5 * supervisor._AT_ONCE)
    with meanwhile(until(lambda: len(lives(settings)) >= 4), send(signal.SIGTERM)):
        assert supervise(settings, options_per_device("cpu", WorkerOptions()), work=hangs_up) == 0
    pauses = [line.message for line in caplog.records if "status 70" in line.message]
    assert [line.rpartition("in ")[2] for line in pauses[:3]] == ["1 s", "2 s", "2 s"]


@pytest.mark.exhaustive
def test_a_wrong_request_is_not_repeated(settings: Settings) -> None:
    crew = options_per_device("cpu:2", WorkerOptions())
    assert supervise(settings, crew, work=refuses) == 2
    assert len(lives(settings)) == 2


def test_a_worker_that_is_to_end_when_idle_gives_up_without_its_database(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "PATIENCE", 1.0)
    crew = [WorkerOptions(device="cpu", until_idle=1.0)]
    assert supervise(settings, crew, work=misses_its_database) == 4


@pytest.mark.parametrize(
    ("until_idle", "code"), [(1.0, 4), pytest.param(None, 0, marks=pytest.mark.exhaustive)]
)
def test_a_signal_meanwhile_is_no_success(
    settings: Settings, until_idle: float | None, code: int
) -> None:
    crew = [WorkerOptions(device="cpu", until_idle=until_idle)]
    with meanwhile(until(lambda: len(lives(settings)) > 1), send(signal.SIGTERM)):
        assert supervise(settings, crew, work=misses_its_database) == code


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[int]]:
    """The statuses that a watch of half a second of patience ends its worker with in a second."""
    now = [0.0]
    monkeypatch.setattr(device_worker, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def passes(seconds: float) -> bool:
        now[0] += seconds
        return now[0] > 1.0

    def play(**changed: Any) -> list[int]:
        found: list[int] = []
        quiet: dict[str, Callable[[], object]] = {
            "in_hand": lambda: False,
            "waits": lambda: False,
            "sweep": lambda: None,
        }
        back = changed.pop("back", 0.0)
        quiet["connected"] = lambda: now[0] >= back
        times = {"linger": 0.1, "every": 0.02, "patience": 0.5}
        watch = IdleWatch(end=found.append, **{**quiet, **times, **changed})
        watch._over = SimpleNamespace(wait=passes, set=lambda: None)  # type: ignore[assignment]
        watch.start()
        watch.stop()
        now[0] = 0.0
        return found

    return play


def fails(error: Exception) -> Callable[[], object]:
    def call() -> object:
        raise error

    return call


@pytest.mark.parametrize(
    ("seen", "statuses"),
    [
        ({"connected": lambda: False}, [EXIT_AWAY]),
        ({"waits": fails(DatabaseError("away"))}, [EXIT_AWAY]),
        ({"waits": lambda: True, "sweep": fails(BrokerError("away"))}, [EXIT_AWAY]),
        ({"back": 0.3}, [EXIT_IDLE]),
        ({"in_hand": lambda: True, "connected": lambda: False}, []),
        ({"waits": lambda: True}, []),
    ],
    ids=["no broker", "no database", "no sweep", "one that comes back", "a task", "a shard waits"],
)
def test_a_worker_ends_where_nothing_waits_or_a_server_stays_away(
    ends: Callable[..., list[int]], seen: dict[str, Any], statuses: list[int]
) -> None:
    assert ends(**seen) == statuses


def make(folder: Path, seed: int) -> ModelRef:
    model = bert()
    with torch.no_grad():
        model.classifier.bias += seed
    model.save_pretrained(folder)
    wordpiece().save_pretrained(folder)
    return load_model(str(folder)).ref


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The folders that were loaded from, in order."""
    seen: list[str] = []
    real = load_model

    def counted(source: str, **how: str) -> object:
        seen.append(Path(source).name)
        return real(source, **how)

    monkeypatch.setattr(load, "load_model", counted)
    return seen


@pytest.mark.exhaustive
def test_models_stay_until_memory_is_short(tmp_path: Path, loads: list[str]) -> None:
    refs = [make(tmp_path / name, seed) for seed, name in enumerate("abc")]
    size = size_of(load_model(refs[0].source))
    module = load_model(refs[0].source).module
    assert size >= sum(4 * one.numel() for one in module.parameters())
    loads.clear()
    cache = ModelCache(memory=int(2.5 * size))
    for turn in "ababcab":  # c drives out a, then a drives out b, then b drives out c
        cache.get(refs["abc".index(turn)])
    assert "".join(loads) == "abcab"
    assert len(cache) == 2


def test_the_same_bytes_elsewhere_are_the_same_model(tmp_path: Path, loads: list[str]) -> None:
    ref, copy = make(tmp_path / "a", 1), make(tmp_path / "copy", 1)
    assert ref.digest == copy.digest
    loads.clear()
    cache = ModelCache()
    assert cache.get(ref) is cache.get(copy)
    assert cache.get(replace(ref, dtype="float64")) is not cache.get(ref)
    assert loads == ["a", "a"]


@pytest.mark.exhaustive
def test_a_load_without_memory_lets_the_others_go_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = make(tmp_path / "a", 1), make(tmp_path / "b", 2)
    cache = ModelCache()
    cache.get(first)

    def short(source: str, **how: str) -> object:
        if len(cache):
            raise torch.OutOfMemoryError("no memory")
        return load_model(source, **how)

    monkeypatch.setattr(load, "load_model", short)
    assert cache.get(second).ref.digest == second.digest
    assert len(cache) == 1


def test_a_worker_without_the_file_says_so_and_gives_up(tmp_path: Path) -> None:
    explainer = explainer_for(tmp_path)
    keys: dict[str, Any] = {"shard_size": 40, "max_attempts": 2, "evaluation": {"items": 0}}
    prepared = prepared_audit(make_audit(tmp_path, method=learned(explainer), **keys), tmp_path)
    explainer.unlink()
    with open_database(f"sqlite:///{tmp_path / 's.db'}", upgrade=True) as db:
        run_id = runs.create(db, prepared.plan, prepared.shards)
        bench = Workbench(db=db, settings=Settings())
        assert [bench.work(run_id) for _ in range(3)] == ["failed", "failed", "nothing"]
        assert len(bench.models) == 0, "no model was loaded for it"
        (status,) = shards.list_shards(db, run_id)
    assert status.state == "dead" and str(explainer) in str(status.error)
