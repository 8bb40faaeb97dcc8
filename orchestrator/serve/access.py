"""Access to pages: by address, by a token, or by the name that a trusted proxy vouches for."""

import hashlib
import hmac
import ipaddress
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from pathlib import Path

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from orchestrator.monitoring.probes import ALIVE_PATH, READY_PATH
from orchestrator.serve.links import link
from transexplain.errors import ConfigurationError, reason_of

COOKIE = "transexplain"
SESSION_SECONDS = 12 * 3600  #: that a login lasts, and that a browser keeps its cookie
_SHORTEST = 16  #: characters of a token
_LONGEST = 4096
#: a Host header: an IPv6 address in brackets, without the zone that one machine alone knows, or a
#: name, and the port
_HOST = re.compile(
    r"(?:\[(?P<six>[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*)\]|(?P<name>[^:%\[\]]+))(?::[0-9]{0,5})?"
)
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, kw_only=True, slots=True)
class AccessRules:
    """The rules of access; without a token and a header everybody who reaches the server reads."""

    token: str | None = None
    user_header: str | None = None  #: holds the name of who a trusted proxy let through
    proxies: tuple[Network, ...] = ()  #: addresses that may send it
    hosts: frozenset[str] = frozenset()  #: names besides `localhost` that the server answers to

    @property
    def everybody(self) -> bool:
        """Return whether no request has to identify its user."""
        return self.token is None and self.user_header is None

    def knows_host(self, host: str) -> bool:
        """Return whether the Host header names this server.

        A page elsewhere whose name leads here (DNS rebinding) sends that name; an address of
        numbers cannot be led elsewhere.
        """
        parts = _HOST.fullmatch(host)
        if parts is None:
            return False
        name = (parts["name"] or "").lower().removesuffix(".")
        is_own = name == "localhost" or name in self.hosts
        return is_own or _address(parts["six"] or name) is not None

    def trusts(self, client: str) -> bool:
        """Return whether the user header counts in a request from this address."""
        ip = _address(client)
        return ip is not None and any(ip in network for network in self.proxies)

    def token_is(self, token: str) -> bool:
        """Compare with the token, in constant time."""
        return self.token is not None and hmac.compare_digest(
            _digest(token.encode("utf-8", "surrogatepass")), _digest(self.token.encode())
        )

    def session(self, now: float | None = None) -> str:
        """The cookie of a login: its expiry, and a proof of the token."""
        until = int((time.time() if now is None else now) + SESSION_SECONDS)
        return f"{until}.{self._proof(until)}"

    def session_is_good(self, cookie: str, now: float | None = None) -> bool:
        """Return whether `session` made this, for the present token and not too long ago."""
        return self.token is not None and proof_is_good(cookie, self._proof, now)

    def _proof(self, until: int) -> str:
        key = (self.token or "").encode()
        return hmac.new(key, f"session until {until}".encode(), hashlib.sha256).hexdigest()


def proof_is_good(written: str, proof: Callable[[int], str], now: float | None = None) -> bool:
    """Return whether this is a moment to come, a dot and the proof of that moment."""
    until, _, sent = written.partition(".")
    if not until.isascii() or not until.isdigit() or len(until) > 12:
        return False
    good = hmac.compare_digest(proof(int(until)).encode(), sent.encode("utf-8", "replace"))
    return good and int(until) > (time.time() if now is None else now)


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        ip = ipaddress.ip_address(name)
    except ValueError:
        return None
    return getattr(ip, "ipv4_mapped", None) or ip


def access_rules(
    host: str,
    *,
    token_file: Path | None = None,
    user_header: str | None = None,
    proxies: Sequence[str] = (),
    hosts: Sequence[str] = (),
) -> AccessRules:
    """The rules of a server that listens on `host`; raises ConfigurationError.

    Anybody on the network could read where it listens on more than this machine, so that needs a
    token or a proxy.
    """
    if token_file is not None and user_header is not None:
        raise ConfigurationError("--token-file and --trusted-user-header exclude each other")
    if (user_header is None) != (not proxies):
        raise ConfigurationError(
            "--trusted-user-header and --trusted-proxy go together: the header counts only from "
            "the proxy's address"
        )
    if user_header is not None and not user_header.replace("-", "").isalnum():
        raise ConfigurationError(f"--trusted-user-header {user_header!r} is no name of a header")
    if token_file is None and user_header is None and not is_local(host):
        raise ConfigurationError(
            f"--host {host}: everybody who reaches this address could read the store. Give "
            "--token-file FILE, or --trusted-user-header NAME with --trusted-proxy ADDRESS, or "
            "listen on 127.0.0.1"
        )
    return AccessRules(
        token=None if token_file is None else _token(token_file),
        user_header=None if user_header is None else user_header.lower(),
        proxies=tuple(map(_network, proxies)),
        hosts=frozenset(name.lower().removesuffix(".") for name in hosts),
    )


def is_local(host: str) -> bool:
    """Return whether only this machine reaches an address."""
    ip = _address(host)
    return host == "localhost" if ip is None else ip.is_loopback


def _network(text: str) -> Network:
    try:
        return ipaddress.ip_network(text)
    except ValueError:
        raise ConfigurationError(
            f"--trusted-proxy {text!r} is no address; write 10.0.0.7, or 10.0.0.0/24"
        ) from None


def _token(file: Path) -> str:
    try:
        token = file.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"--token-file {file} cannot be read: {reason_of(error)}"
        ) from None
    if not _SHORTEST <= len(token) <= _LONGEST or not token.isprintable() or " " in token:
        raise ConfigurationError(
            f"--token-file {file} must hold one word of {_SHORTEST} to {_LONGEST:,} characters; "
            "make one: python -c 'import secrets; print(secrets.token_urlsafe(32))'"
        )
    return token


#: as strict as the report's: nothing from elsewhere, scripts and styles by file; the colours of
#: words and the widths of bars are attributes
POLICY = (
    "default-src 'none'; style-src 'self'; style-src-attr 'unsafe-inline'; script-src 'self'; "
    "img-src data:; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
LOGIN = "/login"
_OPEN = (LOGIN, "/static/")  #: without these nobody could log in
_PROBES = (ALIVE_PATH, READY_PATH)  #: these say yes or no and nothing else
#: feature of a server -> paths to which a form may be sent with it
ACTING = {
    "operate": re.compile(r"/runs/[^/]+/operate/[a-z]+"),
    "live": re.compile(r"/runs/[^/]+/explain"),
}
#: what a page holds stays out of shared caches, and of the browser's after a logout
_CACHE = "private, no-store"


class AccessGuard:
    """Refuses what is not a read, comes under another name or from nobody known.

    Forms of the `features` that are switched on pass; whose they are is checked where they lead.
    """

    def __init__(self, app: ASGIApp, rules: AccessRules, features: Iterable[str] = ()) -> None:
        self._app, self._rules = app, rules
        self._acting = [ACTING[feature] for feature in features]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def sealed(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
                headers.setdefault("Referrer-Policy", "no-referrer")
                headers.setdefault("Cache-Control", _CACHE)
            await send(message)

        refusal = self._refusal(scope)
        await (self._app if refusal is None else refusal)(scope, receive, sealed)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        if not self._rules.knows_host(headers.get("host", "")):
            return PlainTextResponse(
                "This server does not answer to that name. If it is one of its own, start it with "
                "--allow-host NAME.\n",
                421,
            )
        path, method = scope["path"], scope["method"]
        takes_form = path == LOGIN or any(pattern.fullmatch(path) for pattern in self._acting)
        if method not in ("GET", "HEAD") and not (method == "POST" and takes_form):
            return PlainTextResponse(
                "This server only reads.\n", 405, headers={"Allow": "GET, HEAD"}
            )
        is_open = path.startswith(_OPEN) or path in _PROBES
        if self._rules.everybody or is_open or self._known(scope, headers):
            return None
        return self._ask(path, scope, headers)

    def _known(self, scope: Scope, headers: Headers) -> bool:
        rules = self._rules
        if rules.user_header is not None:
            client = scope.get("client") or ("", 0)
            return rules.trusts(client[0]) and bool(headers.get(rules.user_header, "").strip())
        kind, _, token = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            return rules.token_is(token.strip())
        return rules.session_is_good(_cookie(headers))

    def _ask(self, path: str, scope: Scope, headers: Headers) -> Response:
        if self._rules.user_header is not None:
            return PlainTextResponse(
                "Who you are is said by a proxy before this server, and it said nothing.\n", 403
            )
        if "text/html" in headers.get("accept", "") and not headers.get("authorization"):
            query = scope.get("query_string", b"").decode("ascii", "replace")
            target = f"{path}?{query}" if query else path
            return RedirectResponse(link("login", to=target), 303)
        return PlainTextResponse(
            "A token is needed: Authorization: Bearer TOKEN\n",
            401,
            headers={"WWW-Authenticate": 'Bearer realm="transexplain"'},
        )


def _cookie(headers: Headers) -> str:
    jar: SimpleCookie = SimpleCookie()
    try:
        jar.load(headers.get("cookie", ""))
    except CookieError:
        return ""
    return jar[COOKIE].value if COOKIE in jar else ""
