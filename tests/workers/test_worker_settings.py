"""Celery's own settings: a module of the operator's, priorities, and what no module changes."""

import logging
import shutil
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
import redis
from broker_keys import queue_name_of_test
from celery import Celery
from celery.bin.celery import celery as celery_command
from chaos_groups import wait_for
from click.testing import CliRunner
from gallery import prepare as prepared_audit
from local_receivers import free_port, make_certificate
from psycopg import sql
from sqlalchemy import exc
from tiny_audit import make_audit

import workers.app
from orchestrator.dispatch.queue import check_broker, send_messages
from transexplain.errors import BrokerError, ConfigurationError, DatabaseError
from transexplain.settings import Settings
from transexplain.store import fleet_state, runs, shards
from transexplain.store.database import Database
from transexplain.store.revisions import open_database
from workers.app import make_app
from workers.beat import PeriodicScheduler, register
from workers.claim_to_commit import Workbench
from workers.message_guard import TASK
from workers.queue_names import queue_of, queues_for

MODULE = """
import os
task_annotations = {"transexplain.explain_shard": {"rate_limit": "60/m"}}
broker_transport_options = {"visibility_timeout": 77, "global_keyprefix": "theirs"}
accept_content = ["pickle"]
task_acks_late = False
broker_url = "sqs://elsewhere"
task_routes = [lambda name, args, kwargs, options, task=None, **_: {"priority": PRIORITY[args[0]]}]
PRIORITY = {"bulk": 9, "urgent": 0}
"""


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, redis_url: str) -> Celery:
    name = f"operators_{uuid.uuid4().hex[:8]}"
    (tmp_path / f"{name}.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("CELERY_CONFIG_MODULE", name)
    return make_app(Settings(broker_url=redis_url, queue=queue_name_of_test()))


def test_a_module_of_settings_is_read_but_for_what_keeps_messages_safe(
    app: Celery, redis_url: str
) -> None:
    assert app.conf.task_annotations == {TASK: {"rate_limit": "60/m"}}
    options = app.conf.broker_transport_options
    assert options["visibility_timeout"] == 77
    assert options["global_keyprefix"] == f"{app.settings.queue}:"
    assert app.conf.accept_content == ["json"]
    assert app.conf.task_acks_late is True
    assert app.conf.broker_url == redis_url


def test_a_later_run_with_a_higher_priority_goes_first_on_redis(
    app: Celery, redis_url: str
) -> None:
    prefix = app.settings.queue
    name = f"{prefix}.text.cpu"
    for run in ("bulk", "urgent"):
        for index in range(2):
            app.send_task(TASK, args=(run, index), queue=name)
    taken: list[str] = []
    with app.connection_for_read() as connection:

        def take(message: object) -> None:
            taken.append(message.payload[0][0])  # type: ignore[attr-defined]
            message.ack()  # type: ignore[attr-defined]

        consumer = app.amqp.TaskConsumer(
            connection, queues=[app.amqp.queues[name]], on_message=take
        )
        consumer.qos(prefetch_count=1)
        with consumer:
            until = time.monotonic() + 30
            while len(taken) < 4 and time.monotonic() < until:
                connection.drain_events(timeout=5)
    assert taken == ["urgent", "urgent", "bulk", "bulk"]


def test_beat_carries_out_the_tasks_of_its_schedule(caplog: pytest.LogCaptureFixture) -> None:
    """What goes wrong is logged, and the next is carried out all the same."""
    app = make_app(Settings())
    called: list[str] = []

    def fails() -> None:
        called.append("sweep")
        raise ConfigurationError("nothing works")

    calls = {"transexplain.sweep": fails, "transexplain.tick": lambda: called.append("tick")}
    register(app, {name: (call, 5.0) for name, call in calls.items()})
    scheduler = PeriodicScheduler(app=app)
    for name in calls:
        assert name in app.tasks
        scheduler.apply_async(scheduler.schedule[name])
    assert called == ["sweep", "tick"]
    assert "transexplain.sweep: nothing works" in caplog.text


@pytest.mark.parametrize(
    ("variable", "value"),
    [("TRANSEXPLAIN_BROKER_URL", "http://x"), ("CELERY_CONFIG_MODULE", "no_such_module")],
)
def test_a_wrong_setting_is_one_line_of_celery(
    variable: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    monkeypatch.delitem(vars(workers.app), "app", raising=False)
    done = CliRunner().invoke(celery_command, ["-A", "workers.app", "worker"])
    assert (done.exit_code, done.output.count("\n")) == (2, 1)
    assert done.output.startswith("error: ") and value in done.output


ROOT = Path(__file__).resolve().parents[2]


def test_secrets_come_from_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "url"
    file.write_text("postgresql://me:hidden@db/x\n", encoding="utf-8")
    monkeypatch.setenv("TRANSEXPLAIN_DATABASE_URL_FILE", str(file))
    monkeypatch.delenv("TRANSEXPLAIN_DATABASE_URL", raising=False)
    found = Settings.from_environment()
    assert found.database_url == "postgresql://me:hidden@db/x"
    assert "hidden" not in repr(found)
    monkeypatch.setenv("TRANSEXPLAIN_DATABASE_URL", "sqlite:///x.db")
    with pytest.raises(ConfigurationError, match="both set"):
        Settings.from_environment()
    monkeypatch.delenv("TRANSEXPLAIN_DATABASE_URL")
    file.write_text("\n", encoding="utf-8")
    with pytest.raises(ConfigurationError, match="is empty"):
        Settings.from_environment()
    file.unlink()
    with pytest.raises(ConfigurationError, match="No such file"):
        Settings.from_environment()


@pytest.mark.parametrize(
    ("text", "size"), [("800MB", 800 * 2**20), ("12 GiB", 12 * 2**30), ("4096", 4096)]
)
def test_sizes_are_read(text: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRANSEXPLAIN_MODEL_MEMORY", text)
    assert Settings.from_environment().model_memory == size


@pytest.mark.parametrize(
    ("name", "value"),
    [("MODEL_MEMORY", "much"), ("LEASE_SECONDS", "0"), ("ITEM_DEADLINE", "soon")],
)
def test_what_cannot_be_read_is_named(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"TRANSEXPLAIN_{name}", value)
    with pytest.raises(ConfigurationError, match=f"TRANSEXPLAIN_{name}='{value}'"):
        Settings.from_environment()


def test_a_plan_names_its_queue_and_workers_listen_where_they_can_serve(tmp_path: Path) -> None:
    settings = Settings(queue="q")
    plan = prepared_audit(make_audit(tmp_path), tmp_path).plan
    on_gpu = replace(plan, model=replace(plan.model, device="cuda:3", modality="image"))
    assert (queue_of(settings, plan), queue_of(settings, on_gpu)) == ("q.text.cpu", "q.image.gpu")
    assert queues_for(settings, "cpu", ("text",)) == ["q.text.cpu"]
    assert queues_for(settings, "gpu", ("image",)) == ["q.image.gpu", "q.image.cpu"]
    assert {queue_of(settings, plan), queue_of(settings, on_gpu)} <= set(queues_for(settings))


def test_an_unknown_kind_of_broker_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"sqs://u:\*\*\*@x.*use redis"):
        make_app(Settings(broker_url="sqs://u:pw@x"))


@pytest.fixture(scope="module")
def tls_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, Path]]:
    """Port and CA file of a Redis of its own that takes TLS and a password only."""
    if not shutil.which("redis-server"):
        pytest.skip("no redis-server here")
    folder = tmp_path_factory.mktemp("tls")
    certificate = make_certificate(folder)
    cert, key = certificate.path, certificate.key
    port = free_port()
    server = subprocess.Popen(
        [
            *("redis-server", "--port", "0", "--tls-port", str(port)),
            *("--bind", "127.0.0.1", "127.0.0.2"),
            *("--tls-cert-file", str(cert), "--tls-key-file", str(key), "--tls-ca-cert-file"),
            *(str(cert), "--tls-auth-clients", "no", "--requirepass", "hidden", "--save", ""),
            *("--dir", str(folder)),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        with socket.socket() as probe:
            wait_for(lambda: probe.connect_ex(("127.0.0.1", port)) == 0, "the server", 30)
        yield port, cert
    finally:
        server.terminate()
        server.wait(timeout=30)


def test_redis_by_tls_and_password(tls_redis: tuple[int, Path]) -> None:
    port, ca = tls_redis
    right = Settings(broker_url=f"rediss://:hidden@localhost:{port}/0", broker_ca=ca, queue="q")
    send_messages(right, "run", [4], queue="q.text.cpu")
    with redis.Redis.from_url(right.broker_url, ssl_ca_certs=str(ca)) as client:
        (message,) = client.lrange("q:q.text.cpu", 0, -1)
    assert TASK.encode() in message
    assert b'"content-type": "application/json"' in message


@pytest.mark.parametrize(
    ("host", "password", "trusted"),
    [
        ("localhost", "wrong-one", True),
        ("localhost", "hidden", False),
        ("127.0.0.2", "hidden", True),
    ],
)
def test_a_server_or_password_that_is_not_right_is_refused(
    tls_redis: tuple[int, Path],
    host: str,
    password: str,
    trusted: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A wrong password, a certificate nobody vouches for, and one for another name."""
    caplog.set_level(logging.DEBUG)
    port, ca = tls_redis
    url = f"rediss://:{password}@{host}:{port}/0"
    wrong = Settings(broker_url=url, broker_ca=ca if trusted else None)
    with pytest.raises(BrokerError) as caught:
        check_broker(wrong)
    assert password not in str(caught.value)
    assert f"{password}@" not in caplog.text


def grants() -> str:
    """The statements of docs/how-to/fleet.md for the two roles."""
    text = (ROOT / "docs" / "how-to" / "fleet.md").read_text(encoding="utf-8")
    return text.partition("```sql\n")[2].partition("```")[0]


@pytest.mark.postgres
def test_a_worker_role_may_work_and_nothing_else(tmp_path: Path, postgres_url: str) -> None:
    admin = postgres_url.replace("+psycopg", "")
    base, _, name = admin.rpartition("/")
    owner, worker = f"owner_{name}", f"worker_{name}"
    statements = (
        grants()
        .replace("transexplain_owner", owner)
        .replace("transexplain_worker", worker)
        .replace("DATABASE transexplain", f"DATABASE {name}")
    )
    host = base.partition("://")[2].rpartition("@")[2]
    scheme = "postgresql+psycopg"
    try:
        with psycopg.connect(admin, autocommit=True) as connection:
            connection.execute(sql.SQL(statements))  # type: ignore[arg-type]
        open_database(f"{scheme}://{owner}:owner-password@{host}/{name}", upgrade=True).close()
        prepared = prepared_audit(make_audit(tmp_path, items=16), tmp_path)
        with open_database(f"{scheme}://{worker}:worker-password@{host}/{name}") as db:
            run_id = runs.create(db, prepared.plan, prepared.shards)
            bench = Workbench(db=db, settings=Settings())
            bench.models.put(prepared.plan.model, prepared.model)
            assert [bench.work(run_id) for _ in range(3)] == ["done", "done", "nothing"]
            fleet_state.add(db, {"json": 1})
            assert fleet_state.status(db).explained == 16
            assert fleet_state.status(db).refused == {"json": 1}
            assert shards.redrive(db, run_id) == 0
            for forbidden in (
                "CREATE TABLE mine (x int)",
                "DROP TABLE item",
                "TRUNCATE item",
                "CREATE ROLE friend",
                "ALTER TABLE item ADD COLUMN x int",
            ):
                refused(db, forbidden)
    finally:
        with psycopg.connect(admin, autocommit=True) as connection:
            for role in (worker, owner):
                connection.execute(f'DROP OWNED BY "{role}" CASCADE')
                connection.execute(f'DROP ROLE "{role}"')


def refused(db: Database, statement: str) -> None:
    with (
        pytest.raises((exc.ProgrammingError, DatabaseError), match=r"permission|must be owner"),
        db.begin() as connection,
    ):
        connection.exec_driver_sql(statement)
