"""Messages of a broker: entries of a Redis queue, or the parts that RabbitMQ delivers.

The first line says which: `frame`, `kept` (a delivery that waits for its acknowledgement), `body`,
or `parts` with a JSON object of content type, encoding and headers in the second line.
"""

import json
import re

from fuzz.guard import promise
from transexplain.errors import TransExplainError
from workers import message_guard
from workers.message_guard import Accepted, Refusal

_LINE = 1_500  #: characters of a refusal: two pieces of 60, each escaped


def target(data: bytes) -> None:
    """A message is refused in one line, or says a run and a shard and is written as those alone."""
    kind, _, rest = data.partition(b"\n")
    try:
        result = _read(kind, rest)
    except TransExplainError as error:
        raise AssertionError(f"the guard raises nothing, but raised {error!r}") from error
    if isinstance(result, Refusal):
        line = str(result)
        promise(len(line) <= _LINE, f"a refusal of {len(line)} characters")
        promise(line.isascii() and line.isprintable(), f"a refusal that is no plain line: {line!r}")
        promise(result.reason in message_guard.REASONS, "a reason that no metric counts")
        return
    _check(result)


def _read(kind: bytes, rest: bytes) -> Accepted | Refusal:
    if kind == b"frame":
        return message_guard.read_frame("q", rest)
    if kind == b"kept":
        return message_guard.read_kept(rest)
    if kind == b"body":
        headers: object = {"id": "a-1", "task": message_guard.TASK}
        return message_guard.read_message(
            "q", rest, content_type="application/json", content_encoding="utf-8", headers=headers
        )
    head, _, body = rest.partition(b"\n")
    try:
        parts = json.loads(head)
    except (ValueError, RecursionError):
        parts = None
    parts = parts if isinstance(parts, dict) else {}
    return message_guard.read_message(
        "q",
        body,
        content_type=parts.get("type"),
        content_encoding=parts.get("encoding"),
        headers=parts.get("headers"),
    )


def _check(hint: Accepted) -> None:
    (run_id, shard_index), _, _ = json.loads(hint.body)
    promise(re.fullmatch(r"[0-9A-Za-z_.-]{1,100}", run_id), f"the run is {run_id!r}")
    promise(type(shard_index) is int, "the shard is no number")
    promise(0 <= shard_index < 2**31, "the shard is no index of a table")
    again = message_guard.read_message(
        "q",
        hint.body,
        content_type="application/json",
        content_encoding="utf-8",
        headers=hint.headers,
    )
    promise(again == hint, "written again it is another")
    promise(
        message_guard.read_frame("q", message_guard.frame_of(hint, "q")) == hint,
        "its frame is another",
    )
