"""Checks Celery's remote-control messages: commands, replies and events, as bounded plain JSON.

These come to queues of their own, see `is_control`. A command names one of `COMMANDS`, and a worker
or none: a pattern would be a sender's regular expression. What passes is written again.
"""

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal
from uuid import uuid4

import msgspec

from workers.message_guard import (
    JSON,
    LIMIT,
    UNREADABLE,
    UTF_8,
    Envelope,
    Refusal,
    shown,
    too_large,
)

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


@dataclass(frozen=True, kw_only=True, slots=True)
class ControlMessage:
    """A command, a reply or an event, as it may be handed on."""

    body: bytes
    headers: dict[str, Any]


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
    """Whether a queue or an exchange of this name carries remote control or events."""
    return name.endswith(_MAILBOX) or EVENTS in name


def read_control(
    name: str, body: bytes, *, content_type: object, content_encoding: object, headers: object
) -> ControlMessage | Refusal:
    """What came to the queue or exchange of this name, or why it is refused; raises nothing."""
    if len(body) > LIMIT:
        return too_large(body, len(body))
    if not isinstance(headers, Mapping):
        return Refusal(reason="envelope", detail="it has no table of headers")
    if headers.get("compression") is not None:
        return Refusal(reason="compressed", detail="remote control never is")
    if (content_type, content_encoding) != (JSON, UTF_8):
        found = f"{shown(content_type)} in {shown(content_encoding)}, not {JSON} in {UTF_8}"
        return Refusal(reason="content-type", detail=found)
    is_command = name.endswith(_MAILBOX) and ".reply." not in name
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
    return ControlMessage(body=msgspec.json.encode(content), headers=kept)


def read_control_frame(name: str, frame: bytes) -> bytes | Refusal:
    """The same of an entry in Redis, written again."""
    if len(frame) > LIMIT:
        return too_large(frame, len(frame))
    try:
        envelope = msgspec.json.decode(frame, type=Envelope)
        body = base64.b64decode(envelope.body, validate=True)
    except UNREADABLE as error:
        return Refusal(reason="envelope", detail=f"{shown(str(error))}; it begins {shown(frame)}")
    read = read_control(
        name,
        body,
        content_type=envelope.content_type,
        content_encoding=envelope.content_encoding,
        headers=envelope.headers,
    )
    return read if isinstance(read, Refusal) else _frame(name, read)


def _frame(name: str, message: ControlMessage) -> bytes:
    encoding: Literal["base64"] = "base64"
    return msgspec.json.encode(
        {
            "body": base64.b64encode(message.body).decode(),
            "content-encoding": UTF_8,
            "content-type": JSON,
            "headers": message.headers,
            "properties": {
                "body_encoding": encoding,
                "delivery_tag": str(uuid4()),
                "delivery_info": {"exchange": "", "routing_key": name},
                "priority": 0,
            },
        }
    )
