"""The server of `transexplain metrics-server`: /metrics, /healthz and /readyz, for anybody."""

import socket
import threading
from collections.abc import Iterable
from contextlib import suppress
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer
from prometheus_client.registry import Collector

from orchestrator.monitoring.probes import (
    ALIVE,
    ALIVE_PATH,
    NOT_READY,
    READY,
    READY_PATH,
    Readiness,
)
from transexplain.errors import ConfigurationError

_METRICS_PATHS = ("/metrics", "/")
_CONNECTIONS = 64  #: at once; the oldest makes room for one more


class _Quiet(WSGIRequestHandler):
    """Logs no request: there is one every few seconds."""

    timeout = 10  #: seconds in which the client has to send or take something

    def log_message(self, format: str, *args: Any) -> None: ...


class _Bounded(ThreadingWSGIServer):
    """Has a thread for each connection, so many and no more."""

    def __init__(self, *args: Any, **more: Any) -> None:
        self._held: dict[Any, None] = {}
        super().__init__(*args, **more)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Begin a thread; the oldest connection ends where there are too many."""
        if len(self._held) >= _CONNECTIONS:
            with suppress(OSError, StopIteration):
                next(iter(self._held)).shutdown(socket.SHUT_RDWR)
        self._held[request] = None
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._held.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing: the client is gone, or sent what is no request."""


def monitoring_app(collector: Collector, readiness: Readiness) -> WSGIApplication:
    """Answers the three paths, and 404 to every other."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    metrics: WSGIApplication = make_wsgi_app(registry)

    def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        if path in _METRICS_PATHS:
            return metrics(environ, start_response)
        status, body = "404 Not Found", b"not here\n"
        if path == ALIVE_PATH:
            status, body = "200 OK", ALIVE
        elif path == READY_PATH and readiness.ready():
            status, body = "200 OK", READY
        elif path == READY_PATH:
            status, body = "503 Service Unavailable", NOT_READY
        headers = [("Content-Type", "text/plain; charset=utf-8"), ("Cache-Control", "no-store")]
        start_response(status, [*headers, ("Content-Length", str(len(body)))])
        return [body]

    return app


def serve_metrics(app: WSGIApplication, *, host: str, port: int) -> WSGIServer:
    """Answer in a thread of its own; `shutdown()` and `server_close()` of the server end it.

    Raises ConfigurationError where the address cannot be had.
    """
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        kind = type("_Server", (_Bounded,), {"address_family": family})
        server: WSGIServer = make_server(
            str(address[0]), port, app, server_class=kind, handler_class=_Quiet
        )
    except OSError as error:
        raise ConfigurationError(
            f"metrics on {host}:{port}: {error.strerror or error}; choose another --host or --port"
        ) from error
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return server
