"""Items that kill their process, hang or eat the memory cost themselves and nothing else."""

import json
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from broker_keys import forget
from chaos_groups import command, environment, lives, wait_for
from command_line_here import run_here
from tiny_audit import make_audit

from transexplain.store import readers, runs, shards
from transexplain.store.revisions import open_database
from transexplain.types.items import ItemFailure

DEADLINE = 10  #: seconds that an item may take
KILLS, HANGS, EATS = "13", "27", "28"  #: ids; the last two share a shard
POISON = {"CHAOS_KILLS": KILLS, "CHAOS_HANGS": HANGS, "CHAOS_EATS": EATS}
PATIENCE = 90.0  #: seconds

Relevance = dict[tuple[str, str, int], np.ndarray[Any, Any]]


def run_audit(
    folder: Path, database: str, *words: str, **chaos: str
) -> subprocess.CompletedProcess[str]:
    """Run the command line on a database of this name, with poison in the items or without."""
    env = environment(
        folder,
        TRANSEXPLAIN_DATABASE_URL=database,
        TRANSEXPLAIN_ITEM_DEADLINE=str(DEADLINE),
        CHAOS_EVERYWHERE="1",
        **chaos,
    )
    return subprocess.run(
        command(*words),
        env=env,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )


def url_of(folder: Path, name: str = "store") -> str:
    return f"sqlite:///{folder / name}.db"


def stored(url: str) -> tuple[dict[str, ItemFailure], Relevance]:
    """Failures by item, and relevance by item, target and rank, of a run that is complete."""
    with open_database(url) as db:
        run = runs.get(db, "latest")
        assert run.state == "done"
        assert len(list(readers.iter_items(db, run.id))) == runs.progress(db, run.id).items_total
        failures = {one.item_id: one for one in readers.iter_items(db, run.id, only_failed=True)}
        found = list(readers.iter_attributions(db, run.id))
    by_key = {(one.item_id, one.target, one.rank): one.relevance for one in found}
    assert len(by_key) == len(found), "no result twice"
    return failures, by_key


def same(left: Relevance, right: Relevance) -> None:
    assert left.keys() == right.keys()
    for key, relevance in left.items():
        np.testing.assert_allclose(relevance, right[key], rtol=1e-5, atol=1e-5)


@pytest.mark.exhaustive
def test_poison_costs_itself_and_retry_brings_it_back(tmp_path: Path) -> None:
    spec = str(make_audit(tmp_path))
    clean, poisoned = (url_of(tmp_path, name) for name in ("clean", "poisoned"))
    assert run_audit(tmp_path, clean, "run", spec).returncode == 0
    done = run_audit(tmp_path, poisoned, "run", spec, "--processes", "2", **POISON)
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
    assert "allocate memory" in failures[EATS].message
    expected = {key: one for key, one in wanted.items() if key[0] not in failures}
    same(found, expected)

    nothing = run_audit(tmp_path, poisoned, "retry")
    assert nothing.returncode == 0
    assert "nothing to try again; --failed looks at items that failed" in nothing.stdout
    again = run_audit(tmp_path, poisoned, "retry", "--failed")
    assert again.returncode == 0, again.stdout + again.stderr
    assert "2 shards once more" in again.stdout
    failures, found = stored(poisoned)
    assert not failures
    assert found.keys() == wanted.keys()


def below(pid: int) -> Iterator[int]:
    """Processes that this one started, and those that these did."""
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in path.read_text(encoding="ascii").split():
            yield int(child)
            yield from below(int(child))


@contextmanager
def run_at_work(folder: Path, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """`transexplain run` in the midst of its batches."""
    batches = folder / "batches"
    url = url_of(folder)
    env = environment(
        folder, TRANSEXPLAIN_DATABASE_URL=url, CHAOS_EVERYWHERE="1", CHAOS_SLOWLY="0.5"
    )
    spec = str(make_audit(folder, evaluation={"items": 0}))
    with (folder / "run.log").open("wb") as log:
        process = subprocess.Popen(
            command("run", spec, *words),
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
def test_no_process_outlives_a_run_that_was_killed(tmp_path: Path) -> None:
    """Neither those that read, nor what they came from, of several workers."""
    with run_at_work(tmp_path, "--host-processes", "2", "--processes", "2") as process:
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
    with open_database(url_of(tmp_path)) as db:
        states = shards.list_shards(db, runs.get(db, "latest").id)
    assert {one.state for one in states} <= {"queued", "done"}
    assert [one.attempt for one in states if one.state == "queued"].count(0) >= 3, "uncounted"
    assert not any(one.caution.alone or one.error for one in states), "and without blame"


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


@pytest.fixture
def fleet(tmp_path: Path, redis_url: str, queue_name: str) -> dict[str, str]:
    """What the processes of a fleet on Redis are started with."""
    return environment(
        tmp_path,
        TRANSEXPLAIN_DATABASE_URL=url_of(tmp_path),
        TRANSEXPLAIN_BROKER_URL=redis_url,
        TRANSEXPLAIN_QUEUE=queue_name,
    )


@pytest.mark.postgres
@pytest.mark.redis
@pytest.mark.timeout(300)  # takes longest of the everyday tests: begun first
def test_two_workers_give_the_numbers_of_a_local_run(
    tmp_path: Path, postgres_url: str, fleet: dict[str, str]
) -> None:
    """The workers are processes; the other verbs run in this one, which has imported all."""
    spec = str(make_audit(tmp_path))
    local = environment(tmp_path, TRANSEXPLAIN_DATABASE_URL=url_of(tmp_path))
    fleet["TRANSEXPLAIN_DATABASE_URL"] = postgres_url
    run_here(fleet, tmp_path, "submit", spec, code=4)  # no tables yet: says what to do
    run_here(fleet, tmp_path, "db", "upgrade")
    with workers(fleet, tmp_path, 2) as started:
        run_here(local, tmp_path, "run", spec)
        run_here(fleet, tmp_path, "submit", spec, "--wait")
    assert [process.returncode for process in started] == [0, 0], "SIGTERM ends a worker cleanly"
    same(*(stored(env["TRANSEXPLAIN_DATABASE_URL"])[1] for env in (local, fleet)))


@pytest.mark.exhaustive
def test_a_killed_run_resumes_without_loss_or_doubles(tmp_path: Path) -> None:
    url, reference = url_of(tmp_path), url_of(tmp_path, "reference")
    with run_at_work(tmp_path, "--processes", "2") as process, open_database(url) as db:
        run_id = runs.get(db, "latest").id
        wait_for(lambda: runs.progress(db, run_id).items_done, "the first shard")
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert runs.progress(db, run_id).items_done < 40, "killed in the middle"
    run_here(environment(tmp_path, TRANSEXPLAIN_DATABASE_URL=url), tmp_path, "resume")
    plain = environment(tmp_path, TRANSEXPLAIN_DATABASE_URL=reference)
    run_here(plain, tmp_path, "run", str(tmp_path / "audit.yaml"))
    same(stored(reference)[1], stored(url)[1])


@pytest.mark.exhaustive
def test_lost_messages_are_sent_again(tmp_path: Path, fleet: dict[str, str]) -> None:
    """The broker forgets everything before a worker comes: `resume --queue` is enough."""
    run_here(fleet, tmp_path, "submit", str(make_audit(tmp_path)))
    forget(fleet["TRANSEXPLAIN_BROKER_URL"], fleet["TRANSEXPLAIN_QUEUE"])
    with workers(fleet, tmp_path, 1):
        run_here(fleet, tmp_path, "resume", "--queue")
    assert len(stored(url_of(tmp_path))[1]) == 80


@pytest.mark.exhaustive
def test_supervised_workers_are_replaced_and_end_with_their_supervisor(
    tmp_path: Path, fleet: dict[str, str]
) -> None:
    """Each process ends after three shards and what it has begun by then, at most two more.

    One is killed while it starts.
    """
    spec = str(make_audit(tmp_path, items=120))
    env = {**fleet, "TRANSEXPLAIN_LEASE_SECONDS": "3"}
    run_here(env, tmp_path, "db", "upgrade")
    log = tmp_path / "supervisor.log"
    words = ("worker", "--devices", "cpu:2", "--max-shards", "3", "--log-format", "json")
    with log.open("wb") as out:
        supervisor = subprocess.Popen(
            command(*words), env=env, cwd=tmp_path, stdout=out, stderr=out
        )

    def reported(text: str) -> list[dict[str, object]]:
        lines = log.read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines if line.startswith("{") and text in line]

    try:
        wait_for(lambda: len(reported("worker on cpu: process")) == 2, "two workers")
        first = str(reported("worker on cpu: process")[0]["message"])
        os.kill(int(first.rpartition(" ")[2]), signal.SIGKILL)
        run_here(env, tmp_path, "submit", spec, "--wait")
        # two may have done two shards by now; the other eleven were done by who had his fill
        wait_for(lambda: len(reported("ended with status 0")) >= 3, "three that had their fill")
    finally:
        supervisor.terminate()
        assert supervisor.wait(timeout=60) == 0, log.read_text(encoding="utf-8")
    assert len(stored(url_of(tmp_path))[1]) == 240
    assert reported("was killed by SIGKILL")
    ended = reported("shard ended: done")
    assert {line["shard"] for line in ended} == set(range(15))
    assert max(Counter(line["worker"] for line in ended).values()) <= 5
