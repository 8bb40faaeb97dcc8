"""Guarded connections: the messages that a consumer receives, on both brokers and by frame."""

import json
import random
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from celery import Celery
from everyday import only
from hypothesis import given
from hypothesis import strategies as st
from kombu import Message
from poisoned_messages import good, poisons
from poisoned_queues import Queue, queue_of

from transexplain.errors import ConfigurationError
from transexplain.settings import Settings
from workers import guarded_connections
from workers.app import make_app
from workers.message_guard import LIMIT, TASK, Refusal

RUN = "20261122-0a1b2c3d"
MARKER = Path("/nonexistent/marker")


class Consumer:
    """An application of ours that consumes from one queue, and what came of it."""

    def __init__(self, url: str) -> None:
        self.refused: list[Refusal] = []
        self.taken: list[Message] = []
        prefix = f"te-test-{uuid.uuid4().hex[:10]}"
        self.prefix, self.name = prefix, f"{prefix}.text.cpu"
        settings = Settings(broker_url=url, queue=prefix)
        self.app: Celery = make_app(settings, self.refused.append)

    def drain(self, queue: Queue, *, ack: bool = True) -> None:
        """Take what is there, one at a time, until the queue is empty."""

        def take(message: Message) -> None:
            self.taken.append(message)
            if ack:
                message.ack()

        with self.app.connection_for_read() as connection:
            consumer = self.app.amqp.TaskConsumer(
                connection, queues=[self.app.amqp.queues[self.name]], on_message=take
            )
            consumer.qos(prefetch_count=1)
            consumer.consume()
            until = time.monotonic() + 60
            while time.monotonic() < until and (ack or not self.taken):
                try:
                    connection.drain_events(timeout=0.5)
                except TimeoutError:
                    if not queue.left():
                        break
            if ack:
                consumer.cancel()


@pytest.fixture(params=["redis_url", "amqp_url"])
def consumer(request: pytest.FixtureRequest) -> Iterator[tuple[Consumer, Queue]]:
    url = request.getfixturevalue(request.param)
    made = Consumer(url)
    with queue_of(url, made.prefix, made.name) as queue:
        yield made, queue
    made.app.close()


@pytest.mark.exhaustive
def test_a_consumer_is_given_messages_of_ours_only(consumer: tuple[Consumer, Queue]) -> None:
    made, queue = consumer
    bad = poisons(MARKER, RUN)
    wanted = Counter([*(one.reason for one in bad.values()), *queue.own.values()])
    puts: list[Callable[[], None]] = [partial(queue.put, one.sent) for one in bad.values()]
    puts += [partial(queue.put_own, kind) for kind in queue.own]
    puts += [partial(queue.put, good(RUN, index)) for index in range(5)]
    random.Random(7).shuffle(puts)
    for put in puts:
        put()
    made.drain(queue)
    assert Counter(one.reason for one in made.refused) == wanted
    assert queue.left() == 0, "what is refused is not delivered again"
    assert sorted(one.payload for one in made.taken) == [[[RUN, i], {}, {}] for i in range(5)]
    for message in made.taken:
        assert message.headers.keys() == {"task", "id", "argsrepr", "kwargsrepr"}
        assert message.headers["task"] == TASK
        assert message.content_type == "application/json"


@pytest.mark.exhaustive
def test_a_message_that_is_not_acknowledged_comes_back(
    consumer: tuple[Consumer, Queue],
) -> None:
    made, queue = consumer
    queue.put(good(RUN, 4))
    made.drain(queue, ack=False)
    until = time.monotonic() + 10
    while not queue.left() and time.monotonic() < until:
        time.sleep(0.05)
    made.drain(queue)
    assert [one.payload for one in made.taken] == [[[RUN, 4], {}, {}]] * 2
    assert made.taken[0].headers["id"] == made.taken[1].headers["id"]
    assert made.refused == []
    assert queue.left() == 0


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "kept",
    only(
        b"garbage", of=[b"garbage", b"5", b'[1, "", "q"]', b'[{}, "", null]', b"[" * 5000, b"\xff"]
    ),
)
def test_deliveries_come_back_from_among_others(kept: bytes, redis_url: str) -> None:
    """What a dead worker had in hand lies in a hash that anybody may write to."""
    made = Consumer(redis_url)
    with (
        queue_of(redis_url, made.prefix, made.name) as queue,
        redis.Redis.from_url(redis_url) as client,
    ):
        ours = json.dumps([json.loads(good(RUN, 4).frame(made.name)), "", made.name])
        for score, (tag, value) in enumerate({"ours": ours, "theirs": kept}.items(), start=1):
            client.hset(f"{made.prefix}:unacked", tag, value)
            client.zadd(f"{made.prefix}:unacked_index", {tag: score})
        with made.app.connection_for_read() as connection:
            connection.default_channel.qos.restore_visible(interval=1)
        assert client.hlen(f"{made.prefix}:unacked") == 0
        made.drain(queue)
    assert [one.payload for one in made.taken] == [[[RUN, 4], {}, {}]]
    assert [one.reason for one in made.refused] == ["envelope"]
    made.app.close()


def test_every_connection_is_guarded_even_after_a_switch() -> None:
    app = make_app(Settings(broker_url="redis://127.0.0.1:1/0;amqps://127.0.0.1:2//"))
    for connection in (app.connection_for_read(), app.connection_for_write().clone()):
        assert connection.get_transport_cls() is guarded_connections.RedisTransport
        connection.switch("amqps://127.0.0.1:2//")
        assert connection.get_transport_cls() is guarded_connections.AmqpTlsTransport
        connection.switch("memory://")
        with pytest.raises(ConfigurationError, match="broker of kind 'memory': use redis"):
            connection.get_transport_cls()


def test_a_refusal_that_nobody_counts_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    guarded_connections.log_refusal(Refusal(reason="json", detail="it begins b'x'"))
    assert caplog.messages == ["message refused, json: it begins b'x'"]


def frames_of(body: bytes, sizes: list[int], channel: int) -> Iterator[guarded_connections.Frame]:
    """A delivery with this body in frames of these sizes, the rest in the last."""
    tag = b"\x03tag" + (7).to_bytes(8, "big") + b"\0"
    yield 1, channel, (60).to_bytes(2, "big") * 2 + tag + b"\x01\xff" + b"\x02\xff\xfe"
    properties = b"\x80\x00\x02\xff\xfe"
    yield 2, channel, (60).to_bytes(2, "big") + b"\0\0" + len(body).to_bytes(8, "big") + properties
    for size in sizes:
        if body[:size]:
            yield 3, channel, body[:size]
        body = body[size:]
    if body:
        yield 3, channel, body


SIZES = st.sampled_from([0, 1, 100, LIMIT - 1, LIMIT, LIMIT + 1, LIMIT + 2, 3 * LIMIT])


@given(
    st.lists(
        st.tuples(SIZES, st.lists(st.integers(1, LIMIT + 2), max_size=4), st.integers(1, 2)),
        max_size=6,
    )
)
def test_no_more_of_a_body_is_kept_than_shows_that_it_is_too_long(
    deliveries: list[tuple[int, list[int], int]],
) -> None:
    given_on: list[tuple[int, bytes]] = []

    def callback(channel: int, _method: Any, payload: bytes, message: Any) -> None:
        assert payload.endswith(b"\x03tag" + (7).to_bytes(8, "big") + b"\0" + b"\0\0"), "no route"
        assert message.properties == {}, "they could not be read"
        given_on.append((channel, bytes(message.body or b"")))

    peer = SimpleNamespace(bytes_recv=0)
    handle = guarded_connections._bounded_frames(peer, callback)
    count = 0
    for size, sizes, channel in deliveries:
        for frame in frames_of(bytes(size), sizes, channel):
            count += 1
            handle(frame)
    assert given_on == [
        (channel, bytes(min(size, LIMIT + 1))) for size, _, channel in deliveries
    ], "each once, and the next one is read as ever"
    assert peer.bytes_recv == count, "every frame shows that the peer lives"
