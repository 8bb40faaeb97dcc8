"""Checks shard messages: reads the valid, refuses the others and counts them.

Anybody who reaches the broker can put anything on a queue. One of our messages says `(run id, shard
index)` and nothing else, so everything else is refused: before it is decoded where it is too long
or compressed, and in any case before Celery sees it. What passes is written again from the two
values, so that nothing of the sender's reaches Celery but those and the task's id.
"""

import base64
import logging
import re
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self, get_args
from uuid import uuid4

import msgspec

from transexplain.store import fleet_state
from transexplain.store.database import Database

log = logging.getLogger(__name__)

TASK = "transexplain.explain_shard"
#: what decoding raises; only newer versions of msgspec make theirs ValueErrors
UNREADABLE = (ValueError, msgspec.MsgspecError, RecursionError)
#: bytes that a message may have before it is decoded: ours have 100, with Redis' envelope 1,000
LIMIT = 16 * 1024

Reason = Literal[
    "too-large",
    "envelope",
    "compressed",
    "content-type",
    "task",
    "options",
    "json",
    "arguments",
    "wrong-type",  # of a key in Redis
]
REASONS: tuple[Reason, ...] = get_args(Reason)

_SHOWN = 60  #: characters of what a sender wrote that a log line may repeat
_TASK_ID = re.compile(r"[0-9A-Za-z-]{1,64}")
JSON, UTF_8 = "application/json", "utf-8"
#: headers that ask Celery for more than one call now
_OPTIONS = ("eta", "expires", "retries", "group", "chord", "callbacks", "errbacks", "chain")
_NO_LIMITS = (None, [None, None])


@dataclass(frozen=True, kw_only=True, slots=True)
class Accepted:
    """A message as it may be handed on, written again from what was read."""

    body: bytes
    headers: dict[str, Any]

    @property
    def properties(self) -> dict[str, Any]:
        """What else Celery needs of a task."""
        return {"correlation_id": self.headers["id"]} if "id" in self.headers else {}


def shard_message(run_id: str, shard_index: int, task_id: str) -> Accepted:
    """The message that says: this shard of this run may be worked on, and nothing else."""
    ids = run_id, shard_index
    headers = {"task": TASK, "id": task_id, "argsrepr": repr(ids), "kwargsrepr": "{}"}
    return Accepted(body=msgspec.json.encode((ids, {}, {})), headers=headers)


@dataclass(frozen=True, kw_only=True, slots=True)
class Refusal:
    """The reason why a message is refused; `detail` is one short line that is safe to print."""

    reason: Reason
    detail: str

    def __str__(self) -> str:
        return f"{self.reason}: {self.detail}"


def read_frame(queue: str, frame: bytes) -> Accepted | Refusal:
    """The message in one entry of a Redis queue, or why it is refused; raises nothing."""
    if len(frame) > LIMIT:
        return too_large(frame, len(frame))
    try:
        envelope = msgspec.json.decode(frame, type=Envelope)
        body = base64.b64decode(envelope.body, validate=True)
    except UNREADABLE as error:
        return Refusal(reason="envelope", detail=f"{_line(error)}; it begins {shown(frame)}")
    return read_message(
        *(queue, body),
        content_type=envelope.content_type,
        content_encoding=envelope.content_encoding,
        headers=envelope.headers,
    )


def read_kept(delivery: bytes) -> Accepted | Refusal:
    """The message in a delivery that kombu keeps in Redis until it is acknowledged."""
    if len(delivery) > LIMIT:
        return too_large(delivery, len(delivery))
    try:
        frame, _, _ = msgspec.json.decode(delivery, type=_Kept)
    except UNREADABLE as error:
        detail = f"{_line(error)}; a delivery that begins {shown(delivery)}"
        return Refusal(reason="envelope", detail=detail)
    return read_frame("", bytes(frame))


def read_message(
    queue: str, body: bytes, *, content_type: object, content_encoding: object, headers: object
) -> Accepted | Refusal:
    """The message with this body, these properties and these headers; raises nothing.

    `queue` is its name or that of an exchange: it says which kind of message may lie there. The
    other arguments are what the sender wrote, of whatever type, or None.
    """
    if len(body) > LIMIT:
        return too_large(body, len(body))
    if not isinstance(headers, Mapping):
        return Refusal(reason="envelope", detail="it has no table of headers")
    if (codec := headers.get("compression")) is not None:
        return Refusal(reason="compressed", detail=f"by {shown(codec)}; ours never are")
    if (content_type, content_encoding) != (JSON, UTF_8):
        detail = f"{shown(content_type)} in {shown(content_encoding)}, not {JSON} in {UTF_8}"
        return Refusal(reason="content-type", detail=detail)
    if is_control(queue):
        return _read_control(queue, body, headers)
    return _read_shard(body, headers)


def _read_shard(body: bytes, headers: Mapping[Any, Any]) -> Accepted | Refusal:
    task_id = headers.get("id")
    if headers.get("task") != TASK:
        return Refusal(reason="task", detail=f"{shown(headers.get('task'))} is not {TASK}")
    if not isinstance(task_id, str) or not _TASK_ID.fullmatch(task_id):
        return Refusal(reason="envelope", detail=f"the task's id is {shown(task_id)}")
    requested = [name for name in _OPTIONS if headers.get(name)]
    if headers.get("timelimit") not in _NO_LIMITS:
        requested.append("timelimit")
    if requested:
        return _options(requested)
    return _read_body(body, task_id)


def frame_of(message: Accepted, queue: str, priority: int = 0) -> bytes:
    """A message as an entry of this Redis queue, to which it would be restored."""
    properties = {
        **message.properties,
        "body_encoding": "base64",
        # kombu keeps what is not acknowledged under this tag: the sender must not choose it
        "delivery_tag": str(uuid4()),
        "delivery_info": {"exchange": "", "routing_key": queue},
        "priority": priority,
    }
    return msgspec.json.encode(
        {
            "body": base64.b64encode(message.body).decode(),
            "content-encoding": UTF_8,
            "content-type": JSON,
            "headers": message.headers,
            "properties": properties,
        }
    )


class _Properties(msgspec.Struct):
    body_encoding: Literal["base64"]


class Envelope(msgspec.Struct, rename="kebab"):
    """Kombu's envelope of a message for Redis; the delivery's tag and route are ours to write."""

    body: str
    properties: _Properties
    headers: dict[str, Any]
    content_type: Any = None
    content_encoding: Any = None


_Kept = tuple[msgspec.Raw, str, str]  # the entry, its exchange and its route
_RunId = Annotated[str, msgspec.Meta(pattern=r"\A[0-9A-Za-z][0-9A-Za-z_.-]{0,99}\Z")]
_ShardIndex = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]  # the database's INTEGER
_Body = tuple[tuple[_RunId, _ShardIndex], dict[str, Any], dict[str, Any]]


def _read_body(body: bytes, task_id: str) -> Accepted | Refusal:
    try:
        content = msgspec.json.decode(body)
    except UNREADABLE as error:
        return Refusal(reason="json", detail=f"{_line(error)}; it begins {shown(body)}")
    try:
        (run_id, shard_index), named, embedded = msgspec.convert(content, _Body)
    except UNREADABLE as error:
        return Refusal(reason="arguments", detail=f"{_line(error)}; it begins {shown(body)}")
    if named:
        return Refusal(reason="arguments", detail=f"named ones in {shown(body)}")
    if requested := [name for name, value in embedded.items() if value]:
        return _options(requested)
    return shard_message(run_id, shard_index, task_id)


def too_large(content: bytes, size: int) -> Refusal:
    """The refusal of what has so many bytes."""
    detail = f"{size} bytes or more, the limit is {LIMIT}; it begins {shown(content)}"
    return Refusal(reason="too-large", detail=detail)


def _options(requested: list[str]) -> Refusal:
    names = ", ".join(map(shown, requested[:3]))
    return Refusal(reason="options", detail=f"it has options of Celery: {names}; ours have none")


def _line(error: Exception) -> str:
    return shown(str(error)).strip("'\"")


def shown(value: object) -> str:
    """A short ASCII text without control characters, whatever the sender wrote."""
    if value is None:
        return "nothing"
    if not isinstance(value, (str, bytes)):
        return f"a {type(value).__name__}"
    return ascii(value[:_SHOWN]) + ("..." if len(value) > _SHOWN else "")


EVERY = 5.0  #: seconds between two writes of one worker
SHOWN = 10  #: refusals in that time that have a line of their own
_LAST_WRITE = 15.0  #: seconds that the end of a worker may wait for its counts to be written


class RefusalCounts:
    """Counts refused messages and adds them to SQL every `EVERY` seconds, from its own thread.

    The first `SHOWN` in that time are logged one by one, all the others in one line. Counts that
    cannot be written are lost: a database that is away must not cost a worker.
    """

    def __init__(self, db: Database, *, every: float = EVERY) -> None:
        self._db = db
        self._every = every
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="refusals", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(_LAST_WRITE)

    def note(self, refusal: Refusal) -> None:
        """Log and count one message that was refused."""
        with self._lock:
            self._counts[refusal.reason] += 1
            refused = self._counts.total()
        if refused <= SHOWN:
            log.warning("message refused and dropped, %s", refusal)

    def _keep(self) -> None:
        while not self._ended.wait(self._every):
            self._write()
        self._write()

    def _write(self) -> None:
        with self._lock:
            counts, self._counts = self._counts, Counter()
        if not counts:
            return
        if (total := counts.total()) > SHOWN:
            by_reason = ", ".join(f"{count} {reason}" for reason, count in counts.most_common())
            log.warning("%d messages refused in %g s: %s", total, self._every, by_reason)
        try:
            fleet_state.add(self._db, counts)
        except Exception as error:  # noqa: BLE001 - no count is worth a worker
            log.warning("count of refused messages lost: %s", error)


EVENTS = ".celeryev"  #: in the names of exchanges and queues of events
_MAILBOX = ".pidbox"
#: what a worker accepts: to report what it does, or what another command undoes (`rate_limit`,
#: events) or `transexplain retry` (`revoke`). Not `cancel_consumer`: only a restart undoes it
COMMANDS = frozenset(
    (
        *("active", "active_queues", "clock", "hello", "ping", "query_task", "registered"),
        *("reserved", "revoked", "scheduled", "stats"),
        *("disable_events", "enable_events", "heartbeat", "rate_limit", "revoke", "terminate"),
    )
)
_RATE = re.compile(r"0|\d{1,6}/[smh]")  #: others end in arithmetic that ends the worker
_HEADERS: Mapping[str, type | tuple[type, ...]] = {
    "clock": int,
    "expires": (int, float),
    "ticket": str,
    "hostname": str,
}


class _ReplyTo(msgspec.Struct):
    exchange: str
    routing_key: str


class _Command(msgspec.Struct, forbid_unknown_fields=True):
    method: str
    arguments: dict[str, Any] | None = None
    destination: list[str] | None = None
    pattern: None = None
    matcher: None = None
    ticket: str | None = None
    reply_to: _ReplyTo | None = None


_Content = dict[str, Any] | list[dict[str, Any]]  # a reply or an event; events that were gathered


def is_control(name: str) -> bool:
    """Return whether a queue or an exchange of this name carries remote control or events."""
    return name.endswith(_MAILBOX) or EVENTS in name


def _read_control(queue: str, body: bytes, headers: Mapping[Any, Any]) -> Accepted | Refusal:
    is_command = queue.endswith(_MAILBOX) and ".reply." not in queue
    try:
        content: Any = msgspec.json.decode(body, type=_Command if is_command else _Content)
    except UNREADABLE as error:
        return Refusal(reason="arguments", detail=f"{shown(str(error))}; remote control")
    if isinstance(content, _Command) and content.method not in COMMANDS:
        return Refusal(reason="task", detail=f"{shown(content.method)} is no known command")
    if isinstance(content, _Command) and content.method == "rate_limit":
        rate = (content.arguments or {}).get("rate_limit")
        if not _RATE.fullmatch(str(rate)):
            return Refusal(reason="arguments", detail=f"{shown(rate)} is no rate, such as 60/m")
    kept = {
        key: value for key, kind in _HEADERS.items() if isinstance(value := headers.get(key), kind)
    }
    return Accepted(body=msgspec.json.encode(content), headers=kept)
