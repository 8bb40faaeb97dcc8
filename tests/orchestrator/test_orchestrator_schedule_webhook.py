"""Verdicts of scheduled runs at a real receiver: signed, once, again where it was away."""

import hashlib
import hmac
import json
import logging
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update
from tiny_audit import make_audit

from orchestrator.dispatch.local import run_local
from orchestrator.schedule import tick, verdict_posts
from orchestrator.schedule.tick import run_now
from orchestrator.schedule.verdict_posts import deliver
from transexplain.errors import ConfigurationError, WebhookError
from transexplain.settings import Settings
from transexplain.store import schedules
from transexplain.store.database import Database
from transexplain.store.revisions import open_database
from transexplain.store.schema import schedule_fire

SECRET = "a very secret key"


@dataclass
class Receiver:
    """A local receiver that answers with given statuses, and keeps what it got."""

    url: str = ""
    answers: list[int] = field(default_factory=list)  #: statuses to give; then 204
    posts: list[tuple[str, Message, bytes]] = field(default_factory=list)

    def documents(self) -> list[dict[str, Any]]:
        return [json.loads(body) for _, _, body in self.posts]


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    made = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            made.posts.append((self.path, self.headers, body))
            self.send_response(made.answers.pop(0) if made.answers else 204)
            self.send_header("Location", f"{made.url}/elsewhere")
            self.end_headers()

        do_GET = do_POST  # noqa: N815 - the name that http.server looks for

        def log_message(self, *_: Any) -> None:
            pass

    monkeypatch.setenv(verdict_posts.SECRET, SECRET)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield made
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(
        database_url=f"sqlite:///{tmp_path / 'store.db'}", snapshot_dir=tmp_path / "snapshots"
    )


@pytest.fixture
def db(settings: Settings, receiver: Receiver, tmp_path: Path) -> Iterator[Database]:
    """A store with one schedule whose verdicts go to the receiver."""
    spec = make_audit(
        tmp_path, items=24, evaluation={"items": 0}, labels={}, targets=["contrast:good-bad"]
    )
    with open_database(settings.database_url, upgrade=True) as database:
        tick.add_schedule(
            database,
            settings,
            name="nightly",
            spec=spec,
            cron="0 3 * * *",
            webhook_url=f"{receiver.url}/hook?token=hidden",
        )
        yield database


def finished(db: Database, settings: Settings) -> str:
    run_id = run_now(db, settings, "nightly")
    run_local(db, run_id, settings)
    return run_id


def skip_waiting(db: Database) -> None:
    with db.begin() as connection:
        connection.execute(update(schedule_fire).values(post_at=0.0))


def test_a_verdict_is_posted_once_signed_and_compared(
    db: Database, settings: Settings, receiver: Receiver
) -> None:
    waiting = run_now(db, settings, "nightly")
    assert deliver(db) == [], "the run is not over"
    run_local(db, waiting, settings)
    with ThreadPoolExecutor(4) as pool:
        taken = list(pool.map(lambda _: deliver(db), range(4)))
    assert sum(map(len, taken)) == len(receiver.posts) == 1
    path, headers, body = receiver.posts[0]
    expected = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
    assert headers["X-TransExplain-Signature"] == f"sha256={expected}"
    assert headers["Idempotency-Key"].startswith("nightly/")
    assert path == "/hook?token=hidden"
    first = json.loads(body)
    assert (first["run"], first["schedule"], first["state"]) == (waiting, "nightly", "done")
    assert first["counts"]["done"] == 24
    assert first["counts"]["accuracy"] is not None
    assert all(one["text"] for one in first["statements"])
    assert first["previous"] is None
    second = finished(db, settings)
    deliver(db)
    document = receiver.documents()[1]
    assert document["run"] == second
    before = document["previous"]
    assert before["run"] == waiting
    assert before["counts"] == first["counts"]
    assert before["flagged"] == first["flagged"] == document["flagged"]
    assert (before["model_changed"], before["data_changed"]) == (False, False)
    assert (before["newly_flagged"], before["no_longer_flagged"]) == ([], [])


@pytest.mark.exhaustive
def test_a_receiver_that_was_away_gets_it_later_under_the_same_key(
    db: Database, settings: Settings, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    receiver.answers = [500, 302]
    finished(db, settings)
    for attempts in (1, 2, 3):
        taken = deliver(db)
        assert deliver(db) == [], "not again at once"
        assert len(receiver.posts) == attempts, "a redirect is not followed"
        assert len(taken) == (attempts == 3)
        skip_waiting(db)
    assert len({headers["Idempotency-Key"] for _, headers, _ in receiver.posts}) == 1
    assert len({body for _, _, body in receiver.posts}) == 1
    assert schedules.fires(db, "nightly")[0].post == "posted"
    for secret in (SECRET, "hidden", "token"):
        assert secret not in caplog.text
    assert "answered 500" in caplog.text


@pytest.mark.exhaustive
def test_a_verdict_is_given_up_after_many_attempts(
    db: Database, settings: Settings, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verdict_posts, "ATTEMPTS", 2)
    receiver.answers = [503] * 5
    finished(db, settings)
    for _ in range(4):
        assert deliver(db) == []
        skip_waiting(db)
    fire = schedules.fires(db, "nightly")[0]
    assert (fire.post, fire.post_attempts) == ("failed", 2)
    assert fire.post_error == f"webhook {receiver.url} answered 503"
    assert len(receiver.posts) == 2


def test_a_verdict_that_cannot_be_made_is_reported_and_given_up(
    db: Database, settings: Settings, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("of a text")

    monkeypatch.setattr(verdict_posts, "verdict", broken)
    finished(db, settings)
    assert deliver(db) == []
    fire = schedules.fires(db, "nightly")[0]
    assert (fire.post, fire.post_error) == (
        "waiting",
        "the verdict could not be made: ZeroDivisionError",
    )
    with db.begin() as connection:  # as if every attempt had died with its process
        connection.execute(update(schedule_fire).values(post_at=0.0, post_attempts=12))
    assert deliver(db) == []
    assert schedules.fires(db, "nightly")[0].post == "failed"
    assert receiver.posts == []


@pytest.mark.exhaustive
def test_a_poster_that_died_after_its_post_repeats_the_key(
    db: Database, settings: Settings, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object) -> None:
        raise SystemExit(1)

    finished(db, settings)
    with monkeypatch.context() as patched:
        patched.setattr(schedules, "posted", die)
        with pytest.raises(SystemExit):
            deliver(db)
    assert deliver(db) == [], "claimed: nobody else posts it meanwhile"
    skip_waiting(db)
    assert len(deliver(db)) == 1
    keys = [headers["Idempotency-Key"] for _, headers, _ in receiver.posts]
    assert len(keys) == 2
    assert len(set(keys)) == 1


def test_without_a_secret_nothing_is_posted(
    db: Database,
    settings: Settings,
    receiver: Receiver,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.delenv(verdict_posts.SECRET)
    finished(db, settings)
    assert deliver(db) == []
    assert receiver.posts == []
    assert verdict_posts.SECRET in (schedules.fires(db, "nightly")[0].post_error or "")
    file = tmp_path / "secret"
    file.write_text(f"{SECRET}\n")
    monkeypatch.setenv(f"{verdict_posts.SECRET}_FILE", str(file))
    skip_waiting(db)
    assert len(deliver(db)) == 1
    body, sent = receiver.posts[0][2], receiver.posts[0][1]["X-TransExplain-Signature"]
    assert sent == verdict_posts.sign(body, SECRET.encode())
    assert SECRET not in (tmp_path / "store.db").read_bytes().decode("latin-1")


def test_an_absent_receiver_is_named_without_its_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with pytest.raises(WebhookError, match=r"http://127.0.0.1:1 cannot be reached") as caught:
        verdict_posts.post("http://127.0.0.1:1/hidden?x=hidden", {}, key=b"k", delivery="d")
    assert "hidden" not in str(caught.value)


def test_a_secret_file_that_is_not_there_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(verdict_posts.SECRET, raising=False)
    monkeypatch.setenv(f"{verdict_posts.SECRET}_FILE", str(tmp_path / "none"))
    with pytest.raises(ConfigurationError, match="_FILE"):
        verdict_posts.secret()
