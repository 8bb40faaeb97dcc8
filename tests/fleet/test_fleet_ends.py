"""How a fleet stops: SIGTERM gives leases back, a cancel arrives with a heartbeat."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from chaos_groups import Group, environment, wait_for
from chaos_servers import OwnRedis, own_redis
from command_line_here import run_here
from tiny_audit import make_audit

from transexplain.store import runs, shards
from transexplain.store.database import Database
from transexplain.store.revisions import open_database
from workers.heartbeat import EXIT_HUNG

SLOWLY = 1.0  #: seconds that a batch takes at least
LEASE = 6.0  #: seconds
HEARTBEAT = LEASE / 3
TOUCH = 1.0  #: seconds that a busy machine may add


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[OwnRedis]:
    with own_redis(tmp_path) as server:
        yield server


@contextmanager
def fleet_at_work(folder: Path, broker: OwnRedis) -> Iterator[tuple[Group, Database, str]]:
    """One group in the midst of a shard of forty items in at least ten slow batches."""
    spec = str(make_audit(folder, items=120, shard_size=40, batch_tokens=32))
    env = environment(
        folder,
        TRANSEXPLAIN_DATABASE_URL=f"sqlite:///{folder / 'store.db'}",
        TRANSEXPLAIN_BROKER_URL=broker.url,
        TRANSEXPLAIN_QUEUE="ends",
        TRANSEXPLAIN_LEASE_SECONDS=str(LEASE),
        CHAOS_SLOWLY=str(SLOWLY),
    )
    run_here(env, folder, "submit", spec)
    group = Group("a", env, folder)
    try:
        with open_database(env["TRANSEXPLAIN_DATABASE_URL"]) as db:
            wait_for(lambda: len(batches(folder)) >= 3, "the shard is begun")
            yield group, db, runs.get(db, "latest").id
    finally:
        group.end()


def batches(folder: Path) -> list[float]:
    """When each batch began so far, by the clock of the epoch."""
    file = folder / "batches"
    lines = file.read_text(encoding="ascii").splitlines() if file.exists() else []
    return [float(line.split()[0]) for line in lines]


@pytest.mark.exhaustive
@pytest.mark.parametrize("meanwhile", ["nothing", "flushed", "gone"])
def test_sigterm_ends_a_worker_after_its_batch_and_gives_the_lease_back(
    tmp_path: Path, broker: OwnRedis, meanwhile: str
) -> None:
    """Whatever became of the broker since the worker took its message."""
    with fleet_at_work(tmp_path, broker) as (group, db, run_id):
        if meanwhile == "gone":
            broker.kill()
        elif meanwhile == "flushed":
            with broker.client() as client:
                client.flushdb()
        before = len(batches(tmp_path))
        assert group.end() == 0, group.log.read_text(encoding="utf-8")
        assert len(batches(tmp_path)) <= before + 1, "none but the one that began at that moment"
        states = shards.list_shards(db, run_id)
        assert {one.state for one in states} == {"queued"}
        assert {one.attempt for one in states} == {0}, "given back uncounted"
        assert not any(one.breadcrumb or one.caution.alone for one in states), "and without blame"
        if meanwhile == "gone":
            assert group.lines("no message sent, the next sweep sends it")
        else:
            with broker.client() as client:
                assert client.llen("ends:ends.text.cpu") >= 1, "its message waits again"


@pytest.mark.exhaustive
def test_no_item_is_explained_more_than_a_heartbeat_after_a_cancel(
    tmp_path: Path, broker: OwnRedis
) -> None:
    with fleet_at_work(tmp_path, broker) as (group, db, run_id):
        cancelled = time.time()
        assert runs.cancel(db, run_id)
        wait_for(lambda: group.lines("shard ended: fenced"), "the worker lets go")
        begun = batches(tmp_path)
        assert begun[-1] <= cancelled + HEARTBEAT + TOUCH
        time.sleep(2 * SLOWLY + TOUCH)
        assert batches(tmp_path) == begun, "it stays at that"
        assert runs.get(db, run_id).state == "cancelled"
        assert runs.progress(db, run_id).items_done == 0, "and not because the shard was through"


HANGS_UNDER_CELERY = """
import logging
from celery.utils.log import LoggingProxy
import sys
from workers.heartbeat import end_process
logging.basicConfig(stream=sys.__stderr__)
sys.stderr = LoggingProxy(logging.getLogger("redirected"))
end_process("shard 4: item '13' made no progress")
"""


def test_a_hang_ends_a_worker_whose_standard_error_celery_has_taken() -> None:
    done = subprocess.run(
        [sys.executable, "-c", HANGS_UNDER_CELERY],
        env=environment(Path("unused")),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == EXIT_HUNG
    assert "item '13' made no progress" in done.stderr
    assert "most recent call first" in done.stderr, "and says where"
