"""One queue of each broker, and anything that a sender could put on it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Protocol

import amqp
import redis
from poisoned_messages import Sent, frames, good

from transexplain.settings import Settings
from workers.app import make_app
from workers.queue_names import queues_for


class Queue(Protocol):
    """What both brokers let a sender do."""

    #: kinds of poison that this broker alone delivers -> the reason each is refused for
    own: dict[str, str]

    def put(self, sent: Sent) -> None:
        """Put a message on the queue as its sender wrote it."""
        ...

    def put_own(self, kind: str) -> None:
        """Put on the queue what only this broker delivers."""
        ...

    def purge(self) -> None:
        """Take every message that waits off the queue."""
        ...

    def left(self) -> int:
        """Messages that wait; on Redis those in a worker's hands, too."""
        ...


class RedisQueue:
    """A list in Redis; a message is an entry of it."""

    def __init__(self, client: redis.Redis, prefix: str, name: str) -> None:
        self._client, self._prefix, self._name = client, prefix, name
        self._frames = frames()
        self.own = {kind: reason for kind, (_, reason) in self._frames.items()}

    def put(self, sent: Sent) -> None:
        self._client.lpush(f"{self._prefix}:{self._name}", sent.frame(self._name))

    def put_own(self, kind: str) -> None:
        self._client.lpush(f"{self._prefix}:{self._name}", self._frames[kind][0])

    def purge(self) -> None:
        self._client.delete(f"{self._prefix}:{self._name}")

    def left(self) -> int:
        waiting = self._client.llen(f"{self._prefix}:{self._name}")
        return int(waiting) + int(self._client.hlen(f"{self._prefix}:unacked"))


class AmqpQueue:
    """A queue of RabbitMQ, written to below kombu: properties are bytes of the sender's choice."""

    def __init__(self, channel: amqp.Channel, name: str) -> None:
        self._channel, self._name = channel, name
        channel.queue_declare(name, durable=True, auto_delete=False)
        self._raw = _properties_that_cannot_be_read()
        self.own = {
            **dict.fromkeys(self._raw, "envelope"),
            "20 MB": "too-large",
            "nothing at all": "content-type",
            "a route that is no UTF-8": "arguments",
        }

    def put(self, sent: Sent) -> None:
        given = {
            "content_type": sent.content_type,
            "content_encoding": sent.content_encoding,
            "application_headers": sent.headers,
        }
        known = {key: one for key, one in given.items() if one is not None}
        self._publish(amqp.Message(sent.body, **known))

    def put_own(self, kind: str) -> None:
        if kind in self._raw:
            self._publish(_Raw(good().body, self._raw[kind]))
        elif kind == "20 MB":
            self.put(replace(good(), body=b"x" * (20 * 2**20)))
        elif kind == "nothing at all":
            self._publish(amqp.Message(b"", application_headers={}))
        else:
            exchange = f"{self._name}.everything"
            self._channel.exchange_declare(exchange, "fanout", durable=False)
            self._channel.queue_bind(self._name, exchange)
            sent = replace(good(), body=b"null")
            with_headers = amqp.Message(
                sent.body,
                content_type=sent.content_type,
                content_encoding=sent.content_encoding,
                application_headers=sent.headers,
            )
            self._publish(with_headers, exchange=exchange, route=b"\xff\xfe")
            self._channel.exchange_delete(exchange)

    def purge(self) -> None:
        self._channel.queue_purge(self._name)

    def left(self) -> int:
        return int(self._channel.queue_declare(self._name, passive=True).message_count)

    def _publish(self, message: amqp.Message, *, exchange: str = "", route: Any = None) -> None:
        self._channel.basic_publish(message, exchange=exchange, routing_key=route or self._name)


class _Raw(amqp.Message):
    """A message whose properties are these very bytes."""

    def __init__(self, body: bytes, raw: bytes) -> None:
        super().__init__(body)
        self._raw_properties = raw

    def _serialize_properties(self) -> bytes:
        return self._raw_properties


def _properties_that_cannot_be_read() -> dict[str, bytes]:
    """Properties that RabbitMQ passes on and py-amqp raises at."""
    type_and_encoding = _short(b"application/json") + _short(b"utf-8")
    entries = b"".join(
        _short(name.encode()) + b"S" + _long(str(good().headers[name]).encode())
        for name in ("task", "id")
    )
    deep = b""
    for _ in range(3000):
        deep = _short(b"x") + b"F" + _long(deep)
    extra = {
        "a time beyond the calendar": _short(b"x") + b"T" + (2**63).to_bytes(8, "big"),
        "a deep table": deep,
    }
    return {
        "a type that is no UTF-8": b"\x80\x00" + _short(b"\xff\xfe"),
        "a correlation that is no UTF-8": b"\xc4\x00" + type_and_encoding + _short(b"\xc3\x28"),
        **{
            name: b"\xe0\x00" + type_and_encoding + _long(entries + entry)
            for name, entry in extra.items()
        },
    }


def _short(content: bytes) -> bytes:
    return len(content).to_bytes(1, "big") + content


def _long(content: bytes) -> bytes:
    return len(content).to_bytes(4, "big") + content


@contextmanager
def queue_of(url: str, prefix: str, name: str) -> Iterator[Queue]:
    """The queue of this name on the broker with this URL; gone afterwards, with all its kin."""
    settings = Settings(broker_url=url, queue=prefix)
    if url.startswith("redis"):
        with redis.Redis.from_url(url) as client:
            try:
                yield RedisQueue(client, prefix, name)
            finally:
                for key in client.scan_iter(f"{prefix}:*"):
                    client.delete(key)
        return
    app = make_app(settings)
    try:
        with app.connection_for_write() as connection:
            yield AmqpQueue(connection.default_channel, name)
    finally:
        with app.connection_for_write() as connection:
            for one in {name, *queues_for(settings)}:
                connection.default_channel.queue_delete(one)
                connection.default_channel.exchange_delete(one)
        app.close()
