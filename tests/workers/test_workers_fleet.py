"""The same audit by Celery workers on Redis and PostgreSQL, and by a local run that is killed."""

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import redis
from command_line_here import run_here
from sqlalchemy import select
from tiny_audit import make_audit

from transexplain.settings import Settings
from transexplain.store import results, runs
from transexplain.store.result_tables import run_metric
from transexplain.store.revisions import open_database
from transexplain.types.items import Attribution
from workers.app import make_app
from workers.queue_names import queues_for

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


def measured(env: dict[str, str]) -> dict[tuple[str, str, str], float | None]:
    with open_database(env["TRANSEXPLAIN_DATABASE_URL"]) as db:
        run = runs.get(db, "latest")
        assert (run.state, run.plan.task) == ("done", "evaluation")
        found = list(results.iter_scores(db, run.id))
    by_key = {(one.item_id, one.method, one.metric): one.value for one in found}
    assert len(by_key) == len(found), "no score twice"
    return by_key


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


@pytest.mark.postgres
@pytest.mark.redis
@pytest.mark.timeout(300)  # takes longest of the everyday tests: begun first
def test_two_workers_give_the_numbers_of_a_local_run(
    tmp_path: Path,
    postgres_url: str,
    redis_url: str,
    queue_name: str,
) -> None:
    """The workers are processes; the other verbs run in this one, which has imported all."""
    spec = str(make_audit(tmp_path))
    local = environment(tmp_path)
    fleet = environment(
        tmp_path,
        TRANSEXPLAIN_DATABASE_URL=postgres_url,
        TRANSEXPLAIN_BROKER_URL=redis_url,
        TRANSEXPLAIN_QUEUE=queue_name,
    )
    run_here(fleet, tmp_path, "submit", spec, code=4)  # no tables yet: says what to do
    run_here(fleet, tmp_path, "db", "upgrade")
    with workers(fleet, tmp_path, 2) as started:
        run_here(local, tmp_path, "run", spec)
        run_here(fleet, tmp_path, "submit", spec, "--wait")
    assert [process.returncode for process in started] == [0, 0], "SIGTERM ends a worker cleanly"
    same(stored(local), stored(fleet))


@pytest.mark.exhaustive
@pytest.mark.postgres
@pytest.mark.redis
def test_a_worker_measures_what_a_local_evaluation_does(
    tmp_path: Path, postgres_url: str, redis_url: str, queue_name: str
) -> None:
    spec = str(make_audit(tmp_path))
    local = environment(tmp_path)
    fleet = environment(
        tmp_path,
        TRANSEXPLAIN_DATABASE_URL=postgres_url,
        TRANSEXPLAIN_BROKER_URL=redis_url,
        TRANSEXPLAIN_QUEUE=queue_name,
    )
    evaluation = ["evaluate", spec, "--target", "predicted", "--method", "lrp", "--metric"]
    run_here(fleet, tmp_path, "db", "upgrade")
    with workers(fleet, tmp_path, 1):
        run_here(local, tmp_path, *evaluation, "activation")
        run_here(fleet, tmp_path, *evaluation, "activation", "--queue")
    assert measured(fleet) == pytest.approx(measured(local), abs=1e-5)


@pytest.mark.exhaustive
@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_killed_run_resumes_without_loss_or_doubles(tmp_path: Path, processes: str) -> None:
    spec = str(make_audit(tmp_path, items=400))
    reference = environment(tmp_path, TRANSEXPLAIN_DATABASE_URL=f"sqlite:///{tmp_path / 'ref.db'}")
    run_here(reference, tmp_path, "run", spec)
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
    run_here(env, tmp_path, "resume")
    same(stored(reference), stored(env))


@pytest.mark.exhaustive
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
    run_here(env, tmp_path, "resume")
    assert len(stored(env)) == 800


@pytest.mark.exhaustive
def test_lost_messages_are_sent_again(tmp_path: Path, redis_url: str, queue_name: str) -> None:
    """The broker forgets everything before a worker comes: `resume --queue` is enough."""
    spec = str(make_audit(tmp_path))
    env = environment(tmp_path, TRANSEXPLAIN_BROKER_URL=redis_url, TRANSEXPLAIN_QUEUE=queue_name)
    run_here(env, tmp_path, "submit", spec)
    with redis.Redis.from_url(redis_url) as client:
        for key in list(client.scan_iter(f"{queue_name}:*")):
            client.delete(key)
    with workers(env, tmp_path, 1):
        run_here(env, tmp_path, "resume", "--queue")
    assert len(stored(env)) == 80


@pytest.mark.exhaustive
@pytest.mark.postgres
def test_the_worker_that_closes_a_run_writes_its_rows_for_sql(
    tmp_path: Path, postgres_url: str, redis_url: str, queue_name: str
) -> None:
    """Nobody waits for the run and nobody reports it; the worker's own logs say nothing of it."""
    spec = str(make_audit(tmp_path))
    env = environment(
        tmp_path,
        TRANSEXPLAIN_DATABASE_URL=postgres_url,
        TRANSEXPLAIN_BROKER_URL=redis_url,
        TRANSEXPLAIN_QUEUE=queue_name,
    )
    run_here(env, tmp_path, "db", "upgrade")
    with open_database(postgres_url) as db, workers(env, tmp_path, 1) as started:
        run_here(env, tmp_path, "submit", spec)

        def found() -> list[float]:
            with db.read() as connection:
                query = select(run_metric.c.value).where(run_metric.c.name == "items_explained")
                return list(connection.scalars(query))

        wait_for(lambda: bool(found()))
        assert found() == [40.0]
    assert [process.returncode for process in started] == [0]
    assert "SQL tables" not in (tmp_path / "workers.log").read_text(encoding="utf-8")


@pytest.mark.exhaustive
def test_an_unreachable_broker_or_database_is_exit_4(tmp_path: Path) -> None:
    spec = str(make_audit(tmp_path))
    no_broker = environment(tmp_path, TRANSEXPLAIN_BROKER_URL="redis://:secret@127.0.0.1:1/0")
    printed = run_here(no_broker, tmp_path, "submit", spec, code=4)
    assert "broker" in printed
    assert "secret" not in printed
    no_database = environment(
        tmp_path, TRANSEXPLAIN_DATABASE_URL="postgresql://me:secret@127.0.0.1:1/none"
    )
    printed = run_here(no_database, tmp_path, "run", spec, code=4)
    assert "127.0.0.1:1" in printed
    assert "secret" not in printed


@pytest.mark.exhaustive
def test_supervised_workers_are_replaced_and_end_with_their_supervisor(
    tmp_path: Path, redis_url: str, queue_name: str
) -> None:
    """Each process ends after three shards and what it has begun by then, at most two more.

    One is killed while it starts.
    """
    spec = str(make_audit(tmp_path, items=120))
    env = environment(
        tmp_path,
        TRANSEXPLAIN_BROKER_URL=redis_url,
        TRANSEXPLAIN_QUEUE=queue_name,
        TRANSEXPLAIN_LEASE_SECONDS="3",
    )
    run_here(env, tmp_path, "db", "upgrade")
    log = tmp_path / "supervisor.log"
    words = ("worker", "--devices", "cpu:2", "--max-shards", "3", "--log-format", "json")
    with log.open("wb") as out:
        fleet = subprocess.Popen(command(*words), env=env, cwd=tmp_path, stdout=out, stderr=out)

    def reported(text: str) -> list[dict[str, object]]:
        lines = log.read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines if line.startswith("{") and text in line]

    try:
        wait_for(lambda: len(reported("worker on cpu: process")) == 2)
        os.kill(
            int(str(reported("worker on cpu: process")[0]["message"]).split()[-1]), signal.SIGKILL
        )
        run_here(env, tmp_path, "submit", spec, "--wait")
        # two may have done two shards by now; the other eleven were done by who had his fill
        wait_for(lambda: len(reported("ended with status 0")) >= 3)
    finally:
        fleet.terminate()
        assert fleet.wait(timeout=60) == 0, log.read_text(encoding="utf-8")
    assert len(stored(env)) == 240
    assert reported("was killed by SIGKILL")
    ended = reported("shard ended: done")
    assert {line["shard"] for line in ended} == set(range(15))
    assert all(line["run"] and line["attempt"] == 1 and line["worker"] for line in ended)
    assert max(Counter(line["worker"] for line in ended).values()) <= 5


@pytest.mark.exhaustive
@pytest.mark.parametrize("form", ["text", "json"])
def test_every_line_of_a_worker_about_a_shard_names_it(
    redis_url: str, queue_name: str, tmp_path: Path, form: str
) -> None:
    """Celery's lines, too, and those of the process that reads: whatever has the run's id."""
    spec = str(make_audit(tmp_path, items=16))
    env = environment(
        tmp_path,
        TRANSEXPLAIN_BROKER_URL=redis_url,
        TRANSEXPLAIN_QUEUE=queue_name,
        TRANSEXPLAIN_HOST_PROCESSES="1",
    )
    run_here(env, tmp_path, "db", "upgrade")
    log = tmp_path / "worker.log"
    words = ("worker", "--device", "cpu", "--log-format", form)
    with log.open("wb") as out:
        worker = subprocess.Popen(command(*words), env=env, cwd=tmp_path, stdout=out, stderr=out)
    try:
        run_here(env, tmp_path, "submit", spec, "--wait")
        wait_for(lambda: log.read_text(encoding="utf-8").count(" succeeded in ") == 2)
    finally:
        worker.terminate()
        assert worker.wait(timeout=60) == 0, log.read_text(encoding="utf-8")
    lines = log.read_text(encoding="utf-8").splitlines()
    marks = ("received", " succeeded in ", "shard ended")
    about = [
        line
        for line in lines
        if any(mark in line for mark in marks) and ("Task " in line or "shard ended" in line)
    ]
    counts = [sum(mark in line for line in about) for mark in marks]
    # on a machine that is busy a message may be sent again, and does nothing
    assert counts[0] >= 2 and counts[1:] == [2, 2], counts
    for line in about:
        fields = _fields(line, form)
        assert fields["shard"] in ("0", "1") and fields["run"] and fields["worker"], line
        assert (fields.get("attempt") == "1") == ("received" not in line), line


def _fields(line: str, form: str) -> dict[str, str]:
    if form == "json":
        return {name: str(value) for name, value in json.loads(line).items()}
    return dict(one.split("=", 1) for one in line[:-1].rpartition(" [")[2].split(" "))


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("words", "printed"),
    [
        (("--devices", "cuda:77"), "device 'cuda:77' is not there"),
        (("--devices", "cpu", "--device", "cpu"), "give one"),
        (("--modality", "sound"), "known are text, image, nodes"),
        (("--log-format", "xml"), "use text or json"),
    ],
)
def test_a_worker_with_a_wrong_request_ends(
    tmp_path: Path, words: tuple[str, ...], printed: str
) -> None:
    env = environment(tmp_path)
    run_here(env, tmp_path, "db", "upgrade")
    ended = subprocess.run(
        command("worker", *words),
        env=env,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ended.returncode == 2
    assert printed in " ".join((ended.stdout + ended.stderr).split())


@pytest.mark.exhaustive
def test_rabbitmq_is_a_broker_by_its_url_alone(tmp_path: Path, amqp_url: str) -> None:
    queue = f"te-test-{uuid.uuid4().hex[:10]}"
    spec = str(make_audit(tmp_path, items=16))
    secret = tmp_path / "broker-url"
    secret.write_text(f"{amqp_url}\n", encoding="utf-8")
    env = environment(tmp_path, TRANSEXPLAIN_BROKER_URL_FILE=str(secret), TRANSEXPLAIN_QUEUE=queue)
    app = make_app(Settings(broker_url=amqp_url, queue=queue))
    try:
        run_here(env, tmp_path, "submit", spec)
        with app.connection_for_read() as connection:
            waiting = connection.default_channel.queue_declare(f"{queue}.text.cpu", passive=True)
        assert waiting.message_count == 2, "one hint per shard"
        with workers(env, tmp_path, 1):
            wait_for(lambda: done_in(env))
        assert len(stored(env)) == 32
        assert "guest:guest" not in (tmp_path / "workers.log").read_text(encoding="utf-8")
    finally:
        with app.connection_for_write() as connection:
            for name in queues_for(Settings(queue=queue)):
                connection.default_channel.queue_delete(name)
                connection.default_channel.exchange_delete(name)
        app.close()


def done_in(env: dict[str, str]) -> bool:
    with open_database(env["TRANSEXPLAIN_DATABASE_URL"]) as db:
        return runs.get(db, "latest").state == "done"
