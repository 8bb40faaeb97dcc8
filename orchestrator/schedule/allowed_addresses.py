"""Which addresses webhooks may be posted to: public ones, and those that the environment allows.

Who may add a schedule could otherwise reach what only this machine reaches: its own services, the
network behind it, the metadata of a cloud. What is checked is the very address that is connected
to, so that a name cannot resolve to a public address first and to another one afterwards.
"""

import os
import socket
import time
from dataclasses import dataclass
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)

from transexplain.errors import ConfigurationError

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


@dataclass(frozen=True, kw_only=True, slots=True)
class Allowed:
    """What the environment allows beside public addresses."""

    networks: tuple[IPv4Network | IPv6Network, ...] = ()
    names: frozenset[str] = frozenset()  #: of hosts, in small letters

    @classmethod
    def from_environment(cls) -> "Allowed":
        """Read addresses, networks and names, apart by commas; raises ConfigurationError."""
        networks, names = [], set()
        for one in filter(None, map(str.strip, os.environ.get(ALLOW, "").split(","))):
            try:
                networks.append(ip_network(one))
            except ValueError:
                if not one.isascii() or "/" in one or ":" in one or "*" in one or " " in one:
                    raise ConfigurationError(
                        f"{ALLOW}: {one!r} is no address, network or name of a host; write "
                        "10.0.0.0/8, 192.168.1.7 or hooks.internal, apart by commas"
                    ) from None
                names.add(_plain(one))
        return cls(networks=tuple(networks), names=frozenset(names))

    def refusal(self, host: str, address: str) -> str | None:
        """What is against a host at a numeric address; None: nothing."""
        found = _unwrapped(ip_address(address.partition("%")[0]))
        what = not_public(found)
        if what is None or _plain(host) in self.names:
            return None
        if any(found in one for one in self.networks):
            return None
        at = f"{host} is" if str(found) == host else f"{host} is at {found},"
        return (
            f"{at} {what}; nothing is posted there unless the environment allows it: "
            f"{ALLOW}={found if _is_ip(host) else f'{found} or {ALLOW}={host}'}"
        )


def not_public(found: _Ip) -> str | None:
    """What kind of address it is where it is not a public one; None: it is."""
    for attribute, what in _KINDS:
        if getattr(found, attribute):
            return what
    if found in _OF_CLOUDS:
        return "where a cloud answers its own machines"
    outside = isinstance(found, IPv6Address) and found not in _GLOBAL_UNICAST
    public = found.is_global and not outside and not any(found in one for one in _SPECIAL)
    return None if public else "a private or reserved address"


def check_written(host: str, what: str) -> None:
    """Raise ConfigurationError, beginning with `what`, for a host that is private as it is written.

    Names are not looked up: where they lead is checked at every post.
    """
    local = _plain(host) == "localhost"
    if _is_ip(host) or local:
        refusal = Allowed.from_environment().refusal(host, "127.0.0.1" if local else host)
        if refusal:
            raise ConfigurationError(f"{what}: {refusal}")


def check_resolved(host: str, port: int, what: str) -> None:
    """As `check_written`, and for a name that this machine resolves to private addresses only.

    For posts by a proxy, which looks the name up again: a name that is unknown here may pass.
    """
    check_written(host, what)
    try:
        found = _look_up(host, port)
    except OSError:
        return
    _choose(host, found, what)


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
        made = socket.socket(family, socket.SOCK_STREAM)
        made.settimeout(left)
        try:
            made.connect(place)
        except OSError as error:
            made.close()
            failed = error
        else:
            made.settimeout(timeout)
            return made
    raise failed


_Place = tuple[socket.AddressFamily, tuple[str, int] | tuple[str, int, int, int]]


def _look_up(host: str, port: int) -> list[_Place]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [(family, place) for family, _, _, _, place in found if isinstance(place[0], str)]


def _choose(host: str, found: list[_Place], what: str) -> list[_Place]:
    allowed, refusals = Allowed.from_environment(), []
    chosen = []
    for one in found:
        refusal = allowed.refusal(host, one[1][0])
        if refusal:
            refusals.append(refusal)
        else:
            chosen.append(one)
    if not chosen and refusals:
        raise ConfigurationError(f"{what}: {refusals[0]}")
    return chosen


def _unwrapped(found: _Ip) -> _Ip:
    """The IPv4 address that an IPv6 one stands for."""
    if isinstance(found, IPv6Address):
        if found.ipv4_mapped is not None:
            return found.ipv4_mapped
        if found in _TRANSLATED:
            return IPv4Address(int(found) & 0xFFFFFFFF)
    return found


def _plain(host: str) -> str:
    return host.lower().removesuffix(".")


def _is_ip(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
