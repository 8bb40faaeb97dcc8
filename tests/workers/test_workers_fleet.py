"""The same audit by Celery workers on Redis and PostgreSQL, and by a local run that is killed."""

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import redis
from tiny_audit import make_audit

from transexplain.store import results, runs
from transexplain.store.database import open_database
from transexplain.types import Attribution

ROOT = Path(__file__).resolve().parents[2]
Key = tuple[str, str, int]


def environment(folder: Path, **extra: str) -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        "TRANSEXPLAIN_SNAPSHOT_DIR": str(folder / "snapshots"),
        "TRANSEXPLAIN_DATABASE_URL": f"sqlite:///{folder / 'store.db'}",
        **extra,
    }


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "orchestrator.cli", *words]


def transexplain(env: dict[str, str], folder: Path, *words: str, code: int = 0) -> str:
    done = subprocess.run(
        command(*words),
        env=env,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def stored(env: dict[str, str]) -> dict[Key, Attribution]:
    with open_database(env["TRANSEXPLAIN_DATABASE_URL"]) as db:
        run = runs.get(db, "latest")
        assert run.state == "done"
        found = list(results.iter_attributions(db, run.id))
    by_key = {(one.item_id, one.target, one.rank): one for one in found}
    assert len(by_key) == len(found), "no result twice"
    return by_key


def same(left: dict[Key, Attribution], right: dict[Key, Attribution]) -> None:
    assert left.keys() == right.keys()
    for key, one in left.items():
        np.testing.assert_allclose(one.relevance, right[key].relevance, rtol=1e-5, atol=1e-5)


@contextmanager
def workers(
    env: dict[str, str], folder: Path, count: int
) -> Iterator[list[subprocess.Popen[bytes]]]:
    with (folder / "workers.log").open("wb") as log:
        started = [
            subprocess.Popen(
                command("worker", "--threads", "1"), env=env, cwd=folder, stdout=log, stderr=log
            )
            for _ in range(count)
        ]
        try:
            yield started
        finally:
            for process in started:
                process.terminate()
            for process in started:
                process.wait(timeout=60)


def wait_for(condition: Callable[[], bool], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


@pytest.fixture
def queue_name(redis_url: str) -> Iterator[str]:
    name = f"te-test-{uuid.uuid4().hex[:10]}"
    yield name
    with redis.Redis.from_url(redis_url) as client:
        for key in client.scan_iter(f"{name}:*"):
            client.delete(key)


@pytest.mark.postgres
@pytest.mark.redis
def test_two_workers_give_the_numbers_of_a_local_run(
    tmp_path: Path, postgres_url: str, redis_url: str, queue_name: str
) -> None:
    spec = str(make_audit(tmp_path))
    local = environment(tmp_path)
    transexplain(local, tmp_path, "run", spec)
    fleet = environment(
        tmp_path,
        TRANSEXPLAIN_DATABASE_URL=postgres_url,
        TRANSEXPLAIN_BROKER_URL=redis_url,
        TRANSEXPLAIN_QUEUE=queue_name,
    )
    transexplain(fleet, tmp_path, "submit", spec, code=4)  # no tables yet: says what to do
    transexplain(fleet, tmp_path, "db", "upgrade")
    with workers(fleet, tmp_path, 2) as started:
        transexplain(fleet, tmp_path, "submit", spec, "--wait")
    assert [process.returncode for process in started] == [0, 0], "SIGTERM ends a worker cleanly"
    same(stored(local), stored(fleet))


@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_killed_run_resumes_without_loss_or_doubles(tmp_path: Path, processes: str) -> None:
    spec = str(make_audit(tmp_path, items=400))
    reference = environment(tmp_path, TRANSEXPLAIN_DATABASE_URL=f"sqlite:///{tmp_path / 'ref.db'}")
    transexplain(reference, tmp_path, "run", spec)
    env = environment(tmp_path, TRANSEXPLAIN_LEASE_SECONDS="2")
    process = subprocess.Popen(
        command("run", spec, "--processes", processes),
        env=env,
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )

    def halfway() -> bool:
        if not (tmp_path / "store.db").exists():
            return False
        try:
            with open_database(env["TRANSEXPLAIN_DATABASE_URL"]) as db:
                found = runs.list_runs(db)
                return bool(found) and runs.progress(db, found[0].id).items_done >= 80
        except Exception:  # noqa: BLE001 - the run is still creating its tables
            return False

    wait_for(lambda: halfway() or process.poll() is not None)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    with open_database(env["TRANSEXPLAIN_DATABASE_URL"]) as db:
        before = runs.progress(db, runs.get(db, "latest").id)
    assert 0 < before.items_done < 400, "killed in the middle"
    transexplain(env, tmp_path, "resume")
    same(stored(reference), stored(env))


def test_interrupt_leaves_a_run_that_resumes(tmp_path: Path) -> None:
    spec = str(make_audit(tmp_path, items=400))
    env = environment(tmp_path)
    process = subprocess.Popen(
        command("run", spec), env=env, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert b"400 items" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"resume" in errors
    with open_database(env["TRANSEXPLAIN_DATABASE_URL"]) as db:
        state = runs.progress(db, runs.get(db, "latest").id)
    assert state.states["running"] == 0, "the lease was given back"
    assert state.items_done < 400
    transexplain(env, tmp_path, "resume")
    assert len(stored(env)) == 800


def test_lost_hints_are_sent_again(tmp_path: Path, redis_url: str, queue_name: str) -> None:
    """The broker forgets everything before a worker comes: `resume --queue` is enough."""
    spec = str(make_audit(tmp_path))
    env = environment(tmp_path, TRANSEXPLAIN_BROKER_URL=redis_url, TRANSEXPLAIN_QUEUE=queue_name)
    transexplain(env, tmp_path, "submit", spec)
    with redis.Redis.from_url(redis_url) as client:
        for key in list(client.scan_iter(f"{queue_name}:*")):
            client.delete(key)
    with workers(env, tmp_path, 1):
        transexplain(env, tmp_path, "resume", "--queue")
    assert len(stored(env)) == 80


def test_an_unreachable_broker_or_database_is_exit_4(tmp_path: Path) -> None:
    spec = str(make_audit(tmp_path))
    no_broker = environment(tmp_path, TRANSEXPLAIN_BROKER_URL="redis://:secret@127.0.0.1:1/0")
    said = transexplain(no_broker, tmp_path, "submit", spec, code=4)
    assert "broker" in said
    assert "secret" not in said
    no_database = environment(
        tmp_path, TRANSEXPLAIN_DATABASE_URL="postgresql://me:secret@127.0.0.1:1/none"
    )
    said = transexplain(no_database, tmp_path, "run", spec, code=4)
    assert "127.0.0.1:1" in said
    assert "secret" not in said
