"""An S3 server on 127.0.0.1 (moto) that fails on request and counts the bytes it gives away."""

import os
import random
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from unittest import mock
from wsgiref.types import StartResponse, WSGIEnvironment

import pytest

from transexplain.files import remote_files
from transexplain.files.remote_files import delete, under

Application = Callable[[WSGIEnvironment, StartResponse], Iterable[bytes]]
BUCKET = "reviews"
_ERROR = "<?xml version='1.0'?><Error><Code>{0}</Code><Message>{0} was asked for</Message></Error>"


class FaultyS3:
    """What goes wrong, and what was asked; `rate` of the requests fail, in turn by each way."""

    def __init__(self, application: Application) -> None:
        self._application = application
        self._random = random.Random(7)
        self.rate = 0.0
        self.ways: tuple[str, ...] = ("slow down", "reset", "torn")
        self.refusal = ""  #: code of the error that every request is answered by
        self.failed: list[str] = []
        self.given = 0  #: bytes of bodies of GET requests for objects
        self.bodies: list[tuple[str, int]] = []  #: path and bytes of each of them
        self.requests: list[tuple[str, str]] = []  #: method and path
        self.port = 0

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __call__(self, environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        self.requests.append((environ["REQUEST_METHOD"], environ["PATH_INFO"]))
        if self.refusal:
            return _refused(environ, start, "403 Forbidden", self.refusal)
        way = ""
        if self._random.random() < self.rate:
            way = self.ways[len(self.failed) % len(self.ways)]
            self.failed.append(way)
        if way == "slow down":
            return _refused(environ, start, "503 Slow Down", "SlowDown")
        if way == "reset":
            _cut(environ)
            raise ConnectionResetError("asked for")  # which the server passes over in silence
        body = b"".join(self._application(environ, start))
        if environ["REQUEST_METHOD"] == "GET" and not environ["QUERY_STRING"]:
            self.given += len(body)
            self.bodies.append((environ["PATH_INFO"], len(body)))
        return _torn(environ, body) if way == "torn" else [body]


def _refused(environ: WSGIEnvironment, start: StartResponse, status: str, code: str) -> list[bytes]:
    # an answer to HEAD has no body: the next one on that connection would begin with it
    body = b"" if environ["REQUEST_METHOD"] == "HEAD" else _ERROR.format(code).encode()
    start(status, [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))])
    return [body]


def _torn(environ: WSGIEnvironment, body: bytes) -> Iterator[bytes]:
    """Half of an answer whose header told of all of it."""
    yield body[: len(body) // 2]
    _cut(environ)


def _cut(environ: WSGIEnvironment) -> None:
    with suppress(OSError):
        environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)


@contextmanager
def faulty_s3() -> Iterator[FaultyS3]:
    """A server with an empty bucket, and an environment whose credentials it takes."""
    from moto.moto_api._internal.models import moto_api_backend
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Silent(WSGIRequestHandler):
        def log(self, *_: Any) -> None:
            """Nothing is written."""

    s3 = FaultyS3(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, s3, threaded=True, request_handler=Silent)
    s3.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    known = {
        "AWS_ENDPOINT_URL": s3.endpoint,
        "AWS_ACCESS_KEY_ID": "AKIAMADEUPFORTESTS",
        "AWS_SECRET_ACCESS_KEY": "made-up-secret-of-tests",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    try:
        with mock.patch.dict(os.environ, known):
            _make_bucket()
            yield s3
    finally:
        _forget_clients()
        server.shutdown()
        server.server_close()
        thread.join()
        moto_api_backend.reset()


def _make_bucket() -> None:
    import s3fs

    _forget_clients()
    s3fs.S3FileSystem(use_listings_cache=False).mkdir(BUCKET)


def _forget_clients() -> None:
    """Clients keep the address and the credentials that they were made with."""
    import s3fs

    s3fs.S3FileSystem.clear_instance_cache()


# ---- fixtures, which tests/conftest.py makes known


@pytest.fixture(scope="module")
def s3_server() -> Iterator[FaultyS3]:
    with faulty_s3() as s3:
        yield s3


@pytest.fixture
def s3(s3_server: FaultyS3, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyS3]:
    """The server without faults and with an empty bucket; nothing waits before another attempt."""
    monkeypatch.setattr(remote_files, "_WAITS", (0.0, 0.0))
    monkeypatch.setattr("s3fs.core.asyncio.sleep", _at_once)
    yield s3_server
    s3_server.rate, s3_server.refusal = 0.0, ""
    s3_server.ways = ("slow down", "reset", "torn")
    s3_server.failed.clear()
    for one in [*under(f"s3://{BUCKET}/t"), *under(f"s3://{BUCKET}/sinks")]:
        delete(one.url)


async def _at_once(_: float) -> None:
    return None
