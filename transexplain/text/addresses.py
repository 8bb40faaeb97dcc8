"""Checks addresses of databases, brokers and webhooks, and shows them without their secrets.

Passwords often hold `@`, `/`, `?` or `#` that nobody percent-encoded. Such a URL can be read in
several ways and each library picks another one, so that a piece of the password becomes the host
or the path. Here it is refused, and nothing of it is shown beyond its scheme.
"""

import re
from dataclasses import dataclass
from ipaddress import IPv6Address
from urllib.parse import parse_qs, unquote

from transexplain.errors import ConfigurationError

HIDDEN = "***"
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,30}")
_USER = re.compile(r"[A-Za-z0-9._%+-]*")
_LABEL = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_NAME = re.compile(rf"{_LABEL}(?:\.{_LABEL}){{0,126}}\.?")
_HOST = rf"(?:{_NAME.pattern}|\[[0-9A-Fa-f:.]+\])"
_PLACE = re.compile(rf"{_HOST}(?::\d{{1,5}})?(?:,{_HOST}(?::\d{{1,5}})?)*|")
_PATH = re.compile(r"[A-Za-z0-9._~%/+-]*")
#: what user and password of a broker may be made of, for urllib to read them
_PLAIN = re.compile(r"[A-Za-z0-9._~!$&'()*+,=:%-]*")
_VALUE = re.compile(r"[A-Za-z0-9._:/+-]*")
#: options whose values may be seen; of any other not even the name, a piece of a password maybe
_SEEN_OPTIONS = frozenset(
    (
        *("application_name", "connect_timeout", "dbname", "gssencmode", "host", "hostaddr"),
        *("load_balance_hosts", "port", "sslmode", "sslrootcert", "target_session_attrs", "user"),
        *("cache", "immutable", "mode", "nolock", "uri", "vfs"),
    )
)
_SECRET_OPTIONS = frozenset(("password", "passwd", "sslpassword", "passfile", "options"))
_BROKERS = ("redis", "rediss", "amqp", "amqps")
_SHORTEST = 4  #: characters of a piece of a secret that is looked for in messages
_ENCODE = (
    "percent-encode what is special in user and password: @ is %40, : is %3A, / is %2F, ? is %3F, "
    "# is %23"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Address:
    """The parts of a URL as they are written, still percent-encoded."""

    scheme: str
    user: str | None  #: None: there is no `@`
    password: str | None  #: None: there is no `:` before the `@`
    place: str  #: host and port
    path: str
    query: str | None
    fragment: str | None

    @property
    def host(self) -> str:
        """The host without brackets, "" where there is none."""
        host = _host_and_port(self.place)[0]
        return host[1:-1] if host.startswith("[") and host.endswith("]") else host

    @property
    def port(self) -> str | None:
        """The text of the port; None where there is none."""
        return _host_and_port(self.place)[1]


def read_address(url: str) -> Address | None:
    """The parts of `scheme://user:password@host:port/path?query`; None where they are not clear.

    They are not where an `@` follows the first `/`, `?` or `#`: that one may belong to a password.
    """
    address = read_path_address(url)
    if address is None or (_is_file(address.scheme) and not address.place):
        return address
    tail = (address.path, address.query or "", address.fragment or "")
    return None if any("@" in part for part in tail) else address


def read_path_address(url: str) -> Address | None:
    """As `read_address` of a URL that holds no password, so that its path may have an `@`."""
    scheme, separator, rest = url.partition("://")
    if not separator or not _SCHEME.fullmatch(scheme):
        return None
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    tail = rest[len(authority) :]
    before, hash_, fragment = tail.partition("#")
    path, mark, query = before.partition("?")
    named, at, place = authority.rpartition("@")
    user, colon, password = named.partition(":")
    return Address(
        scheme=scheme,
        user=user if at else None,
        password=password if colon else None,
        place=place,
        path=path,
        query=query if mark else None,
        fragment=fragment if hash_ else None,
    )


def shown_url(url: str) -> str:
    """`url` for messages and logs: no password, no piece of one, no value of an unknown option."""
    if ";" in url and "://" in url.partition(";")[2]:  # several brokers
        parts = [shown_url(part) for part in url.split(";")]
        return ";".join(parts) if all(map(read_address, url.split(";"))) else HIDDEN
    address = read_address(url)
    if address is None:
        scheme = url.partition("://")[0]
        return f"{scheme}://{HIDDEN}" if _SCHEME.fullmatch(scheme) and "://" in url else HIDDEN
    if _is_file(address.scheme) and not address.place and address.user is None:
        path = "".join(c if c.isprintable() else "?" for c in address.path)
        return f"{address.scheme}://{path}{_shown_query(address.query)}"
    if not _PLACE.fullmatch(address.place):
        return f"{address.scheme}://{HIDDEN}"
    path = address.path if _PATH.fullmatch(address.path) else f"/{HIDDEN}"
    named = f"{_shown_user(address)}{address.place}"
    return f"{address.scheme}://{named}{path}{_shown_query(address.query)}"


def without_secrets(message: str, url: str) -> str:
    """`message` of a driver with every piece of a secret of `url` blanked."""
    whole = _secrets(url)
    pieces = [piece for secret in whole for piece in re.findall(rf"\w{{{_SHORTEST},}}", secret)]
    for secret in sorted({*whole, *pieces}, key=len, reverse=True):
        if len(secret) >= _SHORTEST:
            message = message.replace(secret, HIDDEN)
    return message


def check_server(
    address: Address | None, what: str, *, needs_host: bool = True, remedy: str = _ENCODE
) -> None:
    """Raise ConfigurationError, beginning with `what`, for parts that no server can have."""
    if address is None or "@" in (address.user or "") + (address.password or ""):
        raise ConfigurationError(f"{what} cannot be read: {remedy}")
    text = "".join(filter(None, (address.place, address.path, address.query, address.user)))
    if not text.isascii() or not text.isprintable() or " " in text:
        raise ConfigurationError(f"{what} holds a character that has to be percent-encoded")
    host, port = address.host, address.port
    if needs_host and not host:
        raise ConfigurationError(f"{what} names no host; write SCHEME://HOST:PORT")
    if address.place.startswith("["):
        try:
            IPv6Address(host)
        except ValueError:
            raise ConfigurationError(
                f"{what}: what stands in brackets is no IPv6 address; write it as in [::1]"
            ) from None
    elif host and not _NAME.fullmatch(host):
        raise ConfigurationError(f"{what}: the host is no name or address; {remedy}")
    if port is not None and not (port.isdecimal() and len(port) <= 5 and 1 <= int(port) <= 65_535):
        raise ConfigurationError(f"{what}: the port is no number from 1 to 65535; {remedy}")


def check_broker_url(url: str) -> None:
    """Raise ConfigurationError for a URL that names no Redis and no RabbitMQ."""
    for part in url.split(";"):
        what = f"broker URL {shown_url(part)}"
        address = read_address(part)
        if address is not None and address.scheme not in _BROKERS:
            raise ConfigurationError(f"{what}: use redis://, rediss://, amqp:// or amqps://")
        check_server(address, what)
        assert address is not None
        if not _PLAIN.fullmatch((address.user or "") + (address.password or "")):
            raise ConfigurationError(f"{what} cannot be read: {_ENCODE}, [ is %5B, ] is %5D")
        if address.query is not None or address.fragment is not None:
            raise ConfigurationError(
                f"{what}: a broker URL takes no options (? and #); TLS is rediss:// or amqps:// "
                f"with TRANSEXPLAIN_BROKER_CA. In a password {_ENCODE}"
            )
        if address.scheme.startswith("redis") and not re.fullmatch(r"/?\d{0,5}", address.path):
            raise ConfigurationError(f"{what}: the database of Redis is a number, as in /0")


def options_of(address: Address) -> dict[str, list[str]]:
    """The values of each option of an address, percent-decoded."""
    return parse_qs(address.query or "", keep_blank_values=True)


def _is_file(scheme: str) -> bool:
    return scheme.partition("+")[0] == "sqlite"


def _host_and_port(place: str) -> tuple[str, str | None]:
    host, colon, port = place.rpartition(":")
    if not colon or place.endswith("]"):
        return place, None
    return host, port


def _shown_user(address: Address) -> str:
    if address.user is None:
        return ""
    user = address.user if _USER.fullmatch(address.user) else HIDDEN
    if address.password is not None:
        return f"{user}:{HIDDEN}@"
    # without a colon the name may be meant as the password, at Redis always
    return f"{HIDDEN if address.scheme.startswith('redis') else user}@"


def _shown_query(query: str | None) -> str:
    if query is None:
        return ""
    shown = []
    for pair in query.split("&"):
        name, equals, value = pair.partition("=")
        if name in _SEEN_OPTIONS and equals and _VALUE.fullmatch(value):
            shown.append(pair)
        elif name in _SECRET_OPTIONS or name in _SEEN_OPTIONS:
            shown.append(f"{name}={HIDDEN}")
        else:
            shown.append(HIDDEN)
    return f"?{'&'.join(dict.fromkeys(shown))}"


def _secrets(url: str) -> list[str]:
    address = read_address(url)
    if address is None:
        return []  # refused before it reaches a driver
    secrets = [address.password, address.fragment]
    if address.scheme.startswith("redis"):
        secrets.append(address.user)
    for name, values in options_of(address).items():
        if name not in _SEEN_OPTIONS:
            secrets += values
    written = [secret for secret in secrets if secret]
    # the server names a setting of `options=-csetting=value` without what comes before it
    settings = [option.replace("-c", " ") for option in options_of(address).get("options", ())]
    return [*written, *map(unquote, written), *settings]
