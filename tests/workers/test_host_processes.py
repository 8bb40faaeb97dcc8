"""Whole runs with processes that read: whatever ends the run, none of them is left behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tiny_audit import make_audit

from transexplain.store import results, runs, shards
from transexplain.store.revisions import open_database

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 90.0  #: seconds

#: what Python imports in every process that it starts with this folder on its path
HOOK = """
import os, time
import transexplain.models.loaded_model as base

collate = base.LoadedModel.collate

def slowly(self, encoded):
    open(os.environ["HOOK_BATCHES"], "a").write("batch\\n")
    time.sleep(float(os.environ["HOOK_SECONDS"]))
    return collate(self, encoded)

base.LoadedModel.collate = slowly
"""


def below(pid: int) -> Iterator[int]:
    """Processes that this one started, and those that these did."""
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in path.read_text(encoding="ascii").split():
            yield int(child)
            yield from below(int(child))


def lives(pid: int) -> bool:
    """Whether a process is there and no corpse that nobody has buried yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_for(there: "object", what: str) -> None:
    until = time.monotonic() + PATIENCE
    while not there():  # type: ignore[operator]
        assert time.monotonic() < until, f"{what}: not within {PATIENCE:g} seconds"
        time.sleep(0.1)


@contextmanager
def run_at_work(folder: Path, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """`transexplain run` in the midst of its batches."""
    hooks = folder / "hooks"
    hooks.mkdir()
    (hooks / "sitecustomize.py").write_text(HOOK, encoding="utf-8")
    batches = folder / "batches"
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(hooks), str(ROOT)]),
        "OMP_NUM_THREADS": "1",
        "TRANSEXPLAIN_SNAPSHOT_DIR": str(folder / "snapshots"),
        "TRANSEXPLAIN_DATABASE_URL": f"sqlite:///{folder / 'store.db'}",
        "HOOK_BATCHES": str(batches),
        "HOOK_SECONDS": "0.5",
    }
    spec = str(make_audit(folder, evaluation={"items": 0}))
    with (folder / "run.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "orchestrator.cli", "run", spec, *words],
            env=env,
            cwd=folder,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            wait_for(batches.exists, "the first batch")
            count = len(batches.read_text(encoding="ascii"))
            wait_for(lambda: len(batches.read_text(encoding="ascii")) > count, "the next batch")
            yield process
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()


@pytest.mark.exhaustive
@pytest.mark.parametrize("processes", ["1", "2"])
def test_no_process_outlives_a_run_that_was_killed(tmp_path: Path, processes: str) -> None:
    """Neither those that read, nor what they came from, of one worker or of several."""
    words = ["--host-processes", "2", "--processes", processes]
    with run_at_work(tmp_path, *words) as process:
        wait_for(lambda: len(list(below(process.pid))) >= 3, "processes that read")
        begun = list(below(process.pid))
        process.kill()
        process.wait()
        wait_for(lambda: not any(lives(pid) for pid in begun), "the end of every process")


@pytest.mark.exhaustive
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_all_processes_gives_the_shard_back(
    tmp_path: Path, number: signal.Signals
) -> None:
    """As Ctrl-C does, or a service manager that ends a group."""
    with run_at_work(tmp_path, "--host-processes", "2") as process:
        begun = list(below(process.pid))
        os.killpg(process.pid, number)
        code = process.wait(PATIENCE)
        log = (tmp_path / "run.log").read_text(encoding="utf-8")
        assert code == 130, log
        assert "continues the run" in log
        wait_for(lambda: not any(lives(pid) for pid in begun), "the end of every process")
    with open_database(f"sqlite:///{tmp_path / 'store.db'}") as db:
        states = shards.list_shards(db, runs.get(db, "latest").id)
    assert {one.state for one in states} <= {"queued", "done"}
    assert [one.attempt for one in states if one.state == "queued"].count(0) >= 3, "uncounted"
    assert not any(one.caution.alone or one.error for one in states), "and without blame"


@pytest.mark.exhaustive
def test_readers_that_are_killed_from_outside_cost_a_retry_and_no_item(tmp_path: Path) -> None:
    with run_at_work(tmp_path, "--host-processes", "1") as process:
        parents = [pid for pid in below(process.pid) if list(below(pid))]
        readers = [pid for parent in parents for pid in below(parent)]
        assert readers, "they come from a process that was begun for it"
        for pid in readers:
            os.kill(pid, signal.SIGKILL)
        log = tmp_path / "run.log"
        assert process.wait(PATIENCE) == 0, log.read_text(encoding="utf-8")
    with open_database(f"sqlite:///{tmp_path / 'store.db'}") as db:
        run = runs.get(db, "latest")
        assert (run.state, run.shards["done"]) == ("done", 5)
        assert list(results.failures(db, run.id)) == []
