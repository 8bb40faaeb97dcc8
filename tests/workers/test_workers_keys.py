"""Keys in Redis that hold what they never should: work goes on, and they are deleted."""

import uuid
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
import redis
from broker_keys import MAKERS, names_of_keys
from celery import Celery
from kombu import Consumer

from orchestrator.dispatch import queue
from transexplain.settings import Settings
from workers.app import make_app
from workers.message_guard import TASK, Refusal
from workers.queue_names import queue_name


@pytest.fixture
def settings(redis_url: str) -> Iterator[Settings]:
    """Of a fleet whose keys are deleted afterwards."""
    first = f"keys-{uuid.uuid4().hex[:8]}"
    yield Settings(broker_url=redis_url, queue=first)
    with redis.Redis.from_url(redis_url) as client:
        for key in client.scan_iter(f"{first}:*"):
            client.delete(key)


def delivered(app: Celery, name: str) -> list[Any]:
    """One message that is sent to a queue and received from it."""
    found: list[Any] = []
    app.send_task(TASK, args=("run-1", 0), queue=name, retry=False)  # by a connection of the pool
    with app.connection_for_read() as connection:
        channel = connection.channel()
        bound = app.amqp.queues[name].bind(channel)

        def take(body: Any, message: Any) -> None:
            found.append(body)
            message.ack()

        with Consumer(channel, [bound], callbacks=[take], accept=["json"]):
            for _ in range(10):
                with suppress(TimeoutError):
                    connection.drain_events(timeout=0.5)
                if found:
                    break
        channel.qos.restore_visible(interval=1)
    return found


@pytest.mark.parametrize("kind", MAKERS)
def test_no_key_of_a_wrong_type_stops_a_message(settings: Settings, kind: str) -> None:
    refused: list[Refusal] = []
    app = make_app(settings, refused.append)
    name = queue_name(settings.queue, "text", "cpu")
    command, *content = MAKERS[kind]
    with redis.Redis.from_url(settings.broker_url) as client:
        for one in names_of_keys(settings.queue, name):
            key = f"{settings.queue}:{one}"
            client.delete(key)
            client.execute_command(command, key, *content)
            queue.depth(settings, name)
            assert [body[0] for body in delivered(app, name)] == [["run-1", 0]], one
            assert client.type(f"{settings.queue}:unacked_mutex") == b"none"
    reasons = {one.reason for one in refused}
    assert "wrong-type" in reasons and reasons <= {"wrong-type", "envelope"}
