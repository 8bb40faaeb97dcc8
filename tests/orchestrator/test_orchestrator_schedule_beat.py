"""The real beat, twice at once, against Redis: one run per fire, one message per shard."""

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from tiny_audit import make_audit

from orchestrator.dispatch import queue
from orchestrator.scheduling import adding
from transexplain.settings import Settings
from transexplain.store import runs, schedules
from transexplain.store.database import Database, open_database
from workers.app import queue_of

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def settings(request: pytest.FixtureRequest, tmp_path: Path, redis_url: str) -> Iterator[Settings]:
    url = f"sqlite:///{tmp_path / 'store.db'}"
    if request.param == "postgresql":
        url = request.getfixturevalue("postgres_url")
    name = f"te-test-{uuid.uuid4().hex[:10]}"
    yield Settings(
        database_url=url, snapshot_dir=tmp_path / "snapshots", broker_url=redis_url, queue=name
    )
    with redis.Redis.from_url(redis_url) as client:
        for key in client.scan_iter(f"{name}:*"):
            client.delete(key)


def beat(settings: Settings, log: Path) -> "subprocess.Popen[bytes]":
    env = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        "TRANSEXPLAIN_DATABASE_URL": settings.database_url,
        "TRANSEXPLAIN_BROKER_URL": settings.broker_url,
        "TRANSEXPLAIN_QUEUE": settings.queue,
        "TRANSEXPLAIN_SNAPSHOT_DIR": str(settings.snapshot_dir),
    }
    words = [sys.executable, "-m", "orchestrator.cli", "beat", "--every", "1"]
    with log.open("wb") as stream:
        return subprocess.Popen(words, env=env, stdout=stream, stderr=stream)


def wait_for_fires(db: Database, count: int, beats: "list[subprocess.Popen[bytes]]") -> None:
    deadline = time.monotonic() + 120
    while len(schedules.fires(db, "often")) < count:
        assert time.monotonic() < deadline, "no fire in time"
        assert [one.poll() for one in beats] == [None, None], "a beat ended"
        time.sleep(0.2)


@pytest.mark.redis
def test_two_beats_make_one_run_per_fire(settings: Settings, tmp_path: Path) -> None:
    spec = make_audit(tmp_path, items=16, evaluation={"items": 0})
    with open_database(settings.database_url, upgrade=True) as db:
        # the sixth field is seconds, and the schedule fires every one of them
        adding.add_schedule(db, settings, name="often", spec=spec, cron="* * * * * *")
        beats = [beat(settings, tmp_path / f"beat{n}.log") for n in range(2)]
        try:
            wait_for_fires(db, 4, beats)
        finally:
            for one in beats:
                one.terminate()
            codes = [one.wait(timeout=60) for one in beats]
        logs = [(tmp_path / f"beat{n}.log").read_text() for n in range(2)]
        assert codes == [0, 0], logs
        assert not any("Traceback" in log for log in logs), logs
        fires = schedules.fires(db, "often", limit=1000)
        made = {one.id for one in runs.list_runs(db, limit=1000)}
        assert {one.run_id for one in fires} == made
        assert len(fires) == len(made) == len({one.at for one in fires})
        name = queue_of(settings, runs.get(db, "latest").plan)
        assert 0 < queue.depth(settings, name) <= 2 * len(made), "no message too many"
