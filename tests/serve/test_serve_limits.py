"""Clients that send half of a request, or nonsense, or take no answer: others are still served."""

import http.client
import json
import logging
import resource
import socket
import struct
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from ipaddress import ip_network
from pathlib import Path

import pytest
import yaml
from gallery import Gallery
from local_receivers import free_port
from served_pages import listening

from orchestrator.serve import application
from orchestrator.serve.access import AccessRules
from orchestrator.serve.links import link
from transexplain.store.database import Database

TOKEN = "a-token-of-thirty-two-characters"
FILES = 1024
ROOT = Path(__file__).resolve().parents[2]
HOST = b"Host: localhost\r\n"
HEAD = b"GET /healthz HTTP/1.1\r\n" + HOST
POST = b"POST /login HTTP/1.1\r\n" + HOST
FORM = POST + b"Content-Type: application/x-www-form-urlencoded\r\n"
CHUNKS = FORM + b"Transfer-Encoding: chunked\r\n\r\n"
HALVES = {"nothing": b"", "head": HEAD, "body": FORM + b"Content-Length: 99\r\n\r\ntoken=x"}
Limits = Callable[..., None]
#: the verb; what takes much memory, or seconds to import, is not there at its end
PROGRAM = """
import sys
from orchestrator.cli import main
try:
    main()
finally:
    print("loaded:", {"torch", "scipy", "celery", "altair"} & set(sys.modules))
"""


@dataclass(frozen=True)
class Running:
    """A server of its own process, as an operator starts it."""

    port: int
    pid: int
    log: Path

    def alive(self) -> bool:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/healthz", timeout=30) as answer:
            return bool(answer.read() == b"alive\n")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, gallery: Gallery) -> Iterator[Running]:
    """The command of docker-compose.yml, with 1,024 files that it may open; ended by SIGTERM."""
    folder = tmp_path_factory.mktemp("limits")
    url = gallery["biased"].copy_store(folder / "store.db")
    (folder / "token").write_text(TOKEN)
    port = free_port()
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
    command = compose["services"]["serve"]["command"]
    assert {"0.0.0.0", "/run/secrets/serve_token"} < set(command)
    words = ["sh", "-c", f'ulimit -n {FILES}; exec "$@"', "sh", sys.executable, "-c"]
    words += [PROGRAM, *command, "--port", str(port), "--db", url]
    words = [one.replace("/run/secrets/serve_token", str(folder / "token")) for one in words]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log)
    found = Running(port, process.pid, folder / "log")
    try:
        for _ in range(300):
            with suppress(OSError):
                if found.alive():
                    break
            time.sleep(0.2)
        yield found
    finally:
        process.terminate()
        assert process.wait(30) == 0
        assert "loaded: set()" in found.log.read_text(), "it needs no heavy library"


@contextmanager
def many_files() -> Iterator[None]:
    """This process may open more than the server."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if before[1] < 4096:
        pytest.skip("this process may not open 4,096 files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(before[0], 4096), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def sent(port: int, *parts: bytes) -> socket.socket:
    one = socket.create_connection(("127.0.0.1", port), timeout=30)
    for number, part in enumerate(parts):
        time.sleep(0.1 if number else 0)
        with suppress(OSError):  # it was refused already
            one.sendall(part)
    return one


def status(connection: socket.socket) -> int | None:
    """Of the first response; None: there is none, the connection ended."""
    with connection, suppress(OSError), connection.makefile("rb") as answer:
        line = answer.readline()
        return int(line.split()[1]) if line else None
    return None


def ended(connection: socket.socket, seconds: float = 30.0) -> bool:
    """Whether the server ends it within so many seconds, sending nothing."""
    connection.settimeout(seconds)
    try:
        return connection.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


def test_pages_are_served_by_the_verb(running: Running, gallery: Gallery) -> None:
    """Without heavy libraries, as its end shows."""
    run_id = gallery["biased"].id
    for page in ("/runs", "/fleet", link("runs", run_id), link("runs", run_id, "items", "row-0")):
        url = f"http://127.0.0.1:{running.port}{page}.json"
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {TOKEN}"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert json.load(answer)


def test_two_thousand_half_open_connections_stop_nothing(running: Running) -> None:
    with many_files(), ExitStack() as opened:
        for number in range(2_000):
            half = tuple(HALVES.values())[number % 3]
            opened.enter_context(sent(running.port, half))
        assert running.alive() and running.alive()
        assert len(list(Path(f"/proc/{running.pid}/fd").iterdir())) < FILES / 2
    assert running.alive()
    written = running.log.read_text()
    assert len(written) < 2**20 and "Traceback" not in written


def fields(count: int) -> bytes:
    body = b"&".join(b"f%d=1" % number for number in range(count))
    return FORM + b"Content-Length: %d\r\n\r\n" % len(body) + body


def parts_of(count: int, kind: bytes = b"multipart/form-data; boundary=b") -> bytes:
    one = b'--b\r\nContent-Disposition: form-data; name="a"\r\n\r\n1\r\n'
    body = one * count + b"--b--\r\n"
    return POST + b"Content-Type: %s\r\nContent-Length: %d\r\n\r\n" % (kind, len(body)) + body


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ((fields(1),), 403),
        ((fields(25),), 400),
        ((fields(10_000),), 413),
        ((parts_of(1),), 403),
        ((parts_of(25),), 400),
        ((parts_of(10_000),), 413),
        ((parts_of(1, b"multipart/form-data"),), 400),
        ((FORM + b"Content-Length: 9\r\n\r\ntoken=%ff",), 400),
        ((FORM + b"Content-Length: -1\r\n\r\n",), 400),
        ((POST + b"Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}",), 415),
        ((POST + b"Content-Length: 0\r\n\r\n",), 415),
        ((CHUNKS, b"zz\r\nabc\r\n"), 400),
        ((CHUNKS + b"3\r\nabc\r\n", b"-1\r\n"), 400),
        ((b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n", b"zz\r\n"), 405),
        ((HEAD + b"\r\n\0\0\0",), 200),
        ((b"GET / HTTP/1.1\r\n" + HOST + b"X: " + b"a" * 200_000 + b"\r\n\r\n",), 400),
        ((HEAD + HOST + b"\r\n",), 400),
        ((b"\x16\x03\x01\x02\x00" + b"\0" * 200,), 400),
        ((HEAD + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n",), 200),
    ],
)
def test_nonsense_is_answered_and_leaves_no_traceback(
    running: Running, parts: tuple[bytes, ...], expected: int
) -> None:
    assert status(sent(running.port, *parts)) == expected
    assert "Traceback" not in running.log.read_text()


def test_a_client_that_goes_leaves_no_traceback(running: Running) -> None:
    gone = struct.pack("ii", 1, 0)
    for half in (*HALVES.values(), CHUNKS, HEAD + b"\r\n", (HEAD + b"\r\n") * 500):
        for reset in (False, True):
            one = sent(running.port, half)
            if reset:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, gone)
            one.close()
    assert running.alive()
    assert "Traceback" not in running.log.read_text()


def test_the_log_takes_so_many_lines_of_a_kind(running: Running) -> None:
    before = len(running.log.read_text().splitlines())
    for _ in range(3 * application._LINES):
        assert status(sent(running.port, b"nonsense\r\n\r\n")) == 400
    assert len(running.log.read_text().splitlines()) - before <= application._LINES


def test_the_log_goes_on_after_a_minute() -> None:
    kept = application._Sparing()
    lines = [logging.LogRecord("x", 30, __file__, 1, "line", None, None) for _ in range(60)]
    for number, line in enumerate(lines):
        line.created = 1_000.0 + 2 * number  # one in two seconds, for two minutes
    passed = [number for number, line in enumerate(lines) if kept.filter(line)]
    assert passed == [*range(application._LINES), *range(30, 30 + application._LINES)]
    other = logging.LogRecord("x", 30, __file__, 2, "line", None, None)
    other.created = lines[-1].created
    assert kept.filter(other), "another kind of line"


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> Limits:
    """Sets other limits than a server has."""

    def choose(patience: float = 60.0, **bounds: int) -> None:
        monkeypatch.setattr(
            application, "_PATIENCE", dict.fromkeys(application._PATIENCE, patience)
        )
        for name, value in bounds.items():
            monkeypatch.setattr(application, f"_{name}", value)

    return choose


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


@pytest.mark.parametrize("half", HALVES)
def test_what_does_not_come_in_time_is_not_waited_for(
    db: Database, limits: Limits, half: str
) -> None:
    limits(patience=1.0)
    more = {"head": b"X-More: 1\r\n", "body": b"x", "nothing": b""}[half]
    with (
        listening(f"sqlite:///{db.path}", AccessRules(token=TOKEN)) as address,
        sent(port_of(address), HALVES[half]) as slow,
        closing(http.client.HTTPConnection("127.0.0.1", port_of(address), timeout=30)) as other,
    ):
        until = time.monotonic() + 30
        while time.monotonic() < until:
            with suppress(OSError):
                slow.sendall(more)
            if ended(slow, 0.2):
                break
            other.request("GET", "/healthz", headers={"Host": "localhost"})
            assert other.getresponse().read() == b"alive\n", "who asks on is served on"
        else:
            pytest.fail("a byte now and then kept the connection")


def test_an_answer_that_is_not_taken_is_not_kept(db: Database, limits: Limits) -> None:
    limits(patience=0.5)
    with listening(f"sqlite:///{db.path}", buffer=4096) as address, socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.settimeout(30)
        slow.connect(("127.0.0.1", port_of(address)))
        slow.sendall(b"GET /static/style.css HTTP/1.1\r\n" + HOST + b"\r\n")
        time.sleep(3)  # a connection is looked at once a second
        received = 0
        with suppress(ConnectionError):
            while some := slow.recv(65_536):
                received += len(some)
        with urllib.request.urlopen(f"{address}/static/style.css") as answer:
            assert received < len(answer.read()), "the end of it was thrown away"


@pytest.mark.parametrize("bound", ["OF_ADDRESS", "CONNECTIONS"])
def test_who_waits_longest_makes_room(db: Database, limits: Limits, bound: str) -> None:
    limits(**{bound: 6})
    with listening(f"sqlite:///{db.path}") as address, ExitStack() as opened:
        port = port_of(address)
        halves = [opened.enter_context(sent(port, HEAD)) for _ in range(6)]
        assert status(sent(port, HEAD + b"\r\n")) == 200
        assert ended(halves[0])
        halves[-1].sendall(b"\r\n")
        assert status(halves[-1]) == 200, "a later one was left alone"


def test_a_trusted_proxy_has_as_many_connections_as_the_server(
    db: Database, limits: Limits
) -> None:
    limits(OF_ADDRESS=2)
    rules = AccessRules(user_header="x-user", proxies=(ip_network("127.0.0.1"),))
    with listening(f"sqlite:///{db.path}", rules) as address, ExitStack() as opened:
        halves = [opened.enter_context(sent(port_of(address), HEAD)) for _ in range(6)]
        for one in halves:
            one.sendall(b"\r\n")
        assert [status(one) for one in halves] == [200] * 6


def test_work_is_not_given_up_for_a_new_connection(
    db: Database, limits: Limits, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits(OF_ADDRESS=2)
    monkeypatch.setattr(application, "_WRONG_SECONDS", 4.0)
    with listening(f"sqlite:///{db.path}", AccessRules(token=TOKEN)) as address:
        body = FORM + b"Content-Length: 7\r\n\r\ntoken=x"
        guesses = [sent(port_of(address), body) for _ in range(2)]
        time.sleep(1)  # they are being answered
        assert status(sent(port_of(address), HEAD + b"\r\n")) == 503
        assert [status(one) for one in guesses] == [403, 403]
