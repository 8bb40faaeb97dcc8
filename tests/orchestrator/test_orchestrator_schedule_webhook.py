"""Verdicts of scheduled runs at real receivers: signed, once, again where one was away."""

import base64
import hashlib
import hmac
import json
import logging
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from local_receivers import WebReceiver, mail_receiver, web_receiver
from sqlalchemy import update
from tiny_audit import make_audit
from typer.testing import CliRunner

from orchestrator.cli.command_line import app
from orchestrator.dispatch.local import run_local
from orchestrator.schedule import signed_post, tick, verdict_posts
from orchestrator.schedule.tick import run_now
from orchestrator.schedule.verdict_posts import deliver
from transexplain.errors import ConfigurationError, TransExplainError, WebhookError
from transexplain.settings import Settings
from transexplain.store import schedules
from transexplain.store.database import Database
from transexplain.store.revisions import open_database
from transexplain.store.schedules import FireDelivery, Receiver
from transexplain.store.schema import fire_delivery

SECRET = "a very secret key"


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[WebReceiver]:
    monkeypatch.setenv(signed_post.SECRET, SECRET)
    monkeypatch.setenv("TRANSEXPLAIN_WEBHOOK_ALLOW", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with web_receiver() as made:
        yield made


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(
        database_url=f"sqlite:///{tmp_path / 'store.db'}", snapshot_dir=tmp_path / "snapshots"
    )


def add(db: Database, settings: Settings, folder: Path, *receivers: Receiver) -> None:
    """The schedule `nightly` with these receivers."""
    spec = make_audit(
        folder, items=24, evaluation={"items": 0}, labels={}, targets=["contrast:good-bad"]
    )
    tick.add_schedule(
        db, settings, name="nightly", spec=spec, cron="0 3 * * *", receivers=receivers
    )


@pytest.fixture
def store(settings: Settings) -> Iterator[Database]:
    with open_database(settings.database_url, upgrade=True) as database:
        yield database


@pytest.fixture
def db(store: Database, settings: Settings, receiver: WebReceiver, tmp_path: Path) -> Database:
    """A store with one schedule whose verdicts go to the receiver."""
    hook = Receiver(kind="json", address=f"{receiver.url}/hook?token=hidden")
    add(store, settings, tmp_path, hook)
    return store


def made(db: Database) -> FireDelivery:
    """The delivery of the newest fire to the only receiver."""
    (found,) = schedules.fires(db, "nightly")[0].deliveries
    return found


def finished(db: Database, settings: Settings) -> str:
    run_id = run_now(db, settings, "nightly")
    run_local(db, run_id, settings)
    return run_id


def signature(headers: Mapping[str, str], body: bytes) -> str:
    """The signature of the Standard Webhooks specification."""
    signed = f"{headers['Webhook-Id']}.{headers['Webhook-Timestamp']}.".encode() + body
    digest = hmac.new(SECRET.encode(), signed, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(digest).decode()}"


def skip_waiting(db: Database) -> None:
    with db.begin() as connection:
        connection.execute(update(fire_delivery).values(next_at=0.0))


def test_a_verdict_is_posted_once_signed_and_compared(
    db: Database, settings: Settings, receiver: WebReceiver
) -> None:
    waiting = run_now(db, settings, "nightly")
    assert deliver(db) == [], "the run is not over"
    run_local(db, waiting, settings)
    with ThreadPoolExecutor(4) as pool:
        taken = list(pool.map(lambda _: deliver(db), range(4)))
    assert sum(map(len, taken)) == len(receiver.posts) == 1
    path, headers, body = receiver.posts[0]
    assert headers["Webhook-Signature"] == signature(headers, body)
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
    document = json.loads(receiver.posts[1][2])
    assert document["run"] == second
    before = document["previous"]
    assert before["run"] == waiting
    assert before["counts"] == first["counts"]
    assert before["flagged"] == first["flagged"] == document["flagged"]
    assert (before["model_changed"], before["data_changed"]) == (False, False)
    assert (before["newly_flagged"], before["no_longer_flagged"]) == ([], [])


@pytest.mark.exhaustive
def test_a_receiver_that_was_away_gets_it_later_under_the_same_key(
    db: Database, settings: Settings, receiver: WebReceiver, caplog: pytest.LogCaptureFixture
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
    assert made(db).state == "posted"
    for secret in (SECRET, "hidden", "token"):
        assert secret not in caplog.text
    assert "answered 500" in caplog.text


@pytest.mark.exhaustive
def test_a_verdict_is_given_up_after_many_attempts(
    db: Database, settings: Settings, receiver: WebReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verdict_posts, "ATTEMPTS", 2)
    receiver.answers = [503] * 5
    finished(db, settings)
    for _ in range(4):
        assert deliver(db) == []
        skip_waiting(db)
    assert (made(db).state, made(db).attempts) == ("failed", 2)
    assert made(db).error == f"webhook {receiver.url} answered 503"
    assert len(receiver.posts) == 2


@pytest.mark.exhaustive
def test_a_verdict_that_cannot_be_made_is_reported_and_given_up(
    db: Database, settings: Settings, receiver: WebReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("of a text")

    monkeypatch.setattr(verdict_posts, "verdict_of", broken)
    finished(db, settings)
    assert deliver(db) == []
    assert (made(db).state, made(db).error) == (
        "waiting",
        "the verdict could not be made: ZeroDivisionError",
    )
    with db.begin() as connection:  # as if every attempt had died with its process
        connection.execute(update(fire_delivery).values(next_at=0.0, attempts=12))
    assert deliver(db) == []
    assert made(db).state == "failed"
    assert receiver.posts == []


@pytest.mark.exhaustive
def test_a_poster_that_died_after_its_post_repeats_the_key(
    db: Database, settings: Settings, receiver: WebReceiver, monkeypatch: pytest.MonkeyPatch
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


@pytest.mark.exhaustive
def test_without_a_secret_nothing_is_posted(
    db: Database,
    settings: Settings,
    receiver: WebReceiver,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.delenv(signed_post.SECRET)
    finished(db, settings)
    assert deliver(db) == []
    assert receiver.posts == []
    assert signed_post.SECRET in (made(db).error or "")
    file = tmp_path / "secret"
    file.write_text(f"{SECRET}\n")
    monkeypatch.setenv(f"{signed_post.SECRET}_FILE", str(file))
    skip_waiting(db)
    assert len(deliver(db)) == 1
    _, headers, body = receiver.posts[0]
    assert headers["Webhook-Signature"] == signature(headers, body)
    assert SECRET not in (tmp_path / "store.db").read_bytes().decode("latin-1")


def test_a_secret_file_that_is_not_there_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(signed_post.SECRET, raising=False)
    monkeypatch.setenv(f"{signed_post.SECRET}_FILE", str(tmp_path / "none"))
    with pytest.raises(ConfigurationError, match="_FILE"):
        signed_post.secret()


@pytest.mark.exhaustive
def test_receivers_of_all_kinds_fail_and_get_it_apart(
    store: Database,
    settings: Settings,
    receiver: WebReceiver,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("TRANSEXPLAIN_SERVE_URL", "https://audits.example")
    monkeypatch.setenv("TRANSEXPLAIN_SMTP_FROM", "audits@c.example")
    with web_receiver() as gone, web_receiver() as slack, mail_receiver() as mail:
        monkeypatch.setenv("TRANSEXPLAIN_SMTP_URL", f"smtp://127.0.0.1:{mail.port}")
        gone.answers, mail.answers = [410], ["451 later"]
        add(
            store,
            settings,
            tmp_path,
            Receiver(kind="teams", address=f"{gone.url}/hidden-1"),
            Receiver(kind="slack", address=f"{slack.url}/hidden-2"),
            Receiver(kind="email", address="ann@b.example"),
            Receiver(kind="json", address=f"{receiver.url}/hidden-3"),
        )
        run_id = finished(store, settings)
        assert [one.number for one in deliver(store)] == [2, 4]
        assert deliver(store) == [], "not again at once"
        skip_waiting(store)
        assert [one.number for one in deliver(store)] == [3]
        skip_waiting(store)
        assert deliver(store) == []
    assert [len(one.posts) for one in (gone, slack, receiver)] == [1, 1, 1]
    assert len(mail.messages) == 1
    states = [(one.state, one.attempts) for one in schedules.fires(store, "nightly")[0].deliveries]
    assert states == [("failed", 1), ("posted", 1), ("posted", 2), ("posted", 1)]
    assert schedules.fires(store, "nightly")[0].deliveries[0].error == (
        f"webhook {gone.url} answered 410"
    )
    keys = {posts[0][1]["Idempotency-Key"] for posts in (gone.posts, slack.posts, receiver.posts)}
    assert len(keys) == 3
    for path, headers, body in (*gone.posts, *slack.posts):
        assert headers["Webhook-Signature"] == signature(headers, body)
        assert run_id in body.decode() and f"https://audits.example/runs/{run_id}" in body.decode()
        assert path.startswith("/hidden")
        assert "Flagged groups: 0. 24 of 24 items explained, 0 failed." in body.decode()
    assert f"https://audits.example/runs/{run_id}".encode() in mail.messages[0][0]
    assert "hidden" not in caplog.text
    assert "ann@b.example" not in caplog.text


def test_who_refuses_for_good_is_asked_once_and_the_list_says_why(
    db: Database, settings: Settings, receiver: WebReceiver
) -> None:
    receiver.answers = [404]
    finished(db, settings)
    assert deliver(db) == []
    skip_waiting(db)
    assert deliver(db) == []
    assert len(receiver.posts) == 1
    for verb in (("list",), ("show", "nightly")):
        words = ["schedule", *verb, "--db", settings.database_url]
        printed = CliRunner().invoke(app, words).stdout
        said = f"receiver 1 failed after 1 attempt: webhook {receiver.url} answered 404"
        assert said in printed
        assert "hidden" not in printed
    (document,) = json.loads(
        CliRunner()
        .invoke(app, ["schedule", "list", "--json", "--db", settings.database_url])
        .stdout
    )
    assert document["fires"][0]["post"] == "failed"
    assert document["fires"][0]["deliveries"][0]["attempts"] == 1


@pytest.mark.exhaustive
def test_a_private_receiver_waits_for_the_setting(
    db: Database, settings: Settings, receiver: WebReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TRANSEXPLAIN_WEBHOOK_ALLOW")
    finished(db, settings)
    assert deliver(db) == []
    assert made(db).state == "waiting"
    assert "TRANSEXPLAIN_WEBHOOK_ALLOW=127.0.0.1" in (made(db).error or "")
    assert receiver.posts == []
    monkeypatch.setenv("TRANSEXPLAIN_WEBHOOK_ALLOW", "127.0.0.0/8")
    skip_waiting(db)
    assert len(deliver(db)) == 1


def waits(attempts: int, error: TransExplainError) -> list[float | None]:
    return [verdict_posts._wait(attempts, error) for _ in range(50)]


def test_waits_grow_and_vary_and_heed_what_a_receiver_asks_for() -> None:
    away = WebhookError("answered 503")
    for attempts in range(1, 12):
        found = [one for one in waits(attempts, away) if one is not None]
        usual = 30 * 2 ** (attempts - 1)
        assert len(found) == 50 and len(set(found)) > 1
        assert 0.8 * usual <= min(found) <= max(found) <= 1.2 * usual
    assert waits(12, away) == [None] * 50
    assert set(waits(1, WebhookError("answered 429", wait=100.0))) == {100.0}
    assert min(filter(None, waits(4, WebhookError("answered 429", wait=100.0)))) > 100.0
    assert set(waits(1, WebhookError("answered 503", wait=1e9))) == {6 * 3600.0}
    assert waits(1, WebhookError("answered 410", final=True, wait=5.0)) == [None] * 50
    assert None not in waits(1, ConfigurationError("no secret"))


@pytest.mark.exhaustive
def test_retry_after_holds_a_delivery_back(
    db: Database, settings: Settings, receiver: WebReceiver
) -> None:
    receiver.answers, receiver.headers = [429], {"Retry-After": "5000"}
    finished(db, settings)
    assert deliver(db) == []
    at = made(db).next_at
    assert at is not None
    assert 4_900 < at - schedules.now(db) <= 5_000


def test_a_test_message_goes_to_every_receiver_and_says_what_each_answered(
    store: Database,
    settings: Settings,
    receiver: WebReceiver,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("TRANSEXPLAIN_SMTP_FROM", "audits@c.example")
    words = ["schedule", "test", "nightly", "--db", settings.database_url]
    with mail_receiver() as mail:
        monkeypatch.setenv("TRANSEXPLAIN_SMTP_URL", f"smtp://127.0.0.1:{mail.port}")
        hooks = [
            Receiver(kind=kind, address=f"{receiver.url}/hidden")
            for kind in ("json", "slack", "teams")
        ]
        add(store, settings, tmp_path, *hooks, Receiver(kind="email", address="ann@b.example"))
        first = CliRunner().invoke(app, words)
        receiver.answers = [204, 403]
        second = CliRunner().invoke(app, words)
    assert first.exit_code == 0, first.output
    assert first.stdout.splitlines() == [
        f"receiver 1, json, {receiver.url}: answered 204",
        f"receiver 2, slack, {receiver.url}: answered 204",
        f"receiver 3, teams, {receiver.url}: answered 204",
        f"receiver 4, email, ann@b.example: accepted by mail server 127.0.0.1:{mail.port}",
    ]
    assert second.exit_code == 4
    lines = second.stdout.splitlines()
    assert lines[1].endswith(f"failed: webhook {receiver.url} answered 403")
    assert [("failed" in line) for line in lines] == [False, True, False, False]
    assert json.loads(receiver.posts[0][2])["test"] is True
    assert b"test message" in mail.messages[0][0]
    assert len({headers["Idempotency-Key"] for _, headers, _ in receiver.posts}) == 6
    assert schedules.fires(store, "nightly") == []


def test_a_schedule_without_receivers_has_nothing_to_test(
    store: Database, settings: Settings, tmp_path: Path
) -> None:
    add(store, settings, tmp_path)
    with pytest.raises(ConfigurationError, match="--webhook and --email"):
        verdict_posts.send_trial(schedules.get(store, "nightly"))
