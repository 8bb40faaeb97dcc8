"""Connections to the broker that check every delivery before Celery sees it.

kombu decompresses a message before it asks who sent it, decodes what a Redis queue holds without
looking, and py-amqp decodes a sender's properties while it reads from the socket; an error in any
of these ends the worker, and RabbitMQ delivers the message again. So the guard stands where a
delivery enters: at the answer to Redis' BRPOP, at the frames of AMQP, and before the callback of a
consumer. What is refused is acknowledged at once and reported to `on_refused`, an option of
the transport; Celery sees only what the guard has written again.
"""

import logging
from collections.abc import Callable, Iterable
from functools import partial
from queue import Empty
from struct import pack_into
from typing import Any

import kombu
from amqp import spec  # type: ignore[import-untyped]
from amqp.basic_message import Message  # type: ignore[import-untyped]
from amqp.method_framing import frame_handler  # type: ignore[import-untyped]
from celery.app.amqp import AMQP
from kombu.connection import ConnectionPool, PooledConnection
from kombu.transport import pyamqp, redis
from kombu.utils.encoding import bytes_to_str
from redis import StrictRedis
from redis.exceptions import ResponseError

from transexplain.errors import ConfigurationError
from workers import message_guard
from workers.message_guard import Refusal, frame_of, read_frame, read_message, shown

log = logging.getLogger(__name__)

_FOR_EVER = -1  #: Redis' answer for a key that has no end
OnRefused = Callable[[Refusal], None]

_METHOD, _HEADER, _BODY = 1, 2, 3  #: kinds of AMQP frames
_UNPACKED = 12  #: bytes of a content header before the sender's properties
Frame = tuple[int, int, bytes]  #: kind, channel, payload


def log_refusal(refusal: Refusal) -> None:
    """Log a refusal; the default where no handler is given."""
    log.warning("message refused, %s", refusal)


def _type_of(name: str) -> str:
    """The Redis type that kombu keeps in the key of this name."""
    if name.startswith("_kombu.binding"):
        return "zset" if name == redis.Channel.keyprefix_binding_deadlines else "set"
    return {"unacked": "hash", "unacked_index": "zset", "unacked_mutex": "string"}.get(name, "list")


class _Mending:
    """Commands that pass where a key holds what it never should: anybody may have written it.

    Such a key is deleted, and the command sent again. Nothing is lost: the truth is in SQL.
    """

    global_keyprefix: str
    connection_pool: Any

    def __init__(self, *args: Any, on_refused: OnRefused, **kwargs: Any) -> None:
        self.on_refused = on_refused
        super().__init__(*args, **kwargs)

    def execute_command(self, *args: Any, **options: Any) -> Any:
        execute = super().execute_command  # type: ignore[misc]
        try:
            return execute(*args, **options)
        except ResponseError as error:
            self.mend(error, self._prefix_args(args))  # type: ignore[attr-defined]
        return execute(*args, **options)

    def mend(self, error: ResponseError, keys: Iterable[Any]) -> None:
        """Delete those of these keys that are of a wrong type; raises an error of another kind."""
        if "WRONGTYPE" not in str(error):
            raise error
        client = StrictRedis(connection_pool=self.connection_pool)
        for key in set(filter(lambda name: str(name).startswith(self.global_keyprefix), keys)):
            name = str(key)[len(self.global_keyprefix) :]
            held = bytes_to_str(client.type(key))
            if held not in ("none", _type_of(name)):
                client.delete(key)
                detail = f"{shown(name)} held a {held}, and is deleted: it is a {_type_of(name)}"
                self.on_refused(Refusal(reason="wrong-type", detail=detail))


class _RedisPipeline(_Mending, redis.PrefixedRedisPipeline):  # type: ignore[misc]
    """A client's pipeline that is sent again where a key was of a wrong type."""

    def execute(self, raise_on_error: bool = True) -> Any:
        commands = list(self.command_stack)
        try:
            return super().execute(raise_on_error)
        except ResponseError as error:
            self.mend(error, (part for args, _ in commands for part in args))
        for args, options in commands:
            self.pipeline_execute_command(*args, **options)
        return super().execute(raise_on_error)


class _RedisClient(_Mending, redis.PrefixedStrictRedis):  # type: ignore[misc]  # kombu has no types
    """A client whose blocking read returns valid messages only, or nothing as after its timeout."""

    def pipeline(self, transaction: bool = True, shard_hint: Any = None) -> _RedisPipeline:
        return _RedisPipeline(
            *(self.connection_pool, self.response_callbacks, transaction, shard_hint),
            global_keyprefix=self.global_keyprefix,
            on_refused=self.on_refused,
        )

    def parse_response(self, connection: Any, command_name: str, **options: Any) -> Any:
        answer = super().parse_response(connection, command_name, **options)
        if command_name != "BRPOP" or not answer:
            return answer
        key, frame = answer
        queue, _, priority = key.decode().partition(redis.Channel.sep)
        read = read_frame(queue, frame)
        if isinstance(read, Refusal):
            self.on_refused(read)  # this answer removed it from the queue
            return None
        return key, frame_of(read, queue, int(priority or 0))


class _RedisQoS(redis.QoS):  # type: ignore[misc]
    """Unacknowledged deliveries, which kombu keeps in Redis, where anybody may have added some."""

    def restore_visible(self, *args: Any, **options: Any) -> None:
        """Put back what is overdue; a lock that nobody of ours has taken does not prevent it."""
        with self.channel.conn_or_acquire() as client:
            key = f"{client.global_keyprefix}{self.unacked_mutex_key}"
            if client.ttl(key) == _FOR_EVER:
                client.delete(self.unacked_mutex_key)
        super().restore_visible(*args, **options)

    def restore_by_tag(self, tag: Any, client: Any = None, leftmost: bool = False) -> None:
        """Put one back on its queue; an invalid one is dropped, or no other would come back."""
        with self.channel.conn_or_acquire(client) as connected:
            kept = connected.hget(self.unacked_key, tag)
        read = message_guard.read_kept(kept) if kept is not None else None
        if isinstance(read, Refusal):
            self.channel.on_refused(read)
            self._remove_from_indices(tag).execute()
        else:
            super().restore_by_tag(tag, client, leftmost)


class RedisChannel(redis.Channel):  # type: ignore[misc]
    """Redis' channel with the guarded client."""

    QoS = _RedisQoS
    from_transport_options = (*redis.Channel.from_transport_options, "on_refused")
    on_refused: OnRefused = staticmethod(log_refusal)

    def _brpop_read(self, **options: Any) -> Any:
        """Receive a message; none where a queue's key is of a wrong type, which is deleted."""
        client = self.client
        try:
            return super()._brpop_read(**options)
        except ResponseError as error:
            keys = (
                f"{self.global_keyprefix}{self._q_for_pri(queue, priority)}"
                for queue in self.active_queues
                for priority in self.priority_steps
            )
            client.mend(error, keys)
            raise Empty from None

    def _handle_message(self, client: Any, r: Any) -> Any:
        """Receive what was published to all (remote control, events); nothing if refused."""
        payload = super()._handle_message(client, r)
        if payload["type"] not in (b"message", b"pmessage", "message", "pmessage"):
            return payload
        channel = bytes_to_str(payload["channel"])
        exchange = channel.rpartition("/")[0] or channel
        read = read_frame(exchange, payload["data"])
        if isinstance(read, Refusal):
            self.on_refused(read)
            return {**payload, "data": b""}
        return {**payload, "data": frame_of(read, exchange)}

    def _get_client(self) -> Any:
        super()._get_client()  # refuses an old driver
        return partial(
            _RedisClient, global_keyprefix=self.global_keyprefix, on_refused=self.on_refused
        )


class RedisTransport(redis.Transport):  # type: ignore[misc]
    """kombu's Redis transport behind the guard."""

    Channel = RedisChannel


class AmqpChannel(pyamqp.Channel):  # type: ignore[misc]
    """AMQP's channel whose consumers are called with messages of ours only."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # a body is decoded by the guard, not by whatever codec its sender names
        super().__init__(*args, **{**kwargs, "auto_decode": False})

    def basic_consume(
        self, queue: str = "", *args: Any, callback: Any = None, **kwargs: Any
    ) -> Any:
        """Consume as py-amqp does; `callback` is not called with refused deliveries."""
        deliver = partial(self._deliver, callback, queue)
        return super().basic_consume(queue, *args, callback=deliver, **kwargs)

    def _deliver(self, callback: Callable[[Any], None], queue: str, message: Any) -> None:
        sent = message.properties
        read = read_message(
            *(queue, message.body or b""),
            content_type=sent.get("content_type"),
            content_encoding=sent.get("content_encoding"),
            headers=sent.get("application_headers"),
        )
        if isinstance(read, Refusal):
            self.connection.on_refused(read)
            if not message_guard.is_control(queue):  # who sends a command wants no acknowledgement
                self.basic_ack(message.delivery_tag)
            return
        message.body = read.body
        message.properties = {
            "content_type": message_guard.JSON,
            "content_encoding": message_guard.UTF_8,
            "application_headers": read.headers,
            **read.properties,
        }
        callback(message)


class AmqpConnection(pyamqp.Connection):  # type: ignore[misc]
    """py-amqp's connection with guarded channels, which reads no more of a message than it may."""

    Channel = AmqpChannel

    def __init__(self, *args: Any, on_refused: OnRefused = log_refusal, **kwargs: Any) -> None:
        self.on_refused = on_refused
        super().__init__(*args, frame_handler=_bounded_frames, **kwargs)


def _bounded_frames(connection: Any, callback: Any) -> Callable[[Frame], bool]:
    """py-amqp's handler of frames, behind one that makes deliveries short and readable.

    A route or properties that cannot be decoded are left out, and a body is cut one byte behind
    the limit: the guard then sees what it has to refuse, and no memory is spent on the rest.
    """
    handle = frame_handler(connection, callback)
    deliveries: set[int] = set()  # channels whose next content header is of a delivery
    surplus: dict[int, list[int]] = {}  # by channel, of a body: bytes to keep, bytes to come

    def on_frame(frame: Frame) -> bool:
        kind, channel, payload = frame
        if kind == _METHOD and payload[:4] == _DELIVER:
            deliveries.add(channel)
            payload = _without_route(payload)
        elif kind == _HEADER and channel in deliveries:
            deliveries.remove(channel)
            size = int.from_bytes(payload[4:_UNPACKED], "big")
            if size > message_guard.LIMIT:
                surplus[channel] = [message_guard.LIMIT + 1, size]
            payload = _readable(payload, min(size, message_guard.LIMIT + 1))
        elif kind == _BODY and channel in surplus:
            kept, left = surplus[channel]
            surplus[channel] = [max(0, kept - len(payload)), left - len(payload)]
            if left <= len(payload):
                del surplus[channel]
            if not kept:
                connection.bytes_recv += 1  # every frame shows that the peer is alive
                return False
            payload = payload[:kept]
        return bool(handle((kind, channel, payload)))

    return on_frame


_DELIVER = b"".join(part.to_bytes(2, "big") for part in spec.Basic.Deliver)


def _without_route(payload: bytes) -> bytes:
    """A delivery's arguments with an empty exchange and routing key: a sender wrote those."""
    tag = 4
    route = tag + 1 + payload[tag] + 8 + 1  # the consumer's tag, the delivery's, one for flags
    return bytes(payload[:route]) + b"\0\0"


def _readable(payload: bytes, size: int) -> bytes:
    """A content header for a body of `size` bytes, without properties that cannot be decoded."""
    header = bytearray(payload)
    pack_into(">Q", header, 4, size)
    try:
        Message().inbound_header(bytes(header))
    except Exception:  # noqa: BLE001 - whatever a sender wrote: the guard refuses what has none
        return bytes(header[:_UNPACKED]) + b"\0\0"
    return bytes(header)


class AmqpTransport(pyamqp.Transport):  # type: ignore[misc]
    """kombu's AMQP transport behind the guard."""

    Connection = AmqpConnection


class AmqpTlsTransport(pyamqp.SSLTransport):  # type: ignore[misc]
    """The same with TLS."""

    Connection = AmqpConnection


_GUARDED = {
    "redis": RedisTransport,
    "rediss": RedisTransport,
    "amqp": AmqpTransport,
    "pyamqp": AmqpTransport,
    "librabbitmq": AmqpTransport,  # what kombu makes of `amqp` where that library is installed
    "amqps": AmqpTlsTransport,
}


class Connection(kombu.Connection):  # type: ignore[misc]
    """A connection with a guarded transport, after a switch to another broker of its URL, too."""

    def get_transport_cls(self) -> Any:
        """The class for the URL's scheme; raises ConfigurationError for an unknown one."""
        try:
            return _GUARDED[self.transport_cls]
        except KeyError:
            raise ConfigurationError(
                f"broker of kind {self.transport_cls!r}: use redis://, rediss://, amqp:// or "
                "amqps://"
            ) from None

    def Pool(self, limit: int | None = None, **kwargs: Any) -> ConnectionPool:  # noqa: N802
        """A pool of guarded connections: what sends messages takes its connection there."""
        return _RedisPool(self, limit, **kwargs)


class _PooledConnection(PooledConnection, Connection):  # type: ignore[misc]
    """A guarded connection of a pool."""


class _RedisPool(ConnectionPool):  # type: ignore[misc]
    def new(self) -> _PooledConnection:
        return _PooledConnection(self, **dict(self.connection._info(resolve=False)))


class GuardedAmqp(AMQP):  # type: ignore[misc]
    """The transport from which Celery makes its connections."""

    Connection = Connection
