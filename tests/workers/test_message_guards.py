"""The guard of messages: what it accepts, what it refuses and why, and the counts."""

import base64
import json
import logging
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from broker_keys import MAKERS, names_of_keys, queue_name_of_test
from celery import Celery
from celery_fleets import celery_fleet
from chaos_groups import wait_for
from everyday import only
from hypothesis import given
from hypothesis import strategies as st
from kombu import Consumer as KombuConsumer
from poisoned_messages import Poison, Sent, frames, good, poisons, queue_of

from orchestrator.dispatch import queue
from transexplain.errors import ConfigurationError
from transexplain.settings import Settings
from transexplain.store import fleet_state, runs
from transexplain.store.database import Database
from workers import guarded_connections
from workers.app import make_app
from workers.message_guard import (
    COMMANDS,
    LIMIT,
    REASONS,
    SHOWN,
    TASK,
    Accepted,
    Refusal,
    RefusalCounts,
    frame_of,
    is_control,
    read_frame,
    read_kept,
    read_message,
    shard_message,
)
from workers.queue_names import queue_name

MARKER = Path("/nonexistent/marker")
POISONS = poisons(MARKER)
FRAMES = frames()
QUEUE = "q.text.cpu"


def read(sent: Sent) -> Accepted | Refusal:
    return read_message(
        QUEUE,
        sent.body,
        content_type=sent.content_type,
        content_encoding=sent.content_encoding,
        headers=sent.headers,
    )


def refused(found: Accepted | Refusal, reason: str) -> None:
    assert isinstance(found, Refusal), found
    assert found.reason == reason, found
    assert found.reason in REASONS
    assert found.detail.isascii()
    assert found.detail.isprintable()
    assert len(found.detail) < 300, "a short line whatever was sent"


def test_a_message_of_ours_is_taken_from_either_broker() -> None:
    sent = good("20261122-0a1b2c3d", 3)
    wanted = shard_message("20261122-0a1b2c3d", 3, sent.headers["id"])
    assert read(sent) == wanted
    assert read_frame(QUEUE, sent.frame()) == wanted
    assert len(sent.frame()) * 10 < LIMIT, "the limit is far from what we send"


@pytest.mark.parametrize("kind", POISONS)
def test_invalid_messages_are_refused(kind: str) -> None:
    poison: Poison = POISONS[kind]
    refused(read(poison.sent), poison.reason)
    refused(read_frame(QUEUE, poison.sent.frame()), poison.reason)


@pytest.mark.parametrize("kind", FRAMES)
def test_an_entry_of_redis_that_is_no_message_is_refused(kind: str) -> None:
    frame, reason = FRAMES[kind]
    refused(read_frame(QUEUE, frame), reason)


def test_a_delivery_that_is_kept_is_read_as_what_it_holds() -> None:
    sent = good()
    kept = b'[%s, "", "q"]'
    assert read_kept(kept % sent.frame()) == read(sent)
    refused(read_kept(kept % b"{}"), "envelope")
    refused(read_kept(kept % replace(sent, body=b"null").frame()), "arguments")
    refused(read_kept(b"garbage"), "envelope")
    refused(read_kept(b"[" * 8000), "envelope")
    refused(read_kept(sent.frame()), "envelope")
    refused(read_kept(b"x" * (LIMIT + 1)), "too-large")


def test_the_limit_is_what_it_says() -> None:
    sent = good()
    spaces = b" " * (LIMIT - len(sent.body))
    assert isinstance(read(replace(sent, body=sent.body + spaces)), Accepted)
    refused(read(replace(sent, body=sent.body + spaces + b" ")), "too-large")


def test_accepted_messages_are_written_again() -> None:
    """Nothing of the sender's goes on but the two values and the task's id."""
    sent = replace(good(), headers={**good().headers, "argsrepr": "forged", "x": "y", "id": "id-1"})
    hint = read(sent)
    assert isinstance(hint, Accepted)
    assert json.loads(hint.body) == [["20261122-0a1b2c3d", 3], {}, {}]
    assert hint.headers == {
        "task": TASK,
        "id": "id-1",
        "argsrepr": "('20261122-0a1b2c3d', 3)",
        "kwargsrepr": "{}",
    }
    frame = frame_of(hint, "some.queue")
    assert read_frame(QUEUE, frame) == hint, "one that is restored to the queue is taken again"
    properties = json.loads(frame)["properties"]
    assert properties["delivery_info"] == {"exchange": "", "routing_key": "some.queue"}
    again = json.loads(frame_of(hint, "some.queue"))["properties"]
    assert again["delivery_tag"] != properties["delivery_tag"], "two of one kind stay two"


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


MAILBOX, REPLIES, EVENTS = "host.q.pidbox", "1234.reply.q.pidbox", "q.celeryev"
NAMES = st.sampled_from([QUEUE, MAILBOX, REPLIES, EVENTS])


@given(name=NAMES, body=st.binary(), kind=ANYTHING, encoding=ANYTHING, headers=ANYTHING)
def test_the_guard_raises_nothing(
    name: str, body: bytes, kind: object, encoding: object, headers: object
) -> None:
    for found in (
        read_message(name, body, content_type=kind, content_encoding=encoding, headers=headers),
        read(replace(good(), body=body)),
        read_frame(name, body),
        read_kept(body),
    ):
        assert isinstance(found, Refusal)
        refused(found, found.reason)


@given(name=st.sampled_from(sorted(good().headers)), value=ANYTHING)
def test_a_header_of_any_value_changes_nothing_or_is_refused(name: str, value: object) -> None:
    sent = good()
    found = read(replace(sent, headers={**sent.headers, name: value}))
    if isinstance(found, Accepted):
        assert json.loads(found.body) == [["20261122-0a1b2c3d", 3], {}, {}]


def json_refusal(number: int = 0) -> Refusal:
    return Refusal(reason="json", detail=f"number {number}")


def test_counts_are_added_up_by_reason(db: Database) -> None:
    for _ in range(2):
        with RefusalCounts(db) as refusals:
            refusals.note(json_refusal())
            refusals.note(json_refusal())
            refusals.note(Refusal(reason="task", detail="x"))
    assert fleet_state.status(db).refused == {"json": 4, "task": 2}


def test_a_flood_is_a_few_lines_and_a_few_transactions(
    db: Database, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[Counter[str]] = []
    add = fleet_state.add

    def counted(store: Database, counts: Counter[str]) -> None:
        written.append(counts)
        add(store, counts)

    monkeypatch.setattr(fleet_state, "add", counted)
    caplog.set_level(logging.WARNING)
    with RefusalCounts(db, every=60) as refusals:
        for number in range(100_000):
            refusals.note(json_refusal(number))
    assert fleet_state.status(db).refused == {"json": 100_000}
    assert len(written) == 1, "what came in one interval is one transaction"
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == SHOWN + 1
    assert lines[0] == "message refused and dropped, json: number 0"
    assert lines[-1] == "100000 messages refused in 60 s: 100000 json"


def test_without_a_database_the_counts_are_lost_and_the_work_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    with RefusalCounts(Database("postgresql://nobody:pw@127.0.0.1:1/none"), every=0.01) as refusals:
        refusals.note(json_refusal())
    assert "count of refused messages lost: database" in caplog.text
    assert "nobody:pw" not in caplog.text


def command(**other: Any) -> dict[str, Any]:
    plain = dict.fromkeys(("destination", "pattern", "matcher"))
    return {"method": "ping", "arguments": {}, **plain, **other}


def control(name: str, content: Any, **headers: Any) -> Accepted | Refusal:
    return read_message(
        name,
        content if isinstance(content, bytes) else json.dumps(content).encode(),
        content_type="application/json",
        content_encoding="utf-8",
        headers=headers,
    )


def test_queues_of_control_are_known_by_their_names() -> None:
    assert all(map(is_control, (MAILBOX, REPLIES, "q.pidbox", EVENTS, "q.celeryev.1234")))
    assert not is_control("q.text.cpu")


@pytest.mark.parametrize("method", sorted(COMMANDS))
def test_a_command_passes_with_what_celery_needs(method: str) -> None:
    reply = {"exchange": "reply.q.pidbox", "routing_key": "1234"}
    arguments = {"rate_limit": "60/m"} if method == "rate_limit" else {}
    sent = command(
        method=method, arguments=arguments, destination=["a@b"], ticket="t", reply_to=reply
    )
    found = control(MAILBOX, sent, clock=3, expires=1.5, other="x", ticket=[1])
    assert isinstance(found, Accepted)
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
        (command(pattern="(a+)+$"), "arguments"),
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
    found = control(MAILBOX, content)
    assert isinstance(found, Refusal)
    assert found.reason == reason


@pytest.mark.parametrize("name", [REPLIES, EVENTS])
def test_replies_and_events_are_objects(name: str) -> None:
    for content in ({"a@b": {"ok": "pong"}}, [{"type": "task-started"}]):
        found = control(name, content, hostname="h")
        assert isinstance(found, Accepted)
        assert json.loads(found.body) == content
    assert isinstance(control(name, 5), Refusal)


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
    found = read_message(MAILBOX, json.dumps(command()).encode(), **{**plain, **given_on})
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
    read = read_frame(MAILBOX, json.dumps(envelope).encode())
    assert isinstance(read, Accepted)
    frame = frame_of(read, MAILBOX)
    written = json.loads(frame)
    assert written["headers"] == {"clock": 1}
    assert written["properties"]["delivery_tag"] != "theirs"
    assert read_frame(MAILBOX, frame) == read
    assert frame_of(read, MAILBOX) != frame, "with a tag of its own each time"
    for other in (b"", b"[" * 8000, b"5", b"x" * (LIMIT + 1)):
        assert isinstance(read_frame(MAILBOX, other), Refusal)


@pytest.fixture
def settings(redis_url: str) -> Settings:
    """Of a fleet whose keys are deleted afterwards."""
    first = queue_name_of_test()
    return Settings(broker_url=redis_url, queue=first)


def received(app: Celery, name: str) -> list[Any]:
    """The bodies of messages that wait in a queue, until the first was taken."""
    found: list[Any] = []
    with app.connection_for_read() as connection:
        channel = connection.channel()
        bound = app.amqp.queues[name].bind(channel)

        def take(body: Any, message: Any) -> None:
            found.append(body)
            message.ack()

        with KombuConsumer(channel, [bound], callbacks=[take], accept=["json"]):
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
            app.send_task(TASK, args=("run-1", 0), queue=name, retry=False)  # by the pool
            assert [body[0] for body in received(app, name)] == [["run-1", 0]], one
            assert client.type(f"{settings.queue}:unacked_mutex") == b"none"
    reasons = {one.reason for one in refused}
    assert "wrong-type" in reasons and reasons <= {"wrong-type", "envelope"}


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "kept",
    only(
        b"garbage", of=[b"garbage", b"5", b'[1, "", "q"]', b'[{}, "", null]', b"[" * 5000, b"\xff"]
    ),
)
def test_deliveries_come_back_from_among_others(kept: bytes, settings: Settings) -> None:
    """What a dead worker had in hand lies in a hash that anybody may write to."""
    refused: list[Refusal] = []
    app, name = make_app(settings, refused.append), queue_name(settings.queue, "text", "cpu")
    sent, prefix = good("run-1", 4), settings.queue
    with (
        queue_of(settings.broker_url, prefix, name),
        redis.Redis.from_url(settings.broker_url) as client,
    ):
        ours = json.dumps([json.loads(sent.frame(name)), "", name])
        for score, (tag, value) in enumerate({"ours": ours, "theirs": kept}.items(), start=1):
            client.hset(f"{prefix}:unacked", tag, value)
            client.zadd(f"{prefix}:unacked_index", {tag: score})
        with app.connection_for_read() as connection:
            connection.default_channel.qos.restore_visible(interval=1)
        assert client.hlen(f"{prefix}:unacked") == 0
        assert received(app, name) == [[["run-1", 4], {}, {}]]
    assert [refusal.reason for refusal in refused] == ["envelope"]
    app.close()


def test_every_connection_is_guarded_even_after_a_switch() -> None:
    app = make_app(Settings(broker_url="redis://127.0.0.1:1/0;amqps://127.0.0.1:2//"))
    for connection in (app.connection_for_read(), app.connection_for_write().clone()):
        assert connection.get_transport_cls() is guarded_connections.RedisTransport
        connection.switch("amqps://127.0.0.1:2//")
        assert connection.get_transport_cls() is guarded_connections.AmqpTlsTransport
        connection.switch("memory://")
        with pytest.raises(ConfigurationError, match="'memory'"):
            connection.get_transport_cls()


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


@pytest.mark.exhaustive
@pytest.mark.parametrize("broker", ["redis_url", "amqp_url"])
def test_a_fleet_survives_a_poisoned_queue(
    broker: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Every kind of bad message among the good, and each is counted once for its reason."""
    url, marker = request.getfixturevalue(broker), tmp_path / "executed"
    with celery_fleet(url, tmp_path) as fleet:
        prefix = fleet.settings.queue
        with queue_of(url, prefix, f"{prefix}.text.cpu") as queue:
            run_id = fleet.submit(items=20, shard_size=1, groups=None)
            queue.purge()  # its messages are sent once more, among the others
            bad = poisons(marker, run_id)
            sends: list[Callable[[], None]] = [partial(queue.put, one.sent) for one in bad.values()]
            sends += [partial(queue.put_own, kind) for kind in queue.own]
            sends += [partial(queue.put, good(run_id, index)) for index in range(20)]
            random.Random(18).shuffle(sends)
            for send in sends:
                send()
            sent = Counter([*(one.reason for one in bad.values()), *queue.own.values()])
            with fleet.worker() as process:
                wait_for(lambda: runs.get(fleet.db, run_id).state == "done", "the run's end")
                # the last task writes the run's rows for SQL, too
                wait_for(lambda: not queue.left(), "an empty queue", 400)
                assert process.poll() is None
        assert fleet_state.status(fleet.db).refused == sent
        assert not marker.exists() and "Traceback" not in fleet.log
