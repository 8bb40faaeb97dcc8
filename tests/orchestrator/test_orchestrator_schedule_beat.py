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
from sqlalchemy import update
from tiny_audit import make_audit

from orchestrator.dispatch import queue
from orchestrator.schedule import tick
from transexplain.settings import Settings
from transexplain.store import runs, schedules
from transexplain.store.database import Database
from transexplain.store.revisions import open_database
from transexplain.store.schedules import Fire
from transexplain.store.schema import schedule
from workers.queue_names import queue_of

pytestmark = pytest.mark.exhaustive

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


def all_fires(db: Database) -> list[tuple[str, Fire]]:
    names = [one.name for one in schedules.list_schedules(db)]
    return [(name, fire) for name in names for fire in schedules.fires(db, name, limit=1000)]


def wait_for_fires(
    db: Database, settings: Settings, count: int, beats: "list[subprocess.Popen[bytes]]"
) -> None:
    """Wait until so many fires are settled and their messages are out, which comes after."""
    deadline = time.monotonic() + 120
    while len(all_fires(db)) < count or not messages(db, settings):
        assert time.monotonic() < deadline, "no fire in time, or no message for it"
        assert [one.poll() for one in beats] == [None, None], "a beat ended"
        time.sleep(0.2)


def messages(db: Database, settings: Settings) -> int:
    return queue.depth(settings, queue_of(settings, runs.get(db, "latest").plan))


@pytest.mark.redis
def test_two_beats_make_one_run_per_fire(settings: Settings, tmp_path: Path) -> None:
    spec = make_audit(tmp_path, items=16, evaluation={"items": 0})
    with open_database(settings.database_url, upgrade=True) as db:
        for number in range(4):
            tick.add_schedule(db, settings, name=f"often-{number}", spec=spec, cron="* * * * *")
        with db.begin() as connection:  # all have missed a minute, so that both beats find them due
            connection.execute(update(schedule).values(since=schedule.c.since - 120))
        beats = [beat(settings, tmp_path / f"beat{n}.log") for n in range(2)]
        try:
            wait_for_fires(db, settings, 4, beats)
        finally:
            for one in beats:
                one.terminate()
            codes = [one.wait(timeout=60) for one in beats]
        logs = [(tmp_path / f"beat{n}.log").read_text() for n in range(2)]
        assert codes == [0, 0], logs
        assert not any("Traceback" in log for log in logs), logs
        fires = all_fires(db)
        made = {one.id for one in runs.list_runs(db, limit=1000)}
        assert {fire.run_id for _, fire in fires} == made
        assert len(fires) == len(made) == len({(name, fire.at) for name, fire in fires})
        assert 0 < messages(db, settings) <= 2 * len(made), "no message too many"
