"""The guard of messages: what it accepts, what it refuses and why, and the counts."""

import json
import logging
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from fresh_stores import fresh_store
from hypothesis import given
from hypothesis import strategies as st
from poisoned_messages import Poison, Sent, frames, good, poisons

from transexplain.store import fleet_state
from transexplain.store.database import Database
from workers.message_guard import (
    LIMIT,
    REASONS,
    SHOWN,
    TASK,
    Refusal,
    RefusalCounts,
    ShardMessage,
    body_of,
    frame_of,
    headers_of,
    read_frame,
    read_kept,
    read_message,
)

MARKER = Path("/nonexistent/marker")
POISONS = poisons(MARKER)
FRAMES = frames()


def read(sent: Sent) -> ShardMessage | Refusal:
    return read_message(
        sent.body,
        content_type=sent.content_type,
        content_encoding=sent.content_encoding,
        headers=sent.headers,
    )


def refused(found: ShardMessage | Refusal, reason: str) -> None:
    assert isinstance(found, Refusal), found
    assert found.reason == reason, found
    assert found.reason in REASONS
    assert found.detail.isascii()
    assert found.detail.isprintable()
    assert len(found.detail) < 300, "a short line whatever was sent"


def test_a_message_of_ours_is_taken_from_either_broker() -> None:
    sent = good("20261122-0a1b2c3d", 3)
    wanted = ShardMessage(run_id="20261122-0a1b2c3d", shard_index=3, task_id=sent.headers["id"])
    assert read(sent) == wanted
    assert read_frame(sent.frame()) == wanted
    assert len(sent.frame()) * 10 < LIMIT, "the limit is far from what we send"


@pytest.mark.parametrize("kind", POISONS)
def test_invalid_messages_are_refused(kind: str) -> None:
    poison: Poison = POISONS[kind]
    refused(read(poison.sent), poison.reason)
    refused(read_frame(poison.sent.frame()), poison.reason)


@pytest.mark.parametrize("kind", FRAMES)
def test_an_entry_of_redis_that_is_no_message_is_refused(kind: str) -> None:
    frame, reason = FRAMES[kind]
    refused(read_frame(frame), reason)


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


@pytest.mark.parametrize("headers", [None, [], "x", 5])
def test_headers_that_are_no_table_are_refused(headers: object) -> None:
    refused(read(replace(good(), headers=headers)), "envelope")


def test_the_limit_is_what_it_says() -> None:
    sent = good()
    spaces = b" " * (LIMIT - len(sent.body))
    assert isinstance(read(replace(sent, body=sent.body + spaces)), ShardMessage)
    refused(read(replace(sent, body=sent.body + spaces + b" ")), "too-large")


def test_accepted_messages_are_written_again() -> None:
    """Nothing of the sender's goes on but the two values and the task's id."""
    sent = replace(good(), headers={**good().headers, "argsrepr": "forged", "x": "y", "id": "id-1"})
    hint = read(sent)
    assert isinstance(hint, ShardMessage)
    assert json.loads(body_of(hint)) == [["20261122-0a1b2c3d", 3], {}, {}]
    assert headers_of(hint) == {
        "task": TASK,
        "id": "id-1",
        "argsrepr": "('20261122-0a1b2c3d', 3)",
        "kwargsrepr": "{}",
    }
    frame = frame_of(hint, "some.queue")
    assert read_frame(frame) == hint, "one that is restored to the queue is taken again"
    properties = json.loads(frame)["properties"]
    assert properties["delivery_info"] == {"exchange": "", "routing_key": "some.queue"}
    again = json.loads(frame_of(hint, "some.queue"))["properties"]
    assert again["delivery_tag"] != properties["delivery_tag"], "two of one kind stay two"


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


@given(body=st.binary(), kind=ANYTHING, encoding=ANYTHING, headers=ANYTHING)
def test_the_guard_raises_nothing(
    body: bytes, kind: object, encoding: object, headers: object
) -> None:
    for found in (
        read_message(body, content_type=kind, content_encoding=encoding, headers=headers),
        read_message(
            body, content_type="application/json", content_encoding="utf-8", headers=good().headers
        ),
        read_frame(body),
        read_kept(body),
    ):
        assert isinstance(found, Refusal)
        refused(found, found.reason)


@given(name=st.sampled_from(sorted(good().headers)), value=ANYTHING)
def test_a_header_of_any_value_changes_nothing_or_is_refused(name: str, value: object) -> None:
    sent = good()
    found = read(replace(sent, headers={**sent.headers, name: value}))
    if isinstance(found, ShardMessage):
        assert (found.run_id, found.shard_index) == ("20261122-0a1b2c3d", 3)


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with fresh_store(tmp_path / "store.db") as store:
        yield store


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
