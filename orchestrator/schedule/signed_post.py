"""One signed POST to a webhook: what it is signed with, and what its answer means."""

import base64
import hashlib
import hmac
import http.client
import socket
import ssl
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import unquote
from urllib.request import getproxies, proxy_bypass

from orchestrator.schedule.allowed_addresses import check_resolved, check_written, connect
from transexplain import settings
from transexplain.addresses import (
    HIDDEN,
    Address,
    check_server,
    read_address,
    read_path_address,
    shown_url,
)
from transexplain.errors import ConfigurationError, WebhookError

SECRET = "TRANSEXPLAIN_WEBHOOK_SECRET"
#: the same for every attempt at one delivery, so that a receiver can drop the second
KEY = "Idempotency-Key"
#: the headers of the Standard Webhooks specification: HMAC of identity, moment and body
IDENTITY, MOMENT, SIGNATURE = "Webhook-Id", "Webhook-Timestamp", "Webhook-Signature"
TIMEOUT = 10.0  #: seconds for an attempt, from the connection to the answer
#: answers that stay as they are however often one asks; others may be those of a bad moment
_FINAL = frozenset((400, 401, 403, 404, 405, 406, 410, 411, 413, 414, 415, 422, 431, 451))
_PORTS = {"http": 80, "https": 443}
_BASIC = "Basic"


def check(url: str) -> Address:
    """Raise ConfigurationError for an address that is no http(s) URL, or holds a password."""
    address = read_path_address(url)
    what = f"webhook {shown(url)}"
    if address is None or address.scheme.lower() not in _PORTS:
        raise ConfigurationError(f"{what} is no http:// or https:// address")
    if address.user is not None:
        raise ConfigurationError(
            f"{what}: leave user and password out, they would be stored; posts are signed with "
            f"{SECRET}"
        )
    check_server(address, what, remedy="write https://HOST:PORT/PATH, names of hosts in ASCII")
    return address


def check_new(url: str) -> None:
    """As `check`, and for a host that is private as it is written and not allowed."""
    check_written(check(url).host, f"webhook {shown(url)}")


def shown(url: str) -> str:
    """Scheme and host only: paths and queries of webhooks are often secret."""
    address = read_path_address(url)
    if address is None:
        return HIDDEN
    # an @ further on may end a password whose beginning is read as the port
    clear = address.user is None and "@" not in address.path
    return shown_url(f"{address.scheme}://{address.place if clear else HIDDEN}")


def secret() -> bytes:
    """The signing secret, from the environment or the file that it names.

    Raises ConfigurationError where there is none: an unsigned verdict could be anybody's.
    """
    named = settings.secret("WEBHOOK_SECRET")
    if not named:
        raise ConfigurationError(f"set {SECRET} (or {SECRET}_FILE) to sign what is posted")
    return named.encode()


def identity(delivery: str) -> str:
    """The identity of a delivery without a dot, which parts what is signed."""
    return hashlib.sha256(delivery.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def sign(identity: str, moment: int, body: bytes, key: bytes) -> str:
    """The value of `Webhook-Signature`: HMAC-SHA256 of `identity.moment.body`, in Base64.

    `moment`: seconds since the epoch.
    """
    signed = f"{identity}.{moment}.".encode() + body
    return f"v1,{base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()}"


def post(url: str, body: bytes, *, key: bytes, delivery: str) -> str:
    """Post a JSON document; returns the answer's status.

    Raises WebhookError, which names the host only, unless the answer is 2xx; ConfigurationError
    for an address that is not allowed.
    """
    address = check(url)
    name, moment = identity(delivery), int(time.time())
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "transexplain",
        "Connection": "close",
        KEY: delivery,
        IDENTITY: name,
        MOMENT: str(moment),
        SIGNATURE: sign(name, moment, body, key),
    }
    what = f"webhook {shown(url)}"
    try:
        connection, target, more = _way(address, what)
        status, wait = _answer(connection, target, body, headers | more)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise WebhookError(f"{what} cannot be reached: {_reason(error)}") from None
    if not 200 <= status < 300:
        hint = "; redirects are not followed" if 300 <= status < 400 else ""
        raise WebhookError(f"{what} answered {status}{hint}", final=status in _FINAL, wait=wait)
    return f"answered {status}"


def _reason(error: Exception) -> str:
    """Why, without what a peer sent: that may be anything."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not valid: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS: {error.reason}"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if isinstance(error, OSError) and str(error).startswith("Tunnel connection failed"):
        return "the proxy makes no connection to it"
    return "no answer in time" if isinstance(error, TimeoutError) else type(error).__name__


def _answer(
    connection: http.client.HTTPConnection, target: str, body: bytes, headers: Mapping[str, str]
) -> tuple[int, float | None]:
    """The status of the answer, and the seconds it asks to wait; its body is not read.

    Time-outs of sockets begin anew with every byte, so a watch ends what takes too long.
    """
    over = threading.Event()
    watch = threading.Timer(TIMEOUT, _end, [connection, over])
    watch.daemon = True
    watch.start()
    try:
        connection.request("POST", target, body, dict(headers))
        with connection.getresponse() as answer:
            status, wait = answer.status, _seconds(answer.headers.get("Retry-After"))
        if over.is_set():  # what was read of it until then looks like all of it
            raise TimeoutError
        return status, wait
    except (OSError, http.client.HTTPException):
        if over.is_set():
            raise TimeoutError from None
        raise
    finally:
        watch.cancel()
        connection.close()


def _end(connection: http.client.HTTPConnection, over: threading.Event) -> None:
    over.set()
    if isinstance(connection.sock, socket.socket):
        with suppress(OSError):  # that of the plain socket: TLS would say goodbye and wait
            socket.socket.shutdown(connection.sock, socket.SHUT_RDWR)


def _seconds(text: str | None) -> float | None:
    """Seconds of a `Retry-After`, which is a number or a date; None: neither."""
    if text is None:
        return None
    if text.strip().isascii() and text.strip().isdecimal():
        return float(text.strip()[:9])
    with suppress(ValueError, TypeError, OverflowError):
        until = parsedate_to_datetime(text)
        zoned = until if until.tzinfo else until.replace(tzinfo=UTC)
        return max(0.0, (zoned - datetime.now(UTC)).total_seconds())
    return None


class _Direct(http.client.HTTPConnection):
    """Connects to allowed addresses only."""

    what = "webhook"

    def connect(self) -> None:
        self.sock = connect(self.host, self.port, TIMEOUT, self.what)


class _DirectTls(_Direct):
    """As `_Direct`, by TLS, the certificate checked against the name."""

    default_port = 443

    def connect(self) -> None:
        super().connect()
        self.sock = ssl.create_default_context().wrap_socket(self.sock, server_hostname=self.host)


_Way = tuple[http.client.HTTPConnection, str, dict[str, str]]


def _way(address: Address, what: str) -> _Way:
    """The connection to an address or to the proxy before it, what is asked for, and headers."""
    scheme = address.scheme.lower()
    port = int(address.port or _PORTS[scheme])
    query = f"?{address.query}" if address.query is not None else ""
    target = f"{address.path or '/'}{query}"
    proxy = getproxies().get(scheme)
    if proxy and not proxy_bypass(address.place):
        check_resolved(address.host, port, what)
        return _by_proxy(proxy, address, port, target)
    made = (_DirectTls if scheme == "https" else _Direct)(address.host, port, timeout=TIMEOUT)
    made.what = what
    return made, target, {}


def _by_proxy(proxy: str, address: Address, port: int, target: str) -> _Way:
    """The same by a proxy, whose own address the environment vouches for."""
    written = proxy if "://" in proxy else f"http://{proxy}"
    by = read_address(written)
    if by is None or by.scheme.lower() != "http":
        raise ConfigurationError(
            f"the proxy {shown_url(written)} of the environment is no http:// address"
        )
    check_server(by, f"the proxy {shown_url(written)} of the environment")
    login: dict[str, str] = {}
    if by.user is not None:
        pair = f"{unquote(by.user)}:{unquote(by.password or '')}".encode()
        login = {"Proxy-Authorization": f"{_BASIC} {base64.b64encode(pair).decode()}"}
    place: dict[str, Any] = {"host": by.host, "port": int(by.port or 80), "timeout": TIMEOUT}
    if address.scheme.lower() == "http":
        url = f"http://{address.place}{target}"
        return http.client.HTTPConnection(**place), url, login
    tunnelled = http.client.HTTPSConnection(**place, context=ssl.create_default_context())
    tunnelled.set_tunnel(address.host, port, headers=login)
    return tunnelled, target, {}
