"""One signed post: what is signed, what an answer means, and how long it may take."""

import re
import socket
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from local_receivers import WebReceiver, make_certificate, web_receiver

from orchestrator.schedule import signed_post
from orchestrator.schedule.signed_post import ALLOW, check_written, is_public, post, refusal
from transexplain.errors import ConfigurationError, WebhookError

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "schedules.md"
KEY = b"a very secret key"
KEYS: dict[str, Any] = {"body": b"{}", "delivery": "d"}


@pytest.fixture
def loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRANSEXPLAIN_WEBHOOK_ALLOW", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture
def receiver(loopback: None) -> Iterator[WebReceiver]:
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
    assert post(f"{receiver.url}/hook", b'{"a":1}', delivery="n/1.000") == "answered 204"
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
    post(receiver.url, b"{}", delivery="n/1.000")
    now = time.time()
    monkeypatch.setattr("time.time", lambda: now + 60)
    post(receiver.url, b"{}", delivery="n/1.000")
    first, second = (headers for _, headers, _ in receiver.posts)
    same = ("Webhook-Id", "Idempotency-Key")
    assert [first[name] for name in same] == [second[name] for name in same]
    assert re.fullmatch("[0-9a-f]{32}", first["Webhook-Id"])
    assert int(second["Webhook-Timestamp"]) - int(first["Webhook-Timestamp"]) in (59, 60, 61)
    assert first["Webhook-Signature"] != second["Webhook-Signature"]


REFUSALS = (400, 401, 403, 404, 410, 405, 413, 422)


@pytest.mark.parametrize("status", [*REFUSALS, 302, 307, 408, 409, 425, 429, 500, 502, 503, 504])
def test_refusals_for_good_and_for_a_while(receiver: WebReceiver, status: int) -> None:
    receiver.answers = [status]
    with pytest.raises(WebhookError, match=f"answered {status}") as caught:
        post(receiver.url, **KEYS)
    assert (caught.value.final, caught.value.wait) == (status in REFUSALS, None)
    assert len(receiver.posts) == 1, "a redirect is not followed"


def asked(receiver: WebReceiver, text: str) -> float | None:
    receiver.answers, receiver.headers = [503], {"Retry-After": text}
    with pytest.raises(WebhookError) as caught:
        post(receiver.url, **KEYS)
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
    with pytest.raises(WebhookError):
        post(receiver.url, **KEYS)
    assert len(receiver.posts) == 1


def test_by_tls_the_certificate_is_checked(
    loopback: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    certificate = make_certificate(tmp_path)
    with web_receiver(certificate.of_server) as receiver:
        with pytest.raises(WebhookError):
            post(receiver.url, **KEYS)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate.path))
        assert post(receiver.url, **KEYS) == "answered 204"
    assert len(receiver.posts) == 1


REFUSED = [
    *("127.0.0.1", "127.8.9.1", "0.0.0.0", "10.1.2.3", "172.16.0.1", "172.31.255.255"),
    *("192.168.0.1", "169.254.169.254", "169.254.0.1", "100.64.0.1", "100.127.255.254"),
    *("100.100.100.200", "168.63.129.16", "192.0.0.192", "192.0.2.1", "198.18.0.1"),
    *("198.51.100.7", "203.0.113.9", "224.0.0.1", "239.255.255.250", "240.0.0.1"),
    *("255.255.255.255", "::", "::1", "::127.0.0.1", "fe80::1", "fec0::1", "fc00::1"),
    *("fd00:ec2::254", "ff02::1", "ff0e::1", "2001:db8::1", "2001::1", "2002:7f00:1::"),
    *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "64:ff9b::7f00:1"),
    *("64:ff9b::10.0.0.1", "64:ff9b:1::1", "100::1", "4000::1"),
    # the rest of IANA's registries of special addresses
    *("192.0.0.8", "192.0.0.9", "192.0.0.170", "192.88.99.1", "192.88.99.2", "0.1.2.3"),
    *("198.19.255.255", "64:ff9b::192.88.99.1", "::ffff:192.88.99.1", "100:0:0:1::1"),
    *("2001:1::1", "2001:2::1", "2001:3::1", "2001:4:112::1", "2001:10::1", "2001:20::1"),
    *("2001:30::1", "2001:1ff:ffff::1", "3fff::1", "3fff:fff:ffff::1", "5f00::1", "e000::1"),
]
PUBLIC = ["1.1.1.1", "8.8.8.8", "93.184.216.34", "100.63.0.1", "100.128.0.1", "172.32.0.1"]
PUBLIC += ["2606:4700::1111", "2a00:1450:4001::5", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8"]
PUBLIC += ["192.88.98.255", "192.88.100.0", "192.0.1.1", "192.31.196.1", "192.52.193.1"]
PUBLIC += ["192.175.48.1", "2001:200::1", "2001:4860:4860::8888", "2620:4f:8000::1", "3ffe::1"]


@pytest.fixture(autouse=True)
def direct(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", ALLOW):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(signed_post.SECRET, KEY.decode())


def resolve(monkeypatch: pytest.MonkeyPatch, names: dict[str, list[list[str]]]) -> list[str]:
    """Have names resolve to addresses, at each look-up to the next; returns the look-ups."""
    asked: list[str] = []
    real = socket.getaddrinfo

    def look_up(host: str, port: int, *more: Any, **keys: Any) -> list[Any]:
        if host not in names:
            return real(host, port, *more, **keys)
        asked.append(host)
        found = names[host].pop(0)
        return [one for address in found for one in real(address, port, **keys)]

    monkeypatch.setattr(signed_post.socket, "getaddrinfo", look_up)
    return asked


@pytest.mark.parametrize("address", [*REFUSED, *PUBLIC, "fe80::1%eth0"])
def test_addresses_that_are_not_public_are_refused(address: str) -> None:
    reason = refusal("h", address)
    assert reason is None if address in PUBLIC else ALLOW in str(reason)


@given(st.ip_addresses(v=4))
def test_an_ipv4_address_counts_the_same_however_it_is_written(address: Any) -> None:
    mapped, translated = f"::ffff:{address}", f"64:ff9b::{address}"
    found = [refusal("h", one) for one in (str(address), mapped, translated)]
    assert len(set(found)) == 1
    if address.is_private or address.is_multicast:
        assert not is_public(ip_address(str(address)))


def test_what_the_environment_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ALLOW, " 10.0.0.0/8, fd00::/8,Hooks.Internal ,192.168.1.7")
    for host, address in (
        *(("h", "10.9.8.7"), ("h", "::ffff:10.9.8.7"), ("h", "fd12::1"), ("h", "192.168.1.7")),
        *(("hooks.internal", "127.0.0.1"), ("HOOKS.internal.", "::1")),
    ):
        assert refusal(host, address) is None
    for host, address in (
        *(("h", "11.0.0.0"), ("h", "192.168.1.8"), ("xhooks.internal", "127.0.0.1")),
        *(("hooks.internal.example", "127.0.0.1"), ("h", "fc00::1")),
    ):
        refused = refusal(host, address)
        assert (refused is None) == (address == "11.0.0.0"), "public"


@pytest.mark.parametrize("wrong", ["10.0.0.0/33", "10.0.0.1/8", "*.internal", "a b", "h:80", "hö"])
def test_what_the_environment_cannot_say(monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    monkeypatch.setenv(ALLOW, f"10.0.0.0/8,{wrong}")
    with pytest.raises(ConfigurationError, match=ALLOW):
        refusal("h", "1.1.1.1")


def test_an_address_as_it_is_written_is_checked_without_a_look_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(signed_post.socket, "getaddrinfo", None)
    for host in ("127.0.0.1", "::1", "localhost", "LOCALHOST."):
        with pytest.raises(ConfigurationError, match=f"webhook x: .*{ALLOW}="):
            check_written(host, "webhook x")
    check_written("hooks.example", "webhook x")
    check_written("1.1.1.1", "webhook x")
    monkeypatch.setenv(ALLOW, "localhost,::1")
    check_written("localhost", "webhook x")
    check_written("::1", "webhook x")


def test_nothing_is_sent_to_a_private_address_unless_it_is_allowed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    resolve(monkeypatch, {"inside.example": [["127.0.0.1"]] * 9})
    with web_receiver() as receiver:
        port = receiver.url.rpartition(":")[2]
        urls = [f"http://{host}:{port}/hook" for host in ("127.0.0.1", "inside.example", "0x7f.1")]
        for url in (*urls, f"http://localhost:{port}/", f"http://[::ffff:127.0.0.1]:{port}/"):
            with pytest.raises(ConfigurationError, match=f"{ALLOW}=") as caught:
                post(url, **KEYS)
            assert "hook" not in str(caught.value).replace("webhook", "")
        assert receiver.posts == []
        monkeypatch.setenv(ALLOW, "inside.example")
        assert post(urls[1], **KEYS) == "answered 204"
        with pytest.raises(ConfigurationError):
            post(urls[0], **KEYS)
        assert len(receiver.posts) == 1
        assert receiver.posts[0][1]["Host"] == f"inside.example:{port}"


def test_the_address_that_was_checked_is_the_one_that_is_connected_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A name that resolves to another address at every look-up is looked up once."""
    monkeypatch.setenv(ALLOW, "127.0.0.1")
    asked = resolve(monkeypatch, {"turning.example": [["127.0.0.1"], ["127.0.0.2"]]})
    with web_receiver() as receiver:
        url = f"http://turning.example:{receiver.url.rpartition(':')[2]}/"
        assert post(url, **KEYS) == "answered 204"
        assert asked == ["turning.example"]
        with pytest.raises(ConfigurationError, match=r"127\.0\.0\.2"):
            post(url, **KEYS)
        assert len(receiver.posts) == 1


def test_of_several_addresses_only_the_allowed_ones_are_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(ALLOW, "127.0.0.1,127.0.0.3")
    mixed = ["127.0.0.2", "127.0.0.3", "127.0.0.1"]  # refused, nobody listens, the receiver
    resolve(monkeypatch, {"mixed.example": [mixed]})
    with web_receiver() as receiver:
        url = f"http://mixed.example:{receiver.url.rpartition(':')[2]}/"
        assert post(url, **KEYS) == "answered 204"


def test_by_a_proxy_the_name_is_checked_as_far_as_it_is_known_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = {"inside.example": [["10.0.0.1"]], "hooks.example": [["1.1.1.1"]]}
    resolve(monkeypatch, names)
    with web_receiver() as proxy:
        monkeypatch.setenv("no_proxy", "")
        monkeypatch.setenv("http_proxy", proxy.url.replace("://", "://me:pa%24s@"))
        for host in ("inside.example", "127.0.0.1", "localhost"):
            with pytest.raises(ConfigurationError, match=ALLOW):
                post(f"http://{host}/x", **KEYS)
        assert proxy.posts == []
        url = "http://hooks.example/x?y=z"
        assert post(url, **KEYS) == "answered 204"
        ((path, headers, _),) = proxy.posts
        assert (path, headers["Host"]) == (url, "hooks.example")
        assert headers["Proxy-Authorization"] == "Basic bWU6cGEkcw=="
        monkeypatch.setenv("http_proxy", "socks5://me:secret@h:1")
        with pytest.raises(ConfigurationError, match="no http:// address") as caught:
            post("http://1.1.1.1/", **KEYS)
        assert "secret" not in str(caught.value)


def test_a_tunnel_through_a_proxy_that_refuses_it_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with web_receiver() as proxy:
        monkeypatch.setenv("no_proxy", "")
        monkeypatch.setenv("https_proxy", proxy.url)
        with pytest.raises(WebhookError, match=r"https://1\.1\.1\.1"):
            post("https://1.1.1.1/secret", **KEYS)
        assert proxy.posts == [], "CONNECT is not known there"
