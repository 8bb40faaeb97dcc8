"""Verdicts of scheduled runs at real receivers: signed, once, again where one was away."""

import base64
import email
import hashlib
import hmac
import json
import logging
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from email.message import EmailMessage
from email.policy import default
from pathlib import Path

import pytest
from fresh_stores import fresh_store
from hypothesis import example, given
from hypothesis import strategies as st
from local_receivers import Certificate, WebReceiver, mail_receiver, make_certificate, web_receiver
from report_samples import ANNS, WORTH, biased_run
from sqlalchemy import update
from tiny_audit import make_audit
from typer.testing import CliRunner

from orchestrator.cli.command_line import app
from orchestrator.dispatch.local import run_here
from orchestrator.schedule import notices, signed_post, tick, verdict_posts
from orchestrator.schedule.notices import (
    Notice,
    message_of,
    notice_of,
    run_link,
    send,
    server_of_environment,
    shortened,
    slack_body,
    teams_body,
)
from orchestrator.schedule.tick import run_now
from orchestrator.schedule.verdict_posts import deliver
from transexplain.analysis.groups.shard_aggregate import ControlResults
from transexplain.errors import ConfigurationError, TransExplainError, WebhookError
from transexplain.reports.summary import summarise
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
    run_here(db, run_id, settings)
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
    run_here(db, waiting, settings)
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
def test_a_verdict_that_cannot_be_made_is_reported_and_given_up(
    db: Database, settings: Settings, receiver: WebReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("of a text")

    monkeypatch.setattr(verdict_posts, "verdict_of", broken)
    finished(db, settings)
    assert deliver(db) == []
    assert made(db).state == "waiting" and "ZeroDivisionError" in str(made(db).error)
    with db.begin() as connection:  # as if every attempt had died with its process
        connection.execute(update(fire_delivery).values(next_at=0.0, attempts=12))
    assert deliver(db) == []
    assert made(db).state == "failed" and receiver.posts == []


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
    keys = {posts[0][1]["Idempotency-Key"] for posts in (gone.posts, slack.posts, receiver.posts)}
    assert len(keys) == 3
    for path, headers, body in (*gone.posts, *slack.posts):
        assert headers["Webhook-Signature"] == signature(headers, body)
        assert run_id in body.decode() and f"https://audits.example/runs/{run_id}" in body.decode()
        assert path.startswith("/hidden")
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
    for words in (("list",), ("show", "nightly"), ("list", "--json")):
        called = ["schedule", *words, "--db", settings.database_url]
        printed = CliRunner().invoke(app, called).stdout
        assert "answered 404" in printed and "hidden" not in printed
    (document,) = json.loads(printed)
    assert document["fires"][0]["post"] == "failed"
    assert document["fires"][0]["deliveries"][0]["attempts"] == 1


def test_waits_grow_and_vary_and_heed_what_a_receiver_asks_for() -> None:
    def waits(attempts: int, error: TransExplainError) -> list[float | None]:
        return [verdict_posts._wait(attempts, error) for _ in range(50)]

    away = WebhookError("answered 503")
    for attempts in range(1, 12):
        pauses = [pause for pause in waits(attempts, away) if pause is not None]
        usual = 30 * 2 ** (attempts - 1)
        assert len(pauses) == 50 and len(set(pauses)) > 1
        assert 0.8 * usual <= min(pauses) <= max(pauses) <= 1.2 * usual
    assert waits(12, away) == [None] * 50
    assert set(waits(1, WebhookError("answered 429", wait=100.0))) == {100.0}
    assert min(filter(None, waits(4, WebhookError("answered 429", wait=100.0)))) > 100.0
    assert set(waits(1, WebhookError("answered 503", wait=1e9))) == {6 * 3600.0}
    assert waits(1, WebhookError("answered 410", final=True, wait=5.0)) == [None] * 50
    assert None not in waits(1, ConfigurationError("no secret"))


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
    receivers = [line.partition(":")[0] for line in first.stdout.splitlines()]
    assert receivers == [
        f"receiver {n}, {k}, http" for n, k in enumerate(("json", "slack", "teams"), 1)
    ] + ["receiver 4, email, ann@b.example"]
    assert second.exit_code == 4
    failed = ["failed" in line for line in second.stdout.splitlines()]
    assert failed == [False, True, False, False]
    assert json.loads(receiver.posts[0][2])["test"] is True
    assert b"test message" in mail.messages[0][0]
    assert len({headers["Idempotency-Key"] for _, headers, _ in receiver.posts}) == 6
    assert schedules.fires(store, "nightly") == []


HOSTILE = "<!channel> <@U1|x> & <https://evil.example|click> *b* _i_ [a](http://evil.example) `c`"
NOTICE = Notice(
    title="Audit nightly: done",
    sentences=("Two groups are explained differently.", "Accuracy is 0.9."),
    lists=(("Flagged groups", ("women for hired", "men for hired")),),
    counts="24 of 25 items explained, 1 failed.",
    link="https://audits.example/runs/r1",
    source="Schedule nightly, run r1",
)
#: of every kind that a text can be made of
TEXTS = st.text(st.characters(), max_size=2_000)


def hostile(text: str, count: int = 3) -> Notice:
    lists = ((text, (text,) * count),) * 3
    return replace(NOTICE, title=text, sentences=(text,) * count, lists=lists, source=text)


def test_slack_gets_blocks_and_a_text_for_notifications() -> None:
    body = json.loads(slack_body(NOTICE))
    assert body["text"].startswith("*Audit nightly: done*\nTwo groups")
    shown = [block["text"]["text"] for block in body["blocks"][:-1]]
    assert shown[2] == ("*Flagged groups*\n\N{BULLET} women for hired\n\N{BULLET} men for hired")
    assert shown[3:] == [NOTICE.counts, "<https://audits.example/runs/r1|Open the run>"]
    assert all(block["text"]["verbatim"] for block in body["blocks"][:-1])
    assert body["blocks"][-1]["elements"][0]["text"] == "Schedule nightly, run r1"


@given(text=TEXTS, count=st.integers(0, 200))
@example(text=HOSTILE, count=3)
def test_bodies_keep_to_the_limits_and_slack_makes_no_mention_or_link(
    text: str, count: int
) -> None:
    json.loads(teams := teams_body(hostile(text, count)))
    assert len(teams) <= 28 * 1024
    body = json.loads(slack_body(hostile(text, count)))
    assert 1 <= len(body["blocks"]) <= 50
    assert len(body["text"]) <= 3_000
    for block in body["blocks"][:-1]:
        shown = block["text"]["text"]
        assert 1 <= len(shown) <= 3_000
        rest = shown.replace("<https://audits.example/runs/r1|Open the run>", "")
        assert "<" not in rest and ">" not in rest
        for entity in ("&amp;", "&lt;", "&gt;"):
            rest = rest.replace(entity, "")
        assert "&" not in rest, "an escape was cut"


def test_teams_gets_one_card_with_texts_that_are_no_markdown() -> None:
    (attachment,) = json.loads(teams_body(hostile(HOSTILE)))["attachments"]
    assert attachment["contentType"] == "application/vnd.microsoft.card.adaptive"
    card = attachment["content"]
    # Markdown is read in TextBlock and Fact, and not in TextRun
    assert {block["type"] for block in card["body"]} == {"RichTextBlock"}
    runs = [run for block in card["body"] for run in block["inlines"]]
    assert {run["type"] for run in runs} == {"TextRun"}
    assert runs[0]["text"] == HOSTILE
    assert [action["url"] for action in card["actions"]] == [NOTICE.link]
    assert b"actions" not in teams_body(replace(NOTICE, link=None))


def test_texts_are_one_line_without_what_terminals_and_browsers_obey() -> None:
    made = shortened(hostile("a\r\n\x1b[2J\u202eb\ud800\u2067c \N{ZERO WIDTH NON-JOINER}"), 50, 2)
    bad = "\N{REPLACEMENT CHARACTER}"
    assert made.title == f"a {bad}[2J{bad}b{bad}{bad}c \N{ZERO WIDTH NON-JOINER}"
    assert made.sentences[-1] == "and 1 more"
    assert len(shortened(hostile("x" * 99), 50, 2).title) == 50


def test_links_lead_to_the_page_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRANSEXPLAIN_SERVE_URL", raising=False)
    assert run_link("r1") is None
    for base in ("https://a.example:8443/audits/", "https://a.example:8443/audits"):
        monkeypatch.setenv("TRANSEXPLAIN_SERVE_URL", base)
        assert run_link("r/1?") == "https://a.example:8443/audits/runs/r%2F1%3F"
    for wrong in (
        "javascript:alert(1)",
        "a.example",
        "https://u:secret@a.example/",
        "https://a/?x",
    ):
        monkeypatch.setenv("TRANSEXPLAIN_SERVE_URL", wrong)
        with pytest.raises(ConfigurationError, match="TRANSEXPLAIN_SERVE_URL") as caught:
            run_link("r1")
        assert "secret" not in str(caught.value)


def test_the_notice_of_a_run_says_what_is_flagged_and_what_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TRANSEXPLAIN_SERVE_URL", raising=False)
    with fresh_store(tmp_path / "store.db") as db:
        with monkeypatch.context() as patch:
            for name in ANNS:
                patch.setitem(WORTH, name, 0.01)
            unbiased = biased_run(db, checked=ControlResults())
        run_id = biased_run(db, previous=unbiased)
        summary = summarise(db, run_id, gallery=0)
        made, alone = notice_of(summary, "nightly"), notice_of(summarise(db, unbiased), "nightly")
    assert made.sentences[0] == summary.verdict.text
    assert len(made.sentences) == len(set(made.sentences)) == 4
    names = tuple(f"{group}: the mention changes the prediction" for group in ("anns", "bobs"))
    assert made.lists == (("Flagged groups", names), ("Newly flagged", names))
    assert re.findall(r"\d+", made.counts) == ["2", "2", "0", "36", "38", "2"]
    assert alone.lists == () and re.findall(r"\d+", alone.counts) == ["0", "36", "38", "2"]
    assert "sample audit" in made.title and made.link is None and run_id in made.source


MAILED = replace(
    NOTICE,
    title="Audit <b>nightly</b>: done",
    sentences=("Two groups differ & more.",),
    lists=(("Flagged groups (1)", ("<script>x</script> for hired",)),),
)
TO, FROM = "ann@b.example", "audits@c.example"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("URL", "URL_FILE", "STARTTLS", "CA"):
        monkeypatch.delenv(f"TRANSEXPLAIN_SMTP_{name}", raising=False)
    monkeypatch.setenv("TRANSEXPLAIN_SMTP_FROM", FROM)


@pytest.fixture
def certificate(tmp_path: Path) -> Certificate:
    return make_certificate(tmp_path)


def use(monkeypatch: pytest.MonkeyPatch, url: str, **more: str) -> None:
    monkeypatch.setenv("TRANSEXPLAIN_SMTP_URL", url)
    for name, value in more.items():
        monkeypatch.setenv(f"TRANSEXPLAIN_SMTP_{name}", value)


def parsed(content: bytes) -> EmailMessage:
    found = email.message_from_bytes(content, policy=default)
    assert isinstance(found, EmailMessage)
    return found


def test_a_local_server_takes_plain_text_and_html(monkeypatch: pytest.MonkeyPatch) -> None:
    with mail_receiver() as server:
        use(monkeypatch, f"smtp://127.0.0.1:{server.port}")
        said = send(TO, MAILED, "abc")
        send(TO, MAILED, "abc")
    assert said == f"accepted by mail server 127.0.0.1:{server.port}"
    first, second = (parsed(content) for content, _, _ in server.messages)
    assert (first["To"], first["From"]) == (TO, f"TransExplain <{FROM}>")
    assert "<b>nightly</b>: done. Two groups differ & more." in first["Subject"]
    assert first["Message-ID"] == second["Message-ID"] == "<abc@c.example>"
    assert first["Auto-Submitted"] == "auto-generated"
    plain, html = (part.get_content().replace("\r", "") for part in first.iter_parts())
    assert "Two groups differ & more.\n" in plain
    assert "- <script>x</script> for hired\n" in plain
    assert "<li>&lt;script&gt;x&lt;/script&gt; for hired</li>" in html
    assert '<a href="https://audits.example/runs/r1">' in html
    assert "<script" not in html and "<b>" not in html


def test_behind_starttls_and_a_login(
    monkeypatch: pytest.MonkeyPatch, certificate: Certificate, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "orchestrator")
    with mail_receiver(certificate, login=("me@c.example", "pass/word")) as server:
        url = f"smtp://me%40c.example:pass%2Fword@127.0.0.1:{server.port}"
        use(monkeypatch, url, STARTTLS="required", CA=str(certificate.path))
        send(TO, MAILED, "abc")
        ((_, encrypted, user),) = server.messages
        assert (encrypted, user) == (True, "me@c.example")
        use(monkeypatch, url.replace("pass%2Fword", "wrongword"))
        with pytest.raises(WebhookError, match="535") as caught:
            send(TO, MAILED, "abc")
    assert not caught.value.final, "the environment can be put right"
    assert "wrongword" not in str(caught.value) + caplog.text
    assert len(server.messages) == 1


def test_without_starttls_nothing_is_said_where_it_is_required(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with mail_receiver(login=("me", "password")) as server:
        url = f"smtp://me:password@127.0.0.1:{server.port}"
        use(monkeypatch, url, STARTTLS="required")
        with pytest.raises(WebhookError, match=r"STARTTLS.*TRANSEXPLAIN_SMTP_STARTTLS=off"):
            send(TO, MAILED, "abc")
        assert server.messages == []
        use(monkeypatch, url, STARTTLS="off")
        send(TO, MAILED, "abc")
    assert [user for _, _, user in server.messages] == ["me"]


def test_tls_from_the_first_byte(monkeypatch: pytest.MonkeyPatch, certificate: Certificate) -> None:
    with mail_receiver(certificate, at_once=True, login=("me", "password")) as server:
        url = f"smtps://me:password@127.0.0.1:{server.port}"
        use(monkeypatch, url, CA=str(certificate.path))
        send(TO, MAILED, "abc")
        assert [user for _, _, user in server.messages] == ["me"]
    with mail_receiver() as plain:
        use(monkeypatch, f"smtps://127.0.0.1:{plain.port}", CA=str(certificate.path))
        with pytest.raises(WebhookError, match="cannot be reached"):
            send(TO, MAILED, "abc")
    assert plain.messages == []


@pytest.mark.parametrize(
    ("answer", "final"),
    [("450 mailbox busy", False), ("421 closing", False), ("550 no such user", True)],
)
@pytest.mark.parametrize("where", ["answers", "data_answers"])
def test_refusals_for_a_while_and_for_good(
    monkeypatch: pytest.MonkeyPatch, answer: str, final: bool, where: str
) -> None:
    with mail_receiver() as server:
        setattr(server, where, [answer])
        use(monkeypatch, f"smtp://127.0.0.1:{server.port}")
        with pytest.raises(WebhookError, match=f"answered {answer}") as caught:
            send(TO, MAILED, "abc")
        assert caught.value.final == final
        send(TO, MAILED, "abc")
    assert len(server.messages) == 1


def test_the_server_of_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"set TRANSEXPLAIN_SMTP_URL \(or"):
        server_of_environment()
    file = tmp_path / "url"
    file.write_text("smtps://me:secretword@mail.example\n")
    monkeypatch.setenv("TRANSEXPLAIN_SMTP_URL_FILE", str(file))
    found = server_of_environment()
    assert (found.host, found.port, found.tls, found.starttls) == ("mail.example", 465, True, False)
    assert (found.user, found.password) == ("me", "secretword")
    assert "secretword" not in repr(found)
    monkeypatch.delenv("TRANSEXPLAIN_SMTP_URL_FILE")
    for host, local in (
        *(("mail.example", False), ("10.0.0.1", False), ("localhost.example", False)),
        *(("localhost", True), ("127.0.0.1", True), ("[::1]", True)),
    ):
        use(monkeypatch, f"smtp://{host}")
        found = server_of_environment()
        assert (found.port, found.tls, found.starttls) == (587, False, not local), host


@pytest.mark.parametrize(
    "url",
    [
        *("http://h", "h:25", "smtp://", "smtp://h/path", "smtp://h?starttls=off", "smtp://h:0"),
        *("smtp://me:p@sekretword@h", "smtp://me:p/sekretword@h", "smtp://me:p%C3%BCsekretword@h"),
    ],
)
def test_servers_that_cannot_be(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    use(monkeypatch, url)
    with pytest.raises(ConfigurationError, match="TRANSEXPLAIN_SMTP_URL") as caught:
        server_of_environment()
    assert "sekretword" not in str(caught.value)


def test_wrong_settings_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, "smtp://h", STARTTLS="yes")
    with pytest.raises(ConfigurationError, match="STARTTLS"):
        server_of_environment()
    use(monkeypatch, "smtp://127.0.0.1:1", STARTTLS="off", FROM="Ann <ann@b.example>")
    with pytest.raises(ConfigurationError, match="TRANSEXPLAIN_SMTP_FROM: e-mail address"):
        send(TO, MAILED, "abc")
    monkeypatch.delenv("TRANSEXPLAIN_SMTP_FROM")
    with pytest.raises(ConfigurationError, match="set TRANSEXPLAIN_SMTP_FROM"):
        send(TO, MAILED, "abc")
    use(monkeypatch, "smtp://127.0.0.1:1", FROM=FROM, CA="/nowhere/ca.pem")
    with pytest.raises(TransExplainError, match="TRANSEXPLAIN_SMTP_CA"):
        send(TO, MAILED, "abc")


@pytest.mark.parametrize(
    "address",
    [
        *("", "ann", "ann@", "@b.example", "ann@b.example, bob@b.example", "ann@b.example\n"),
        *("ann@b.example\r\nBcc: bob@b.example", "Ann <ann@b.example>", '"a b"@b.example'),
        *("ann@b..example", "a..b@b.example", "ann@-b.example", "änn@b.example", "a" * 65 + "@b"),
    ],
)
def test_addresses_that_cannot_be(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match="name@host"):
        notices.check_address(address)
    use(monkeypatch, "smtp://127.0.0.1:1")
    with pytest.raises(ConfigurationError, match="name@host"):  # one that was written past us
        send(address, MAILED, "abc")


@given(st.text(st.characters(), max_size=300))
def test_no_text_makes_a_header(text: str) -> None:
    title = f"{text}\r\nBcc: bob@b.example"
    notice = replace(MAILED, title=title, sentences=(text,), source=text)
    content = message_of(notice, to=TO, sent_from=FROM, identity="abc").as_bytes()
    found = parsed(content)
    assert sorted(found.keys()) == [
        *("Auto-Submitted", "Content-Type", "Date", "From", "MIME-Version", "Message-ID"),
        *("Subject", "To"),
    ]
    assert max(map(len, content.splitlines())) <= 998
    assert content.isascii()
