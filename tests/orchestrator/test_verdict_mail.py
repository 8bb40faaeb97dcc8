"""Verdicts by e-mail at a real server: encrypted, logged in, refused for a while or for good."""

import email
import logging
from dataclasses import replace
from email.message import EmailMessage
from email.policy import default
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from local_receivers import Certificate, mail_receiver, make_certificate

from orchestrator.schedule import notices
from orchestrator.schedule.notices import Notice, message_of, send, server_of_environment
from transexplain.errors import ConfigurationError, TransExplainError, WebhookError

NOTICE = Notice(
    title="Audit <b>nightly</b>: done",
    sentences=("Two groups differ & more.",),
    lists=(("Flagged groups (1)", ("<script>x</script> for hired",)),),
    counts="24 of 25 items explained, 1 failed.",
    link="https://audits.example/runs/r1",
    source="Schedule nightly, run r1",
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
        said = send(TO, NOTICE, "abc")
        send(TO, NOTICE, "abc")
    assert said == f"accepted by mail server 127.0.0.1:{server.port}"
    first, second = (parsed(content) for content, _, _ in server.messages)
    assert first["To"] == TO
    assert first["From"] == f"TransExplain <{FROM}>"
    assert first["Subject"] == (
        "TransExplain: Audit <b>nightly</b>: done. Two groups differ & more."
    )
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
        send(TO, NOTICE, "abc")
        ((_, encrypted, user),) = server.messages
        assert (encrypted, user) == (True, "me@c.example")
        use(monkeypatch, url.replace("pass%2Fword", "wrongword"))
        with pytest.raises(WebhookError, match="refused the login: 535") as caught:
            send(TO, NOTICE, "abc")
    assert not caught.value.final, "the environment can be put right"
    assert "wrongword" not in str(caught.value) + caplog.text
    assert len(server.messages) == 1


def test_a_certificate_that_nobody_vouches_for_is_refused(
    monkeypatch: pytest.MonkeyPatch, certificate: Certificate
) -> None:
    with mail_receiver(certificate) as server:
        use(monkeypatch, f"smtp://127.0.0.1:{server.port}", STARTTLS="required")
        with pytest.raises(WebhookError, match=r"certificate is not valid.*TRANSEXPLAIN_SMTP_CA"):
            send(TO, NOTICE, "abc")
    assert server.messages == []


def test_without_starttls_nothing_is_said_where_it_is_required(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with mail_receiver(login=("me", "password")) as server:
        url = f"smtp://me:password@127.0.0.1:{server.port}"
        use(monkeypatch, url, STARTTLS="required")
        with pytest.raises(WebhookError, match=r"STARTTLS.*TRANSEXPLAIN_SMTP_STARTTLS=off"):
            send(TO, NOTICE, "abc")
        assert server.messages == []
        use(monkeypatch, url, STARTTLS="off")
        send(TO, NOTICE, "abc")
    assert [user for _, _, user in server.messages] == ["me"]


def test_tls_from_the_first_byte(monkeypatch: pytest.MonkeyPatch, certificate: Certificate) -> None:
    with mail_receiver(certificate, at_once=True, login=("me", "password")) as server:
        url = f"smtps://me:password@127.0.0.1:{server.port}"
        use(monkeypatch, url, CA=str(certificate.path))
        send(TO, NOTICE, "abc")
        assert [user for _, _, user in server.messages] == ["me"]
    with mail_receiver() as plain:
        use(monkeypatch, f"smtps://127.0.0.1:{plain.port}", CA=str(certificate.path))
        with pytest.raises(WebhookError, match="cannot be reached"):
            send(TO, NOTICE, "abc")
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
            send(TO, NOTICE, "abc")
        assert caught.value.final == final
        send(TO, NOTICE, "abc")
    assert len(server.messages) == 1


def test_an_absent_server_is_named_without_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, "smtp://me:secretword@127.0.0.1:1")
    with pytest.raises(WebhookError, match=r"mail server 127\.0\.0\.1:1 cannot") as caught:
        send(TO, NOTICE, "abc")
    assert not caught.value.final
    assert "secretword" not in str(caught.value)


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
    ("url", "printed"),
    [
        ("http://h", "write smtp://"),
        ("h:25", "cannot be read"),
        ("smtp://", "names no host"),
        ("smtp://me:p@sekretword@h", "percent-encode"),
        ("smtp://me:p/sekretword@h", "percent-encode"),
        ("smtp://h/path", "leave out"),
        ("smtp://h?starttls=off", "leave out"),
        ("smtp://h:0", "port"),
        ("smtp://me:p%C3%BCsekretword@h", "ASCII"),
    ],
)
def test_servers_that_cannot_be(monkeypatch: pytest.MonkeyPatch, url: str, printed: str) -> None:
    use(monkeypatch, url)
    with pytest.raises(ConfigurationError, match=printed) as caught:
        server_of_environment()
    assert "sekretword" not in str(caught.value)


def test_wrong_settings_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, "smtp://h", STARTTLS="yes")
    with pytest.raises(ConfigurationError, match="STARTTLS='yes' is none of auto"):
        server_of_environment()
    use(monkeypatch, "smtp://127.0.0.1:1", STARTTLS="off", FROM="Ann <ann@b.example>")
    with pytest.raises(ConfigurationError, match="TRANSEXPLAIN_SMTP_FROM: e-mail address"):
        send(TO, NOTICE, "abc")
    monkeypatch.delenv("TRANSEXPLAIN_SMTP_FROM")
    with pytest.raises(ConfigurationError, match="set TRANSEXPLAIN_SMTP_FROM"):
        send(TO, NOTICE, "abc")
    use(monkeypatch, "smtp://127.0.0.1:1", FROM=FROM, CA="/nowhere/ca.pem")
    with pytest.raises(TransExplainError, match="TRANSEXPLAIN_SMTP_CA"):
        send(TO, NOTICE, "abc")


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
        send(address, NOTICE, "abc")


def test_addresses_that_can_be() -> None:
    for address in ("ann@b.example", "a.b+c_d@mail.b-c.example", "root@localhost", "o'neil@b.org"):
        notices.check_address(address)


@given(st.text(st.characters(), max_size=300))
def test_no_text_makes_a_header(text: str) -> None:
    notice = replace(NOTICE, title=f"{text}\r\nBcc: bob@b.example", sentences=(text,), source=text)
    content = message_of(notice, to=TO, sent_from=FROM, identity="abc").as_bytes()
    found = parsed(content)
    assert sorted(found.keys()) == [
        *("Auto-Submitted", "Content-Type", "Date", "From", "MIME-Version", "Message-ID"),
        *("Subject", "To"),
    ]
    assert max(map(len, content.splitlines())) <= 998
    assert content.isascii()
