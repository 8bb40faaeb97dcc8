"""The application: routes from the table of pages, and a page for every error; and its server.

uvicorn waits for a request, and for a client to take its response, as long as that lasts. Here a
connection that waits for its client too long is cut, and where there are too many of them the one
that has waited longest makes room for a new one.
"""

import asyncio
import contextlib
import logging
import resource
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import h11
import uvicorn
from anyio.to_thread import current_default_thread_limiter
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from orchestrator.monitoring.fleet_metrics import FleetCollector
from orchestrator.monitoring.probes import (
    ALIVE,
    ALIVE_PATH,
    NOT_READY,
    READY,
    READY_PATH,
    BrokerQueues,
    Readiness,
    database_check,
)
from orchestrator.serve import drawn_pages, openapi
from orchestrator.serve.access import COOKIE, LOGIN, SESSION_SECONDS, AccessGuard, AccessRules
from orchestrator.serve.acting_pages import FleetOperator, live_route, operating_route
from orchestrator.serve.links import RefusedError
from orchestrator.serve.live_desk import LiveDesk
from orchestrator.serve.own_forms import OwnForms, fields_of
from orchestrator.serve.page_request import NotThereError, PageRequest, RunningCounts, names_of
from orchestrator.serve.page_table import PAGES, Page
from orchestrator.serve.replies import JSON, answered, problem, sent, set_cookie
from orchestrator.serve.slow_desk import SlowDesk
from transexplain.errors import DamagedRowError, DatabaseError, InfrastructureError
from transexplain.settings import QUEUE
from transexplain.store.database import Database
from transexplain.store.shard_digests import miscounted


def monitoring_routes(db: Database, queue: str, broker: BrokerQueues | None) -> list[Route]:
    """Routes over a store; `queue` is the first part of the queues' names."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(FleetCollector(db, queue, broker))
    return [
        Route("/metrics", partial(_metrics, registry)),
        Route(ALIVE_PATH, _alive),
        Route(READY_PATH, partial(_ready, Readiness([database_check(db)]))),
    ]


async def _metrics(registry: CollectorRegistry, request: Request) -> Response:
    encode, kind = choose_encoder(request.headers.get("accept", ""))
    body = await run_in_threadpool(encode, registry)
    return Response(body, headers={"Content-Type": kind, "Vary": "Accept"})


async def _alive(request: Request) -> Response:
    """The loop that answers every request still does."""
    return PlainTextResponse(ALIVE)


async def _ready(readiness: Readiness, request: Request) -> Response:
    # not in the pages' threads: those may all wait for the database
    ready = await asyncio.to_thread(readiness.ready)
    return PlainTextResponse(READY if ready else NOT_READY, 200 if ready else 503)


log = logging.getLogger(__name__)

#: requests that are answered at the same time: each holds a part of a run's items
_AT_ONCE = 4
_FORM_BYTES = 16_384  #: of a login
_WRONG_SECONDS = 0.5  #: that a wrong token has to wait
_SUFFIX = ".json"
_RETRY_SECONDS = "5"


def application(
    db: Database,
    rules: AccessRules,
    *,
    queue: str = QUEUE,
    operator: FleetOperator | None = None,
    desk: LiveDesk | None = None,
    broker: BrokerQueues | None = None,
    reports: bool = True,
) -> ASGIApp:
    """The pages over a store, which must be open for reading only.

    `queue` is the first part of the queues' names. With an `operator` runs can be cancelled,
    retried and resumed; with a `desk`, which ends with the application, what a reader brings is
    explained. The messages that wait are those of the `broker`. Without `reports` no process is
    begun that makes sections of reports and clusters.
    """
    counts, forms = RunningCounts(), OwnForms(rules, db)
    slow = SlowDesk(db.url) if reports else None
    features = {"operate": operator is not None, "live": desk is not None}
    page_request = partial(PageRequest, db=db, counts=counts, slow=slow, queue=queue, broker=broker)
    routes = [
        Route(path, partial(_answer, page, page_request), name=f"{page.name}{path}")
        for page in PAGES
        for path in (page.path, *page.also)
    ]
    routes += [
        Route("/openapi.json", partial(_openapi, rules, features)),
        Route("/static/{name}", _static),
        *monitoring_routes(db, queue, broker),
        operating_route(db, operator, forms),
        live_route(db, desk, forms),
    ]
    if rules.token is not None:
        routes.append(Route(LOGIN, partial(_login, rules), methods=["GET", "POST"]))
    ends = [] if operator is None else [operator.ending.set]
    ends += [some.close for some in (desk, slow) if some is not None]
    lifespan = partial(_lifespan, ends)
    app = Starlette(routes=routes, exception_handlers=_PROBLEMS, lifespan=lifespan)
    app.state.features = {**features, "reports": reports}
    # around everything: pages about errors have the guard's headers, too
    return _Paths(AccessGuard(app, rules, [name for name, is_on in features.items() if is_on]))


@contextlib.asynccontextmanager
async def _lifespan(ends: Sequence[Callable[[], None]], _app: Starlette) -> AsyncIterator[None]:
    current_default_thread_limiter().total_tokens = _AT_ONCE
    try:
        yield
    finally:
        for end in ends:
            end()


class _Paths:
    """Routes by the path as it was sent, so that an encoded slash parts no names; takes `.json`."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            raw = scope.get("raw_path") or scope["path"].encode()
            path = raw.decode("ascii", "replace").partition("?")[0]
            wants = path.endswith(_SUFFIX) and path != "/openapi.json"
            path = path.removesuffix(_SUFFIX) if wants else path
            scope = {**scope, "path": path, JSON: wants}
        await self._app(scope, receive, send)


async def _answer(page: Page, ask: Callable[..., PageRequest], request: Request) -> Response:
    page_request = ask(names=names_of(request), query=dict(request.query_params))
    return await run_in_threadpool(_response, page, page_request, request)


def _response(page: Page, page_request: PageRequest, request: Request) -> Response:
    with page_request.db.reading_once():
        answer = page.make(page_request)
        lost = (
            miscounted(page_request.db, page_request.run.id)
            if "{run}" in page.path and page_request.readable
            else []
        )
    document = {**answer.document, "damaged_shards": lost} if lost else answer.document
    query = request.url.query
    beside = f"{'/runs' if request.url.path == '/' else request.url.path}{_SUFFIX}"
    beside += f"?{query}" if query else ""
    drawing = {**answer.drawing, "here": page.name, "beside": beside}
    return answered(request, page.name, document, drawing)


def _problem(request: Request, error: Exception) -> Response:
    """The page that reports an error."""
    if isinstance(error, ClientDisconnect):
        return Response(status_code=400)  # nobody reads it
    text = "The server met an error of its own, which its log describes."
    refusal = RefusedError(500, "An error", text)
    if isinstance(error, RefusedError):
        refusal = error
    elif isinstance(error, DamagedRowError):
        refusal = RefusedError(500, "Damaged", str(error))
    elif isinstance(error, DatabaseError):
        log.warning("%s", error)
        text = "The database does not answer. This page works again as soon as it does."
        retry = {"Retry-After": _RETRY_SECONDS}
        refusal = RefusedError(503, "The database is away", text, headers=retry)
    elif isinstance(error, HTTPException):
        text = "There is no such page." if error.status_code == 404 else error.detail
        refusal = RefusedError(error.status_code, "Not found", text)
    return problem(request, refusal)


_PROBLEMS = dict.fromkeys(
    (RefusedError, DatabaseError, HTTPException, ClientDisconnect, Exception), _problem
)


def _openapi(rules: AccessRules, features: Mapping[str, bool], request: Request) -> Response:
    return sent(drawn_pages.json_bytes(openapi.document(rules, features)), True)


def _static(request: Request) -> Response:
    file = drawn_pages.static_files().get(request.path_params["name"])
    if file is None:
        raise NotThereError("There is no such file.")
    headers = {"Cache-Control": "public, max-age=31536000, immutable", "ETag": f'"{file.version}"'}
    return Response(file.body, headers=headers, media_type=file.kind)


async def _login(rules: AccessRules, request: Request) -> Response:
    to = request.query_params.get("to", "/")
    if not to.startswith("/") or to.startswith("//") or not to.isprintable() or "\\" in to:
        to = "/"  # a page of this server and nowhere else
    if request.method != "POST":
        return sent(drawn_pages.html("login", to=to, wrong=False, here="login"), False)
    fields = await fields_of(request, _FORM_BYTES, "A login has at most 16 KiB.")
    token = fields.words.get("token", "")
    if not rules.token_is(token.strip()):
        await asyncio.sleep(_WRONG_SECONDS)
        body = drawn_pages.html("login", to=to, wrong=True, here="login")
        return sent(body, False, 403)
    response = RedirectResponse(to, 303)
    set_cookie(response, request, COOKIE, rules.session(), max_age=SESSION_SECONDS)
    return response


_LONGEST_ANSWER = 5  #: seconds that requests have to end after a signal
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
#: seconds that a client has for the head of a request, its body, and to take the response
_PATIENCE = {"head": 10.0, "body": 60.0, "response": 60.0}
_CONNECTIONS = 1000  #: at most, or a third of the files that the process may open
_OF_ADDRESS = 200  #: connections of one address; a trusted proxy may have them all
_QUEUE = 1024  #: connections that are not accepted yet
_LINES = 20  #: of a kind that the log takes in a minute
_BUSY = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nContent-Length: 0\r\n\r\n"


class _Connection(H11Protocol):
    """A connection that knows since when it waits for its client."""

    rules: AccessRules
    most: int  #: connections of all clients
    held: "dict[_Connection, None]"  #: those of all clients, by when they began to wait
    _address = ""  #: the client's; "": not known
    _phase: object = None
    _since = 0.0

    def connection_made(self, transport: Any) -> None:
        """Make room where there are too many others; refuse it where all of those have work."""
        super().connection_made(transport)
        self._address = self.client[0] if self.client else ""
        crowd = [connection for connection in self.held if connection._address == self._address]
        if len(crowd) < _OF_ADDRESS or self.rules.trusts(self._address):
            crowd = list(self.held) if len(self.held) >= self.most else []
        longest = next(
            (connection for connection in crowd if connection.awaited() is not None), None
        )
        if crowd and longest is None:
            transport.write(_BUSY)
            transport.close()
            return
        self.held[self] = None
        if longest is not None:
            longest.cut()

    def connection_lost(self, exc: Exception | None) -> None:
        self.held.pop(self, None)
        super().connection_lost(exc)

    def cut(self) -> None:
        """End it at once, whatever was not sent yet."""
        self.held.pop(self, None)
        self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        """Send as uvicorn does; after a response has begun end the connection."""
        try:
            super().send_400_response(msg)
        except h11.LocalProtocolError:
            self.cut()

    def awaited(self) -> str | None:
        """The next step of the client, a key of `_PATIENCE`; None: it waits for the server."""
        if self.transport.get_write_buffer_size():
            return "response"
        return {h11.IDLE: "head", h11.SEND_BODY: "body"}.get(self.conn.their_state)

    def look(self, now: float) -> None:
        """Cut the connection where its client has been awaited for too long."""
        awaited = self.awaited()
        if self._phase != (phase := (awaited, self.cycle)):
            self._phase, self._since = phase, now
            self.held[self] = self.held.pop(self, None)
        elif awaited is not None and now - self._since > _PATIENCE[awaited]:
            self.cut()


class _Server(uvicorn.Server):
    """Ends well where a signal asks for it, as the other verbs do; the second Ctrl-C is quicker."""

    held: dict[_Connection, None]

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Uvicorn would raise the signal again at the end."""
        before = {number: signal.signal(number, self.handle_exit) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Let more clients queue than asyncio accepts at once: others would wait for a second."""
        await super().startup(sockets)
        for sock in (sock for server in self.servers for sock in server.sockets):
            with sock.dup() as same:
                same.listen(_QUEUE)

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second; connections are looked at each time in ten."""
        if counter % 10 == 0:
            for connection in list(self.held):
                connection.look(time.monotonic())
        return await super().on_tick(counter)


class _Sparing(logging.Filter):
    """Lets so many lines of one place in the code pass in a minute: clients cause some."""

    def __init__(self) -> None:
        super().__init__()
        self._minutes: dict[tuple[str, int], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the line is logged; the last of a minute says that others are left out."""
        place = (record.pathname, record.lineno)
        begun, lines = self._minutes.get(place, (record.created, 0))
        if record.created - begun >= 60:
            begun, lines = record.created, 0
        self._minutes[place] = (begun, lines + 1)
        if lines == _LINES - 1:
            record.msg = f"{record.msg} (further lines like this one are left out for a minute)"
        return lines < _LINES


_SPARING = _Sparing()
#: whose lines clients can cause; those that say who did what are all kept
_CAUSED = ("asyncio", "uvicorn.error", "orchestrator.serve.application")


def serve_pages(db: Database, rules: AccessRules, *, host: str, port: int, **features: Any) -> None:
    """Answer until a signal; raises InfrastructureError where nothing can listen there.

    The `features` are those of `application`.
    """
    app = application(db, rules, **features)
    for name in _CAUSED:
        logging.getLogger(name).addFilter(_SPARING)
    try:
        bounded_server(app, rules, host=host, port=port).run()
    except SystemExit:  # it could not start, and has logged why
        raise InfrastructureError(
            f"nothing can listen at {host}:{port}: another program does, or the address is none of "
            "this machine's; choose another --port"
        ) from None


def bounded_server(app: ASGIApp, rules: AccessRules, **place: Any) -> _Server:
    """A server that holds so many connections, and none for ever; `place` as uvicorn takes it."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    most = _CONNECTIONS if files == resource.RLIM_INFINITY else min(_CONNECTIONS, files // 3)
    held: dict[_Connection, None] = {}
    bounds = {"rules": rules, "most": most, "held": held}
    config = uvicorn.Config(
        app,
        **place,
        http=type("_Connection", (_Connection,), bounds),
        ws="none",
        # asyncio accepts as many at once, before the first of them can be turned away
        backlog=min(100, most // 4),
        log_level="warning",
        # the client's address is the one that connected, whatever a header says
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=_LONGEST_ANSWER,
    )
    server = _Server(config)
    server.held = held
    return server
