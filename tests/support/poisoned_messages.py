"""Invalid messages of every known kind, and why each is refused."""

import base64
import bz2
import json
import lzma
import pickle
import uuid
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, reduce
from pathlib import Path
from typing import Any

import amqp
import redis

from transexplain.settings import Settings
from workers.app import make_app
from workers.queue_names import queues_for

TASK = "transexplain.explain_shard"
BOMB = 300 * 2**20  #: bytes that a few become when they are inflated

PLAIN: Mapping[str, Any] = {
    "lang": "py",
    "task": TASK,
    "eta": None,
    "expires": None,
    "group": None,
    "retries": 0,
    "timelimit": [None, None],
    "ignore_result": None,
    "stamps": {},
}
EMBEDDED: Mapping[str, Any] = dict.fromkeys(("callbacks", "errbacks", "chain", "chord"))


@dataclass(frozen=True, kw_only=True)
class Sent:
    """A message as its sender writes it, for either broker."""

    body: bytes
    content_type: Any = "application/json"
    content_encoding: Any = "utf-8"
    headers: Any = field(default_factory=dict)

    def frame(self, queue: str = "q", **other: Any) -> bytes:
        """As kombu puts it into Redis; `other` replaces parts of the envelope."""
        envelope = {
            "body": base64.b64encode(self.body).decode(),
            "content-type": self.content_type,
            "content-encoding": self.content_encoding,
            "headers": self.headers,
            "properties": {
                "body_encoding": "base64",
                "delivery_tag": str(uuid.uuid4()),
                "delivery_info": {"exchange": "", "routing_key": queue},
                "priority": 0,
            },
            **other,
        }
        return json.dumps(envelope).encode()


@dataclass(frozen=True, kw_only=True)
class Poison:
    """What is put on a queue, and why it is refused."""

    sent: Sent
    reason: str


def good(run_id: str = "20261122-0a1b2c3d", index: int = 3) -> Sent:
    """A message of ours."""
    return Sent(body=_json([[run_id, index], {}, EMBEDDED]), headers=_headers())


class _Executes:
    """Leaves a file where it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return (Path.touch, (self.marker,))


def poisons(marker: Path, run_id: str = "20261122-0a1b2c3d") -> dict[str, Poison]:
    """One of every kind that both brokers deliver; `marker` appears where one is executed."""
    kinds: dict[str, dict[str, Sent]] = {
        "arguments": _arguments(run_id),
        "options": _options(run_id),
        "task": _tasks(run_id),
        "json": _no_json(),
        "content-type": _types(run_id, marker),
        "envelope": {name: replace(good(run_id), headers=one) for name, one in _ids().items()},
        "compressed": _compressed(run_id),
        "too-large": {
            # in characters it is short, where the limit cuts it
            "18 kB of euros": replace(good(run_id), body=b'["' + "\u20ac".encode() * 6000),
            "1 MB of JSON": replace(good(run_id), body=_json([["x" * 2**20, 0], {}, {}])),
            "a gzip bomb": _packed(run_id, "gzip", _bombs()[0]),
        },
    }
    return {
        name: Poison(sent=sent, reason=reason)
        for reason, some in kinds.items()
        for name, sent in some.items()
    }


def frames(run_id: str = "20261122-0a1b2c3d") -> dict[str, tuple[bytes, str]]:
    """What only Redis delivers: entries of a queue that are no messages, and why."""
    sent = good(run_id)
    properties = json.loads(sent.frame())["properties"]
    refused = {
        "nothing": b"",
        "no JSON": b"hello\r\n\x1b[31m",
        "null": b"null",
        "a number": b"5",
        "a list": b"[1, 2]",
        "an empty object": b"{}",
        "invalid UTF-8": b'{"body": "\xff\xfe"}',
        "half a message": sent.frame()[:300],
        "a deep list": b"[" * 8000,
        "bad base64": sent.frame(body="a"),
        "base64 of other letters": sent.frame(body="\u00e9" * 8),
        "a body that is a number": sent.frame(body=5),
        "no body": sent.frame(body=None),
        "headers that are a list": sent.frame(headers=[1]),
        "no headers": sent.frame(headers=None),
        "no properties": sent.frame(properties=None),
        "properties without an encoding": sent.frame(properties={}),
        "a body in an unknown encoding": sent.frame(
            properties={**properties, "body_encoding": "rot13"}
        ),
    }
    return {
        **{name: (frame, "envelope") for name, frame in refused.items()},
        "5 MB": (b"x" * (5 * 2**20), "too-large"),
        "5 MB of a message": (sent.frame(body="QUJD" * 2**20), "too-large"),
    }


def _arguments(run_id: str) -> dict[str, Sent]:
    whole: list[Any] = [
        *(None, 5, [], {}, "x"),
        [[run_id, 0]],
        [[run_id, 0], {"shard_index": 1}, EMBEDDED],
        [[], {"run_id": run_id, "shard_index": 1}, EMBEDDED],
        [[run_id, 0], [], EMBEDDED],
    ]
    runs = [[run_id], None, 7, "2026\0", "' OR 1=1 --", f"{run_id}\n", "x" * 1000]
    kombus_own = {"__type__": "uuid", "__value__": {"hex": 1}}
    shards = [-1, 2**63, 10**400, True, 0.5, "0"]
    arguments: list[list[Any]] = [
        *([], [run_id], [run_id, 0, 0]),
        *([run, 0] for run in (*runs, kombus_own)),
        *([run_id, shard] for shard in shards),
    ]
    whole += [[positional, {}, EMBEDDED] for positional in arguments]
    return {repr(body)[:60]: Sent(body=_json(body), headers=_headers()) for body in whole}


def _options(run_id: str) -> dict[str, Sent]:
    call = {"task": TASK, "args": [run_id, 0], "kwargs": {}, "options": {}, "subtask_type": None}
    embedded = {"callbacks": [call], "errbacks": [call], "chain": [call], "chord": call}
    headers: dict[str, Any] = {
        "eta": "2099-01-01T00:00:00+00:00",
        "expires": "1999-01-01T00:00:00+00:00",
        "retries": 7,
        "timelimit": [0.001, 0.001],
        "group": "g",
    }
    return {
        **{
            name: Sent(body=_json([[run_id, 0], {}, {**EMBEDDED, name: one}]), headers=_headers())
            for name, one in embedded.items()
        },
        **{
            name: replace(good(run_id), headers=_headers(**{name: one}))
            for name, one in headers.items()
        },
        "an eta that is none": replace(good(run_id), headers=_headers(eta=["soon"])),
    }


def _tasks(run_id: str) -> dict[str, Sent]:
    first = {"task": TASK, "id": "1", "args": [run_id, 0], "kwargs": {}}
    return {
        "an unknown task": replace(good(run_id), headers=_headers(task="os.system")),
        "a task of Celery's": replace(good(run_id), headers=_headers(task="celery.chain")),
        "a task that is a list": replace(good(run_id), headers=_headers(task=[TASK])),
        "protocol 1": Sent(body=_json(first)),
        "both protocols": Sent(body=_json(first), headers={"id": "1", "task": None}),
        "no headers": Sent(body=good(run_id).body),
    }


def _no_json() -> dict[str, Sent]:
    bodies = {
        "nothing": b"",
        "invalid UTF-8": b'[["\xff\xfe", 0], {}, {}]',
        "deep JSON": b"[" * 8000,
        "half of JSON": b'[["x", 0], {}, ',
        "no JSON": b"\x80\x04\x95hello",
        "no number": b'[["x", NaN], {}, {}]',
    }
    return {name: Sent(body=body, headers=_headers()) for name, body in bodies.items()}


def _types(run_id: str, marker: Path) -> dict[str, Sent]:
    sent = good(run_id)
    python = "application/x-python-serialize"
    called = f"!!python/object/apply:pathlib.Path.touch ['{marker}']".encode()
    types = {
        "pickle": (pickle.dumps([_Executes(marker), {}, {}]), python, "binary"),
        "yaml": (called, "application/x-yaml", "utf-8"),
        "msgpack": (sent.body, "application/x-msgpack", "binary"),
        "text": (sent.body, "text/plain", "utf-8"),
        "bytes": (sent.body, "application/data", "binary"),
        "an unknown type": (sent.body, "x/y", "utf-8"),
        "no type": (sent.body, None, "utf-8"),
        "no type, no encoding": (sent.body, None, None),
        "another encoding": (sent.body.decode().encode("utf-16"), sent.content_type, "utf-16"),
        "an unknown encoding": (sent.body, sent.content_type, "klingon"),
        "no text encoding": (sent.body, sent.content_type, "zlib"),
    }
    return {
        name: replace(sent, body=body, content_type=kind, content_encoding=encoding)
        for name, (body, kind, encoding) in types.items()
    }


def _compressed(run_id: str) -> dict[str, Sent]:
    body = good(run_id).body
    packed = {
        "application/x-gzip": zlib.compress(body),
        "application/x-bz2": bz2.compress(body),
        "application/x-lzma": lzma.compress(body),
        "application/zstd": body,
        "application/x-unheard-of": body,
    }
    bomb = {"a bzip2 bomb": _packed(run_id, "bzip2", _bombs()[1])}
    return {name: _packed(run_id, name, one) for name, one in packed.items()} | bomb


def _packed(run_id: str, compression: str, body: bytes) -> Sent:
    return replace(good(run_id), body=body, headers=_headers(compression=compression))


@cache
def _bombs() -> tuple[bytes, bytes]:
    """300 MB by two compressors: one piece is compressed, and its result repeated."""
    piece, times = bytes(10 * 2**20), BOMB // (10 * 2**20)
    packer = zlib.compressobj()
    head = packer.compress(b"") + packer.flush(zlib.Z_FULL_FLUSH)  # the stream's header
    block = packer.compress(piece) + packer.flush(zlib.Z_FULL_FLUSH)  # refers to nothing before it
    end = packer.flush()[:-4]  # the checksum is that of the whole
    checksum = reduce(lambda found, _: zlib.adler32(piece, found), range(times), 1)
    return head + block * times + end + checksum.to_bytes(4), bz2.compress(piece) * times


def _ids() -> dict[str, Any]:
    return {
        "no id": {name: one for name, one in _headers().items() if name != "id"},
        "an id that is a list": _headers(id=["x"]),
        "an id of a sentence": _headers(id="hello there"),
        "a long id": _headers(id="x" * 500),
    }


def _headers(**other: Any) -> dict[str, Any]:
    return {**PLAIN, "id": str(uuid.uuid4()), **other}


def _json(content: Any) -> bytes:
    return json.dumps(content).encode()


class RedisQueue:
    """A list in Redis; a message is an entry of it.

    `own`: kinds of poison that this broker alone delivers -> the reason each is refused for.
    """

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
        self._publish(_message(sent))

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
            null = _message(replace(good(), body=b"null"))
            self._publish(null, exchange=exchange, route=b"\xff\xfe")
            self._channel.exchange_delete(exchange)

    def purge(self) -> None:
        self._channel.queue_purge(self._name)

    def left(self) -> int:
        return int(self._channel.queue_declare(self._name, passive=True).message_count)

    def _publish(self, message: amqp.Message, *, exchange: str = "", route: Any = None) -> None:
        self._channel.basic_publish(message, exchange=exchange, routing_key=route or self._name)


def _message(sent: Sent) -> amqp.Message:
    fields = {
        "content_type": sent.content_type,
        "content_encoding": sent.content_encoding,
        "application_headers": sent.headers,
    }
    known = {name: value for name, value in fields.items() if value is not None}
    return amqp.Message(sent.body, **known)


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


Queue = RedisQueue | AmqpQueue


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
