"""Celery's own settings: a module of the operator's, priorities, and what no module changes."""

import time
import uuid
from pathlib import Path

import pytest
import redis
from celery import Celery
from celery.bin.celery import celery as celery_command
from click.testing import CliRunner

import workers.app
from transexplain.errors import ConfigurationError
from transexplain.settings import Settings
from workers.app import PERIODIC, make_app
from workers.beat import PeriodicScheduler, PeriodicTask, register
from workers.message_guard import TASK

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
    return make_app(Settings(broker_url=redis_url, queue=f"te-test-{uuid.uuid4().hex[:8]}"))


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


def test_a_module_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CELERY_CONFIG_MODULE", "no_such_module")
    with pytest.raises(ConfigurationError, match="CELERY_CONFIG_MODULE=no_such_module"):
        make_app(Settings())


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
    with redis.Redis.from_url(redis_url) as client:
        for key in client.scan_iter(f"{prefix}:*"):
            client.delete(key)
    assert taken == ["urgent", "urgent", "bulk", "bulk"]


def test_tick_and_sweep_are_in_the_schedule_of_beat() -> None:
    schedule = make_app(Settings()).conf.beat_schedule
    assert {name: one["task"] for name, one in schedule.items()} == {
        name: name for name in PERIODIC
    }
    assert PERIODIC.keys() == {"transexplain.tick", "transexplain.sweep"}


def test_beat_carries_out_the_tasks_of_its_schedule(caplog: pytest.LogCaptureFixture) -> None:
    """What goes wrong is logged, and the next is carried out all the same."""
    app = make_app(Settings())
    called: list[str] = []

    def fails() -> None:
        called.append("sweep")
        raise ConfigurationError("nothing works")

    calls = {"transexplain.sweep": fails, "transexplain.tick": lambda: called.append("tick")}
    register(app, {name: PeriodicTask(call=call, seconds=5.0) for name, call in calls.items()})
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
