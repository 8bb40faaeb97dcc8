"""Stands before every request: whose name it uses, what it may do, who sends it; and adds the
headers that keep a page to itself.
"""

import re
from collections.abc import Iterable
from http.cookies import CookieError, SimpleCookie

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from orchestrator.monitoring.readiness import ALIVE_PATH, READY_PATH
from orchestrator.serve.access import COOKIE, AccessRules
from orchestrator.serve.links import link

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


class Guard:
    """Refuses what is not a read, comes under another name or from nobody known.

    Forms of the `features` that are switched on pass; whose they are is checked where they lead.
    """

    def __init__(self, app: ASGIApp, rules: AccessRules, features: Iterable[str] = ()) -> None:
        self._app, self._rules = app, rules
        self._acting = [ACTING[one] for one in features]

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
        if method not in ("GET", "HEAD") and not (method == "POST" and self._takes_form(path)):
            return PlainTextResponse(
                "This server only reads.\n", 405, headers={"Allow": "GET, HEAD"}
            )
        is_open = path.startswith(_OPEN) or path in _PROBES
        if self._rules.everybody or is_open or self._known(scope, headers):
            return None
        return self._ask(path, scope, headers)

    def _takes_form(self, path: str) -> bool:
        return path == LOGIN or any(one.fullmatch(path) for one in self._acting)

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
            wanted = f"{path}?{query}" if query else path
            return RedirectResponse(link("login", to=wanted), 303)
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
