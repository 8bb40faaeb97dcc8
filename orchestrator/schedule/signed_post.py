"""A signed POST to a webhook: the address it may go to, its signature, and its answer."""

import base64
import hashlib
import hmac
import http.client
import os
import socket
import ssl
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from typing import Any
from urllib.parse import unquote
from urllib.request import getproxies, proxy_bypass

from transexplain import settings
from transexplain.errors import ConfigurationError, WebhookError
from transexplain.text.addresses import (
    HIDDEN,
    Address,
    check_server,
    read_address,
    read_path_address,
    shown_url,
)

ALLOW = "TRANSEXPLAIN_WEBHOOK_ALLOW"
_Ip = IPv4Address | IPv6Address
#: prefixes under which an IPv4 address is written as IPv6 and reached as IPv4
_TRANSLATED = IPv6Network("64:ff9b::/96")
#: public by its number, and answered by the host that a machine in Azure runs on
_OF_CLOUDS = frozenset((IPv4Address("168.63.129.16"),))
#: what registries of IANA keep from the public, and some versions of Python call global: shared by
#: a provider's users, for protocols, relays of tunnels (6to4), tunnels, documentation
_SPECIAL: tuple[IPv4Network | IPv6Network, ...] = (
    *map(IPv4Network, ("100.64.0.0/10", "192.0.0.0/24", "192.88.99.0/24")),
    *map(IPv6Network, ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")),
)
#: the public addresses of IPv6 all lie in here
_GLOBAL_UNICAST = IPv6Network("2000::/3")
_KINDS = (
    ("is_loopback", "this machine's own"),
    ("is_link_local", "link-local, where clouds have their metadata"),
    ("is_multicast", "a multicast address"),
    ("is_unspecified", "no address of a machine"),
)


def _allowed() -> tuple[list[IPv4Network | IPv6Network], set[str]]:
    """Networks and names of hosts that the environment allows in addition to public addresses.

    Raises ConfigurationError where it says anything else.
    """
    networks: list[IPv4Network | IPv6Network] = []
    names: set[str] = set()
    for network in filter(None, map(str.strip, os.environ.get(ALLOW, "").split(","))):
        try:
            networks.append(ip_network(network))
        except ValueError:
            if not network.isascii() or set(network) & set("/:* "):
                raise ConfigurationError(
                    f"{ALLOW}: {network!r} is no address, network or name of a host; write "
                    "10.0.0.0/8, 192.168.1.7 or hooks.internal, apart by commas"
                ) from None
            names.add(_plain(network))
    return networks, names


def refusal(host: str, address: str) -> str | None:
    """The reason against a host at a numeric address; None: it is public, or allowed.

    Raises ConfigurationError where the environment does not say what it allows.
    """
    ip, (networks, names) = _unwrapped(ip_address(address.partition("%")[0])), _allowed()
    what = not_public(ip)
    if what is None or _plain(host) in names or any(ip in network for network in networks):
        return None
    at = f"{host} is" if str(ip) == host else f"{host} is at {ip},"
    return (
        f"{at} {what}; nothing is posted there unless the environment allows it: "
        f"{ALLOW}={ip if _is_ip(host) else f'{ip} or {ALLOW}={host}'}"
    )


def not_public(ip: _Ip) -> str | None:
    """The kind of an address that is not public; None: it is public."""
    for attribute, what in _KINDS:
        if getattr(ip, attribute):
            return what
    if ip in _OF_CLOUDS:
        return "where a cloud answers its own machines"
    outside = isinstance(ip, IPv6Address) and ip not in _GLOBAL_UNICAST
    public = ip.is_global and not outside and not any(ip in network for network in _SPECIAL)
    return None if public else "a private or reserved address"


def check_written(host: str, what: str) -> None:
    """Raise ConfigurationError, beginning with `what`, for a host that is private as it is written.

    Names are not looked up: where they lead is checked at every post.
    """
    local = _plain(host) == "localhost"
    if (_is_ip(host) or local) and (reason := refusal(host, "127.0.0.1" if local else host)):
        raise ConfigurationError(f"{what}: {reason}")


def check_resolved(host: str, port: int, what: str) -> None:
    """Check as `check_written`, and a name that this machine resolves to private addresses only.

    For posts by a proxy, which looks the name up again: a name that is unknown here may pass.
    """
    check_written(host, what)
    try:
        places = _look_up(host, port)
    except OSError:
        return
    _choose(host, places, what)


def connect(host: str, port: int, timeout: float, what: str) -> socket.socket:
    """A connection to an allowed address of a host within `timeout` seconds for all of them.

    Raises ConfigurationError, beginning with `what`, where no address of it is allowed, OSError
    where none can be reached.
    """
    failed: OSError = OSError("no address")
    until = time.monotonic() + timeout
    for family, place in _choose(host, _look_up(host, port), what):
        left = until - time.monotonic()
        if left <= 0:
            break
        connection = socket.socket(family, socket.SOCK_STREAM)
        connection.settimeout(left)
        try:
            connection.connect(place)
        except OSError as error:
            connection.close()
            failed = error
        else:
            connection.settimeout(timeout)
            return connection
    raise failed


_Place = tuple[socket.AddressFamily, tuple[str, int] | tuple[str, int, int, int]]


def _look_up(host: str, port: int) -> list[_Place]:
    places = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [(family, place) for family, _, _, _, place in places if isinstance(place[0], str)]


def _choose(host: str, places: list[_Place], what: str) -> list[_Place]:
    refusals = [refusal(host, address[0]) for _, address in places]
    chosen = [place for place, reason in zip(places, refusals, strict=True) if reason is None]
    if refusals and not chosen:
        raise ConfigurationError(f"{what}: {refusals[0]}")
    return chosen


def _unwrapped(ip: _Ip) -> _Ip:
    """The IPv4 address that an IPv6 one stands for."""
    if isinstance(ip, IPv6Address):
        if ip.ipv4_mapped is not None:
            return ip.ipv4_mapped
        if ip in _TRANSLATED:
            return IPv4Address(int(ip) & 0xFFFFFFFF)
    return ip


def _plain(host: str) -> str:
    return host.lower().removesuffix(".")


def _is_ip(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


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
    """Check as `check`, and a host that is private as it is written and not allowed."""
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
    """The value of `Webhook-Signature`: HMAC-SHA256 in Base64.

    Signed are identity, moment and body, joined by dots.

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
    """A connection as `_Direct`, by TLS, the certificate checked against the name."""

    default_port = 443

    def connect(self) -> None:
        super().connect()
        self.sock = ssl.create_default_context().wrap_socket(self.sock, server_hostname=self.host)


_Way = tuple[http.client.HTTPConnection, str, dict[str, str]]


def _way(address: Address, what: str) -> _Way:
    """The connection to an address or to the proxy before it, the request's target, and headers."""
    scheme = address.scheme.lower()
    port = int(address.port or _PORTS[scheme])
    query = f"?{address.query}" if address.query is not None else ""
    target = f"{address.path or '/'}{query}"
    proxy = getproxies().get(scheme)
    if proxy and not proxy_bypass(address.place):
        check_resolved(address.host, port, what)
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
    connection = (_DirectTls if scheme == "https" else _Direct)(address.host, port, timeout=TIMEOUT)
    connection.what = what
    return connection, target, {}
