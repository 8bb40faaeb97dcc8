"""Items that kill their process, hang or eat the memory cost themselves and nothing else."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_audit import make_audit

from transexplain.store import results, runs, shards
from transexplain.store.revisions import open_database
from transexplain.types.items import ItemFailure

ROOT = Path(__file__).resolve().parents[2]
DEADLINE = 10  #: seconds that an item may take
KILLS, HANGS, EATS = "13", "27", "28"  #: ids; the last two share a shard

#: what Python imports in every process that it starts with this folder on its path
HOOK = """
import os, signal, sys, time
import transexplain.models.loaded_model as base

collate = base.LoadedModel.collate

def poisonous(self, encoded):
    ids = {one.item.id for one in encoded}
    if os.environ.get("POISON_KILLS") in ids:
        os.kill(os.getpid(), signal.SIGKILL)
    if os.environ.get("POISON_ENDS_ITS_PARENT") in ids:
        fresh = sys.orig_argv[1:2] == ["-P"]
        os.kill(os.getppid() if fresh else os.getpid(), signal.SIGKILL)
        time.sleep(3)
    if os.environ.get("POISON_HANGS") in ids:
        time.sleep(3600)
    if os.environ.get("POISON_EATS") in ids:
        raise MemoryError("cannot have that much")
    return collate(self, encoded)

base.LoadedModel.collate = poisonous
"""
POISON = {"POISON_KILLS": KILLS, "POISON_HANGS": HANGS, "POISON_EATS": EATS}


@pytest.fixture
def run_audit(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run the command line on a database of this name, with poison in the items or without."""
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    (hooks / "sitecustomize.py").write_text(HOOK, encoding="utf-8")

    def run(database: str, *words: str, **extra: str) -> subprocess.CompletedProcess[str]:
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(hooks), str(ROOT)]),
            "OMP_NUM_THREADS": "1",
            "TRANSEXPLAIN_SNAPSHOT_DIR": str(tmp_path / "snapshots"),
            "TRANSEXPLAIN_DATABASE_URL": database,
            "TRANSEXPLAIN_ITEM_DEADLINE": str(DEADLINE),
            **extra,
        }
        return subprocess.run(
            [sys.executable, "-m", "orchestrator.cli", *words],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=800,
            check=False,
        )

    return run


def stored(url: str) -> tuple[dict[str, ItemFailure], dict[tuple[str, str], np.ndarray[Any, Any]]]:
    """Failures by item, and relevance by item and target, of a run that is complete."""
    with open_database(url) as db:
        run = runs.get(db, "latest")
        assert run.state == "done"
        assert run.shards["done"] == 5
        assert len(list(results.iter_items(db, run.id))) == 40
        failures = {one.item_id: one for one in results.failures(db, run.id)}
        found = {
            (one.item_id, one.target): one.relevance
            for one in results.iter_attributions(db, run.id)
        }
    return failures, found


@pytest.mark.exhaustive
def test_poison_costs_itself_and_retry_brings_it_back(
    tmp_path: Path, run_audit: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    spec = str(make_audit(tmp_path))
    clean, poisoned = (f"sqlite:///{tmp_path / name}.db" for name in ("clean", "poisoned"))
    assert run_audit(clean, "run", spec).returncode == 0
    done = run_audit(poisoned, "run", spec, "--processes", "2", **POISON)
    assert done.returncode == 3, done.stdout + done.stderr
    assert f"item '{HANGS}' made no progress" in done.stderr

    failures, found = stored(poisoned)
    _, wanted = stored(clean)
    assert {name: one.kind for name, one in failures.items()} == {
        KILLS: "quarantined",
        HANGS: "quarantined",
        EATS: "out-of-memory",
    }
    assert "was killed by SIGKILL" in failures[KILLS].message
    assert f"it hung, no progress within {DEADLINE} seconds" in failures[HANGS].message
    assert "cannot have that much" in failures[EATS].message
    expected = {key: one for key, one in wanted.items() if key[0] not in failures}
    assert found.keys() == expected.keys()
    for key, relevance in found.items():
        np.testing.assert_allclose(relevance, expected[key], rtol=1e-5, atol=1e-5)

    nothing = run_audit(poisoned, "retry")
    assert nothing.returncode == 0
    assert "nothing to try again; --failed looks at items that failed" in nothing.stdout
    again = run_audit(poisoned, "retry", "--failed")
    assert again.returncode == 0, again.stdout + again.stderr
    assert "2 shards once more" in again.stdout
    failures, found = stored(poisoned)
    assert not failures
    assert found.keys() == wanted.keys()


@pytest.mark.exhaustive
def test_one_process_says_what_hung_and_resume_goes_on(
    tmp_path: Path, run_audit: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    spec = str(make_audit(tmp_path))
    url = f"sqlite:///{tmp_path / 'store.db'}"
    first = run_audit(url, "run", spec, POISON_HANGS=HANGS)
    assert first.returncode == 70, first.stdout + first.stderr
    assert f"'{HANGS}'" in first.stderr or "..." in first.stderr
    with open_database(url) as db:
        run_id = runs.get(db, "latest").id
        [suspect] = [one for one in shards.list_shards(db, run_id) if one.caution.alone]
    assert f"`transexplain resume {run_id}` goes on" in first.stderr
    assert suspect.state == "queued"
    assert HANGS in suspect.caution.alone
    ends = [run_audit(url, "resume", POISON_HANGS=HANGS).returncode for _ in range(2)]
    assert ends == [70, 3]
    failures, _ = stored(url)
    assert list(failures) == [HANGS]


@pytest.mark.exhaustive
def test_kills_from_outside_blame_no_item(
    tmp_path: Path, run_audit: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    """Whoever ends `run` and `resume` in the same item again and again convicts nobody."""
    spec = str(make_audit(tmp_path, items=8, shard_size=8, batch_tokens=1))
    url = f"sqlite:///{tmp_path / 'store.db'}"
    outside = {"POISON_ENDS_ITS_PARENT": "5"}
    ends = [run_audit(url, "run", spec, **outside).returncode]
    ends += [run_audit(url, "resume", **outside).returncode for _ in range(4)]
    assert ends[:3] == [-signal.SIGKILL] * 3
    with open_database(url) as db:
        [status] = shards.list_shards(db, runs.get(db, "latest").id)
    assert not status.caution.quarantined
    assert run_audit(url, "resume").returncode == 0
    with open_database(url) as db:
        run = runs.get(db, "latest")
        assert (run.state, list(results.failures(db, run.id))) == ("done", [])
        assert len(list(results.iter_items(db, run.id))) == 8


@pytest.mark.exhaustive
def test_a_process_that_is_killed_in_the_caller_leaves_its_batch(
    tmp_path: Path, run_audit: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    spec = str(make_audit(tmp_path, items=8))
    url = f"sqlite:///{tmp_path / 'store.db'}"
    done = run_audit(url, "run", spec, POISON_KILLS=KILLS[-1])
    assert done.returncode == -signal.SIGKILL
    with open_database(url) as db:
        [status] = shards.list_shards(db, runs.get(db, "latest").id)
    assert set(status.breadcrumb) == {str(row) for row in range(8)}
