"""The guard of remote control: which commands, replies and events pass, and as what."""

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.message_guard import (
    COMMANDS,
    LIMIT,
    ControlMessage,
    Refusal,
    is_control,
    read_control,
    read_control_frame,
)

MAILBOX, REPLIES, EVENTS = "host.q.pidbox", "1234.reply.q.pidbox", "q.celeryev"


def command(**other: Any) -> dict[str, Any]:
    plain = dict.fromkeys(("destination", "pattern", "matcher"))
    return {"method": "ping", "arguments": {}, **plain, **other}


def read(name: str, content: Any, **headers: Any) -> ControlMessage | Refusal:
    return read_control(
        name,
        content if isinstance(content, bytes) else json.dumps(content).encode(),
        content_type="application/json",
        content_encoding="utf-8",
        headers=headers,
    )


@pytest.mark.parametrize(
    ("name", "control"),
    [
        (MAILBOX, True),
        (REPLIES, True),
        ("q.pidbox", True),
        (EVENTS, True),
        ("q.celeryev.1234", True),
        ("q.text.cpu", False),
    ],
)
def test_queues_of_control_are_known_by_their_names(name: str, control: bool) -> None:
    assert is_control(name) == control


@pytest.mark.parametrize("method", sorted(COMMANDS))
def test_a_command_passes_with_what_celery_needs(method: str) -> None:
    reply = {"exchange": "reply.q.pidbox", "routing_key": "1234"}
    arguments = {"rate_limit": "60/m"} if method == "rate_limit" else {}
    sent = command(
        method=method, arguments=arguments, destination=["a@b"], ticket="t", reply_to=reply
    )
    found = read(MAILBOX, sent, clock=3, expires=1.5, other="x", ticket=[1])
    assert isinstance(found, ControlMessage)
    assert json.loads(found.body) == sent
    assert found.headers == {"clock": 3, "expires": 1.5}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"null", "arguments"),
        (b"[" * 8000, "arguments"),
        (b"\xff", "arguments"),
        ([command()], "arguments"),
        (command(arguments=[1]), "arguments"),
        (command(pattern="(a+)+$", matcher="pcre"), "arguments"),
        (command(reply_to="x"), "arguments"),
        (command(more=1), "arguments"),
        *(
            (command(method=method), "task")
            for method in ("shutdown", "pool_restart", "add_consumer", "cancel_consumer", "eval")
        ),
        *(
            (command(method="rate_limit", arguments={"rate_limit": rate}), "arguments")
            for rate in ("nan/s", "-1/s", "inf/m", "1e-300/s", "1/y", None, ["1/s"])
        ),
        (command(arguments={"x": "y" * LIMIT}), "too-large"),
    ],
)
def test_invalid_commands_are_refused(content: Any, reason: str) -> None:
    found = read(MAILBOX, content)
    assert isinstance(found, Refusal)
    assert found.reason == reason


@pytest.mark.parametrize("name", [REPLIES, EVENTS])
def test_replies_and_events_are_objects(name: str) -> None:
    for content in ({"a@b": {"ok": "pong"}}, [{"type": "task-started"}]):
        found = read(name, content, hostname="h")
        assert isinstance(found, ControlMessage)
        assert json.loads(found.body) == content
    assert isinstance(read(name, 5), Refusal)


@pytest.mark.parametrize(
    ("given_on", "reason"),
    [
        ({"content_type": "application/x-python-serialize"}, "content-type"),
        ({"headers": {"compression": "gzip"}}, "compressed"),
        ({"headers": None}, "envelope"),
    ],
)
def test_other_envelopes_are_refused(given_on: dict[str, Any], reason: str) -> None:
    plain: dict[str, Any] = {
        "content_type": "application/json",
        "content_encoding": "utf-8",
        "headers": {},
    }
    found = read_control(MAILBOX, json.dumps(command()).encode(), **{**plain, **given_on})
    assert isinstance(found, Refusal)
    assert found.reason == reason


def test_an_accepted_entry_of_redis_is_written_again() -> None:
    envelope = {
        "body": base64.b64encode(json.dumps(command()).encode()).decode(),
        "content-type": "application/json",
        "content-encoding": "utf-8",
        "headers": {"clock": 1, "callbacks": "x"},
        "properties": {"body_encoding": "base64", "delivery_tag": "theirs"},
    }
    frame = read_control_frame(MAILBOX, json.dumps(envelope).encode())
    assert isinstance(frame, bytes)
    written = json.loads(frame)
    assert written["headers"] == {"clock": 1}
    assert written["properties"]["delivery_tag"] != "theirs"
    assert read_control_frame(MAILBOX, frame) != frame, "with a tag of its own each time"
    for other in (b"", b"[" * 8000, b"5", b"x" * (LIMIT + 1)):
        assert isinstance(read_control_frame(MAILBOX, other), Refusal)


@given(name=st.sampled_from([MAILBOX, REPLIES, EVENTS]), body=st.binary(), headers=st.none())
def test_the_guard_raises_nothing(name: str, body: bytes, headers: None) -> None:
    assert isinstance(read_control_frame(name, body), Refusal)
    found = read_control(
        name, body, content_type="application/json", content_encoding="utf-8", headers=headers
    )
    assert isinstance(found, Refusal)
