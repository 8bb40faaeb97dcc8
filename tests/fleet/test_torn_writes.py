"""A process killed in the middle of a COPY, and a full disk: nothing half written, all resumes."""

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest
from chaos_groups import command, environment, wait_for
from command_line_here import run_here
from tiny_audit import make_audit

from transexplain.store import readers, runs
from transexplain.store.revisions import open_database

ITEMS, SHARD = 40, 8
#: the row of the second shard at which the server sleeps, as it does where its disk is slow
_SLEEP = """
CREATE FUNCTION slow_disk() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN IF NEW.idx = 12 THEN PERFORM pg_sleep(600); END IF; RETURN NEW; END $$;
CREATE TRIGGER slow_disk BEFORE INSERT ON attribution FOR EACH ROW EXECUTE FUNCTION slow_disk();
"""


def relevance(url: str) -> dict[tuple[str, str, int], np.ndarray[Any, Any]]:
    """The relevance of each item, target and rank of a run that is done."""
    with open_database(url) as db:
        run = runs.get(db, "latest")
        assert run.state == "done"
        rows = list(readers.iter_attributions(db, run.id))
    by_key = {(row.item_id, row.target, row.rank): row.relevance for row in rows}
    assert len(by_key) == len(rows), "no result twice"
    return by_key


def assert_equal(left: str, right: str) -> None:
    """Two runs, of other batches, hold the same relevance of the same items."""
    ours, theirs = relevance(left), relevance(right)
    assert ours.keys() == theirs.keys()
    for key, values in ours.items():
        np.testing.assert_allclose(values, theirs[key], rtol=1e-5, atol=1e-5)


@pytest.mark.exhaustive
def test_a_process_killed_during_copy_leaves_no_row(postgres_url: str, tmp_path: Path) -> None:
    spec = str(make_audit(tmp_path, items=ITEMS, shard_size=SHARD))
    quiet = f"sqlite:///{tmp_path / 'quiet.db'}"
    run_here(environment(tmp_path, TRANSEXPLAIN_DATABASE_URL=quiet), tmp_path, "run", spec)
    env = environment(tmp_path, TRANSEXPLAIN_DATABASE_URL=postgres_url)
    open_database(postgres_url, upgrade=True).close()
    with psycopg.connect(postgres_url.replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute(_SLEEP)
        copying = (
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() "
            "AND wait_event = 'PgSleep' AND query LIKE 'COPY%attribution%'"
        )
        process = subprocess.Popen(
            command("run", spec), env=env, cwd=tmp_path, start_new_session=True
        )
        try:
            wait_for(lambda: connection.execute(copying).fetchone(), "a COPY is under way")
            os.killpg(process.pid, signal.SIGKILL)
        finally:
            process.kill()
            process.wait()
        counted = connection.execute("SELECT shard, count(*) FROM item GROUP BY shard").fetchall()
        assert counted == [(0, SHARD)], "the shard before is whole, and of this one there is none"
        for (pid,) in connection.execute(copying).fetchall():
            connection.execute("SELECT pg_terminate_backend(%s)", (pid,))
        connection.execute("DROP TRIGGER slow_disk ON attribution; DROP FUNCTION slow_disk()")
    run_here(env, tmp_path, "resume")
    assert_equal(postgres_url, quiet)
    run_here(env, tmp_path, "verify", "--items", "5")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    if _mount("-t", "tmpfs", "-o", "size=640k", "tmpfs", str(folder)) != 0:
        pytest.skip("a small disk can be mounted by root alone")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def _mount(*words: str) -> int:
    try:
        return subprocess.run(["mount", *words], capture_output=True, check=False).returncode
    except FileNotFoundError:
        return 1


@pytest.mark.exhaustive
def test_a_full_disk_costs_no_saved_shard(small_disk: Path, tmp_path: Path) -> None:
    spec = str(make_audit(tmp_path, items=400, shard_size=40))
    url = f"sqlite:///{small_disk / 'store.db'}"
    env = environment(tmp_path, TRANSEXPLAIN_DATABASE_URL=url)
    words: Sequence[str] = ("run", spec, "--out", str(tmp_path / "reports"))
    said = run_here(env, tmp_path, *words, code=4)
    assert str(small_disk / "store.db") in said
    assert _mount("-o", "remount,size=64m", str(small_disk)) == 0
    with open_database(url) as db:
        done = runs.progress(db, runs.get(db, "latest").id).items_done
    assert 0 < done < 400
    run_here(env, tmp_path, "resume", "--out", str(tmp_path / "reports"))
    quiet = f"sqlite:///{tmp_path / 'quiet.db'}"
    run_here(environment(tmp_path, TRANSEXPLAIN_DATABASE_URL=quiet), tmp_path, *words)
    assert_equal(url, quiet)
