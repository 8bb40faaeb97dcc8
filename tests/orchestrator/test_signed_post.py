"""One signed post: what is signed, what an answer means, and how long it may take."""

import json
import re
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
from local_receivers import WebReceiver, make_certificate, web_receiver

from orchestrator.schedule import signed_post
from orchestrator.schedule.signed_post import post
from transexplain.errors import WebhookError

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "schedules.md"
KEY = b"a very secret key"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRANSEXPLAIN_WEBHOOK_ALLOW", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture
def receiver() -> Iterator[WebReceiver]:
    with web_receiver() as made:
        yield made


def check_of_the_page() -> Callable[..., Any]:
    """The function that the page shows to receivers."""
    (block,) = re.findall(r"```python\n(.*?def is_genuine.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(block.splitlines()) <= 12
    found: dict[str, Any] = {}
    exec(compile(block, str(PAGE), "exec"), found)
    check: Callable[..., Any] = found["is_genuine"]
    return check


def test_the_check_of_the_page_takes_what_is_posted_and_nothing_else(
    receiver: WebReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_genuine = check_of_the_page()
    assert post(f"{receiver.url}/hook", b'{"a":1}', key=KEY, delivery="n/1.000") == "answered 204"
    ((_, headers, body),) = receiver.posts
    assert is_genuine(headers, body, KEY)
    assert not is_genuine(headers, body, b"another key")
    assert not is_genuine(headers, body + b" ", KEY)
    for name, value in (
        *(("Webhook-Id", "0" * 32), ("Webhook-Timestamp", str(int(time.time()) + 1))),
        *(("Webhook-Signature", "v1,AAAA"), ("Webhook-Signature", "")),
    ):
        assert not is_genuine(dict(headers.items()) | {name: value}, body, KEY)
    real = time.time
    for seconds in (-400, 400):
        monkeypatch.setattr("time.time", lambda seconds=seconds: real() + seconds)
        assert not is_genuine(headers, body, KEY), "too old, or from a time to come"


def test_every_attempt_is_signed_anew_under_the_same_identity(
    receiver: WebReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    post(receiver.url, b"{}", key=KEY, delivery="n/1.000")
    now = time.time()
    monkeypatch.setattr("time.time", lambda: now + 60)
    post(receiver.url, b"{}", key=KEY, delivery="n/1.000")
    first, second = (headers for _, headers, _ in receiver.posts)
    same = ("Webhook-Id", "Idempotency-Key")
    assert [first[name] for name in same] == [second[name] for name in same]
    assert re.fullmatch("[0-9a-f]{32}", first["Webhook-Id"])
    assert int(second["Webhook-Timestamp"]) - int(first["Webhook-Timestamp"]) in (59, 60, 61)
    assert first["Webhook-Signature"] != second["Webhook-Signature"]


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 405, 413, 422])
def test_refusals_for_good(receiver: WebReceiver, status: int) -> None:
    receiver.answers = [status]
    with pytest.raises(WebhookError, match=f"answered {status}$") as caught:
        post(receiver.url, b"{}", key=KEY, delivery="d")
    assert caught.value.final


@pytest.mark.parametrize("status", [302, 307, 408, 409, 425, 429, 500, 502, 503, 504])
def test_refusals_for_a_while(receiver: WebReceiver, status: int) -> None:
    receiver.answers = [status]
    with pytest.raises(WebhookError, match=f"answered {status}") as caught:
        post(receiver.url, b"{}", key=KEY, delivery="d")
    assert not caught.value.final
    assert caught.value.wait is None
    assert len(receiver.posts) == 1, "a redirect is not followed"


def asked(receiver: WebReceiver, text: str) -> float | None:
    receiver.answers, receiver.headers = [503], {"Retry-After": text}
    with pytest.raises(WebhookError) as caught:
        post(receiver.url, b"{}", key=KEY, delivery="d")
    return caught.value.wait


def test_how_long_a_receiver_asks_to_wait(receiver: WebReceiver) -> None:
    assert asked(receiver, "120") == 120
    assert asked(receiver, "9" * 400) == 999_999_999
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=600), usegmt=True)
    assert 590 < (asked(receiver, date) or 0) <= 600
    assert asked(receiver, "Mon, 01 Jan 2001 00:00:00 GMT") == 0
    for wrong in ("soon", "-5", "1.5", "", "Mon, 99 Jan 9999999999 00:00:00 GMT"):
        assert asked(receiver, wrong) is None, wrong


def test_an_answer_that_trickles_ends_in_time(
    receiver: WebReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every byte comes within the time-out, all of them would take two minutes."""
    monkeypatch.setattr(signed_post, "TIMEOUT", 0.6)
    receiver.drip = 0.12
    with pytest.raises(WebhookError, match="cannot be reached: no answer in time"):
        post(receiver.url, b"{}", key=KEY, delivery="d")
    assert len(receiver.posts) == 1


def test_by_tls_the_certificate_is_checked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    certificate = make_certificate(tmp_path)
    with web_receiver(certificate.of_server) as receiver:
        with pytest.raises(WebhookError, match="its certificate is not valid"):
            post(receiver.url, b"{}", key=KEY, delivery="d")
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate.path))
        assert post(receiver.url, b"{}", key=KEY, delivery="d") == "answered 204"
    assert len(receiver.posts) == 1


def test_an_absent_receiver_is_named_without_its_path() -> None:
    with pytest.raises(WebhookError, match=r"http://127.0.0.1:1 cannot be reached") as caught:
        post("http://127.0.0.1:1/hidden?x=hidden", b"{}", key=KEY, delivery="d")
    assert "hidden" not in str(caught.value)
    assert not caught.value.final
    assert "Connection refused" in str(caught.value)


def test_keys_of_schedules_are_sent_as_they_are(receiver: WebReceiver) -> None:
    post(receiver.url, json.dumps({}).encode(), key=KEY, delivery="night.ly/1764035000.000/2")
    headers = receiver.posts[0][1]
    assert headers["Idempotency-Key"] == "night.ly/1764035000.000/2"
    assert headers["Content-Type"] == "application/json"
    assert headers["User-Agent"] == "transexplain"
