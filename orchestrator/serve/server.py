"""Runs the application by uvicorn until SIGTERM or Ctrl-C, and bounds what its clients hold.

uvicorn waits for a request, and for a client to take its response, as long as that lasts. Here a
connection that waits for its client too long is cut, and where there are too many of them the one
that has waited longest makes room for a new one.
"""

import logging
import resource
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from orchestrator.serve.access import AccessRules
from orchestrator.serve.application import application
from transexplain.errors import InfrastructureError
from transexplain.store.database import Database

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
