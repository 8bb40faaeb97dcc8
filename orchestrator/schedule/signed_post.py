"""A signed POST to a webhook: the address it may go to, its signature, and its answer."""

import asyncio
import base64
import hashlib
import hmac
import os
import socket
import ssl
import time
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

import httpcore2

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
#: what registries of IANA keep from the public, and some versions of Python call global: shared by
#: a provider's users, for protocols, relays of tunnels (6to4), tunnels, documentation; and the
#: public number by which the host of a machine in Azure answers
_SPECIAL: tuple[IPv4Network | IPv6Network, ...] = (
    *map(IPv4Network, ("100.64.0.0/10", "192.0.0.0/24", "192.88.99.0/24", "168.63.129.16/32")),
    *map(IPv6Network, ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")),
)
#: the public addresses of IPv6 all lie in here
_GLOBAL_UNICAST = IPv6Network("2000::/3")


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
    if is_public(ip) or _plain(host) in names or any(ip in network for network in networks):
        return None
    at = f"{host} is" if str(ip) == host else f"{host} is at {ip},"
    return (
        f"{at} a private or reserved address; nothing is posted there unless the environment "
        f"allows it: {ALLOW}={ip if _is_ip(host) else host}"
    )


def is_public(ip: _Ip) -> bool:
    """Return whether an address is one of the public internet's."""
    if isinstance(ip, IPv6Address) and ip not in _GLOBAL_UNICAST:
        return False
    return ip.is_global and not ip.is_multicast and not any(ip in network for network in _SPECIAL)


def check_written(host: str, what: str) -> None:
    """Raise ConfigurationError, beginning with `what`, for a host that is private as it is written.

    Names are not looked up: where they lead is checked at every post.
    """
    local = _plain(host) == "localhost"
    if (_is_ip(host) or local) and (reason := refusal(host, "127.0.0.1" if local else host)):
        raise ConfigurationError(f"{what}: {reason}")


def _allowed_addresses(host: str, port: int | None, what: str) -> list[str]:
    """The addresses of a host that may be connected to, looked up once.

    Raises ConfigurationError, beginning with `what`, where none of them is allowed.
    """
    places = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    refusals = {str(place[0]): refusal(host, str(place[0])) for *_, place in places}
    allowed = [address for address, reason in refusals.items() if reason is None]
    if not allowed:
        raise ConfigurationError(f"{what}: {next(iter(refusals.values()))}")
    return allowed


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
TIMEOUT = 10.0  #: seconds for an attempt, from the connection to the answer
#: answers that stay as they are however often one asks; others may be those of a bad moment
_FINAL = frozenset((400, 401, 403, 404, 405, 406, 410, 411, 413, 414, 415, 422, 431, 451))
_FAILURES = (
    *(OSError, httpcore2.NetworkError, httpcore2.TimeoutException),
    *(httpcore2.ProtocolError, httpcore2.ProxyError),
)


def check(url: str) -> Address:
    """Raise ConfigurationError for an address that is no http(s) URL, or holds a password."""
    address = read_path_address(url)
    what = f"webhook {shown(url)}"
    if address is None or address.scheme.lower() not in ("http", "https"):
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


def identity(delivery: str) -> str:
    """The identity of a delivery without a dot, which parts what is signed."""
    return hashlib.sha256(delivery.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def post(url: str, body: bytes, *, delivery: str) -> str:
    """Post a JSON document under the key of a delivery; returns the answer's status.

    Raises WebhookError, which names the host only, unless the answer is 2xx; ConfigurationError
    for an address that is not allowed, and without a secret.
    """
    address, what = check(url), f"webhook {shown(url)}"
    try:
        status, wait = asyncio.run(_answer(address, what, body, _headers(body, delivery)))
    except _FAILURES as error:
        raise WebhookError(f"{what} cannot be reached: {_reason(error)}") from None
    if not 200 <= status < 300:
        hint = "; redirects are not followed" if 300 <= status < 400 else ""
        raise WebhookError(f"{what} answered {status}{hint}", final=status in _FINAL, wait=wait)
    return f"answered {status}"


def _headers(body: bytes, delivery: str) -> dict[str, str]:
    """The headers of a post, signed as the Standard Webhooks specification says.

    The signature is the HMAC-SHA256 of identity, moment and body. Identity and key are the same for
    every attempt at one delivery, so that a receiver can drop the second.
    """
    secret = settings.secret("WEBHOOK_SECRET")
    if not secret:  # an unsigned verdict could be anybody's
        raise ConfigurationError(f"set {SECRET} (or {SECRET}_FILE) to sign what is posted")
    name, moment = identity(delivery), int(time.time())
    signed = hmac.digest(secret.encode(), f"{name}.{moment}.".encode() + body, "sha256")
    return {
        "Content-Type": "application/json",
        "User-Agent": "transexplain",
        "Connection": "close",
        "Idempotency-Key": delivery,
        "Webhook-Id": name,
        "Webhook-Timestamp": str(moment),
        "Webhook-Signature": f"v1,{base64.b64encode(signed).decode()}",
    }


def _reason(error: BaseException) -> str:
    """Why, without what a peer sent: that may be anything."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not valid: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS: {error.reason}"
    if isinstance(error, OSError) and error.errno and error.strerror:
        return error.strerror if isinstance(error, socket.gaierror) else os.strerror(error.errno)
    if isinstance(error, httpcore2.ProxyError):
        return "the proxy makes no connection to it"
    if isinstance(error, (TimeoutError, httpcore2.TimeoutException)):
        return "no answer in time"
    inner = error.__cause__ or error.__context__
    return _reason(inner) if inner else type(error).__name__


async def _answer(
    address: Address, what: str, body: bytes, headers: dict[str, str]
) -> tuple[int, float | None]:
    """The status of the answer, and the seconds it asks to wait; its body is not read."""
    query = f"?{address.query}" if address.query is not None else ""
    host = f"[{address.host}]" if ":" in address.host else address.host
    url = httpcore2.URL(
        scheme=address.scheme.lower(),
        host=host,
        port=int(address.port) if address.port else None,
        target=f"{address.path or '/'}{query}",
    )
    proxy = _proxy(address, what)
    pool = httpcore2.AsyncConnectionPool(
        ssl_context=ssl.create_default_context(),
        proxy=proxy,
        network_backend=None if proxy else _AllowedOnly(what),
    )
    # one limit for all of it: time-outs of sockets begin anew with every byte
    async with asyncio.timeout(TIMEOUT), pool:
        extensions = {"sni_hostname": address.host}
        async with pool.stream(
            "POST", url, headers=list(headers.items()), content=body, extensions=extensions
        ) as answer:
            answered = {name.lower(): value.decode("latin-1") for name, value in answer.headers}
            return answer.status, _seconds(answered.get(b"retry-after", ""))


def _seconds(text: str) -> float | None:
    """Seconds of a `Retry-After`, which is a number or a date; None: neither."""
    if text.strip().isascii() and text.strip().isdecimal():
        return float(text.strip()[:9])
    with suppress(ValueError, TypeError, OverflowError):
        until = parsedate_to_datetime(text)
        zoned = until if until.tzinfo else until.replace(tzinfo=UTC)
        return max(0.0, (zoned - datetime.now(UTC)).total_seconds())
    return None


class _AllowedOnly(httpcore2.AnyIOBackend):
    """Connects to the allowed addresses of a host: to those that were checked, by their numbers."""

    def __init__(self, what: str) -> None:
        self._what = what

    async def connect_tcp(
        self, host: str, port: int, *args: Any, **kwargs: Any
    ) -> httpcore2.AsyncNetworkStream:
        failed: Exception = OSError("no address")
        for address in _allowed_addresses(host.strip("[]"), port, self._what):
            try:
                return await super().connect_tcp(address, port, *args, **kwargs)
            except httpcore2.ConnectError as error:
                failed = error
        raise failed


def _proxy(address: Address, what: str) -> httpcore2.Proxy | None:
    """The proxy of the environment before an address; None: there is none.

    A proxy looks the name up again: one that this machine resolves to private addresses only is
    refused here, one that is unknown here may pass.
    """
    proxy = getproxies().get(address.scheme.lower())
    if not proxy or proxy_bypass(address.place):
        return None
    check_written(address.host, what)
    with suppress(OSError):
        _allowed_addresses(address.host, None, what)
    written = proxy if "://" in proxy else f"http://{proxy}"
    by, shown_proxy = read_address(written), f"the proxy {shown_url(written)} of the environment"
    if by is None or by.scheme.lower() != "http":
        raise ConfigurationError(f"{shown_proxy} is no http:// address")
    check_server(by, shown_proxy)
    login = None
    if by.user is not None:
        login = unquote(by.user).encode(), unquote(by.password or "").encode()
    place = httpcore2.URL(scheme="http", host=by.host, port=int(by.port or 80), target="/")
    return httpcore2.Proxy(place, auth=login)
