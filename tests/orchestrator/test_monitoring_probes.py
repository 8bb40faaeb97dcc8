"""/healthz and /readyz of both servers: what they mean, and that they say nothing else."""

import logging
import socket
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.error import HTTPError
from wsgiref.util import setup_testing_defaults

import pytest
from fresh_stores import fresh_store
from sqlalchemy import make_url, text
from tcp_proxy import TcpProxy

from orchestrator.monitoring import metrics_http
from orchestrator.monitoring.fleet_metrics import FleetCollector
from orchestrator.monitoring.metrics_http import monitoring_app, serve_metrics
from orchestrator.monitoring.probes import Readiness, database_check
from transexplain.errors import BrokerError, ConfigurationError
from transexplain.store.database import Database
from transexplain.store.revisions import open_database

Get = Callable[[str], tuple[int, str]]


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with fresh_store(tmp_path / "store.db") as store:
        yield store


@pytest.fixture
def by_wsgi(db: Database) -> Get:
    return asked(db)


def asked(db: Database, *more: Callable[[], None], within: float = 5.0) -> Get:
    """A client of the metrics server, without a port."""
    checks = [database_check(db), *more]
    app = monitoring_app(FleetCollector(db, "q"), Readiness(checks, within=within))

    def get(path: str) -> tuple[int, str]:
        found: list[str] = []
        environ: dict[str, object] = {"PATH_INFO": path, "REQUEST_METHOD": "GET"}
        setup_testing_defaults(environ)
        body = b"".join(app(environ, lambda status, _: found.append(status)))  # type: ignore[arg-type,return-value]
        return int(found[0].split()[0]), body.decode()

    return get


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every request looks anew."""
    monkeypatch.setattr("orchestrator.monitoring.probes._FRESH", 0.0)


def test_a_good_server_is_alive_and_ready_and_has_three_paths(by_wsgi: Get) -> None:
    assert by_wsgi("/healthz") == (200, "alive\n")
    assert by_wsgi("/readyz") == (200, "ready\n")
    code, body = by_wsgi("/metrics")
    assert code == 200 and "transexplain_up 1.0" in body
    assert by_wsgi("/")[0] == 200, "as before"
    assert by_wsgi("/metrics/")[0] == by_wsgi("/healthz.json")[0] == by_wsgi("/secret")[0] == 404


def test_tables_of_another_version_are_not_ready_and_the_log_says_why(
    db: Database, at_once: None, by_wsgi: Get, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "orchestrator.monitoring.probes")
    assert by_wsgi("/readyz")[0] == 200
    with db.begin() as connection:
        known = connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one()
        connection.execute(text("UPDATE alembic_version SET version_num = 'later'"))
    for _ in range(3):
        assert by_wsgi("/readyz") == (503, "not ready\n")
    assert by_wsgi("/healthz") == (200, "alive\n"), "it need not be restarted"
    assert len(caplog.records) == 1 and "another TransExplain" in caplog.text
    with db.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = :v"), {"v": known})
    assert by_wsgi("/readyz") == (200, "ready\n")
    assert caplog.records[-1].getMessage() == "ready again"


def test_a_store_that_is_gone_is_not_ready(db: Database, at_once: None, by_wsgi: Get) -> None:
    assert db.path is not None
    away = db.path.rename(db.path.with_name("moved.db"))
    db.close()
    assert by_wsgi("/readyz") == (503, "not ready\n")
    away.rename(db.path)
    assert by_wsgi("/readyz") == (200, "ready\n")


def test_a_broker_counts_where_it_is_asked(db: Database, at_once: None) -> None:
    answers = [True, False, True]

    def broker() -> None:
        if not answers.pop(0):
            raise BrokerError("broker redis://:secret@host cannot be reached")

    get = asked(db, broker)
    assert [get("/readyz") for _ in range(3)] == [
        (200, "ready\n"),
        (503, "not ready\n"),
        (200, "ready\n"),
    ]


def test_many_requests_cost_one_look() -> None:
    looks: list[float] = []
    readiness = Readiness([lambda: looks.append(time.monotonic())])
    threads = [threading.Thread(target=readiness.ready) for _ in range(20)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert 1 <= len(looks) < 5, "a second each"


def test_a_look_that_hangs_holds_up_nobody_and_others_begin_beside_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("orchestrator.monitoring.probes._HUNG", 0.02)
    monkeypatch.setattr("orchestrator.monitoring.probes._FRESH", 0.0)
    released, looks = threading.Event(), []

    def hangs() -> None:
        looks.append(1)
        released.wait(60)

    readiness = Readiness([hangs], within=0.05)
    assert not any(readiness.ready() for _ in range(8))
    assert len(looks) == 4, "no more hang at once"
    released.set()
    deadline = time.monotonic() + 60
    while not readiness.ready():
        assert time.monotonic() < deadline
    readiness.ready()


def test_whatever_a_driver_raises_is_no_answer() -> None:
    def broken() -> None:
        raise ValueError("of all things")

    assert not Readiness([broken]).ready()


def test_the_server_listens_and_says_where_it_cannot(db: Database) -> None:
    app = monitoring_app(FleetCollector(db, "q"), Readiness([database_check(db)]))
    server = serve_metrics(app, host="127.0.0.1", port=0)
    try:
        url = f"http://127.0.0.1:{server.server_port}"
        with urllib.request.urlopen(f"{url}/readyz", timeout=30) as answer:
            assert answer.read() == b"ready\n"
        with pytest.raises(HTTPError, match="404"):
            urllib.request.urlopen(f"{url}/x", timeout=30)
        with pytest.raises(ConfigurationError, match=r"choose another --host or --port"):
            serve_metrics(app, host="127.0.0.1", port=server.server_port)
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.exhaustive
@pytest.mark.postgres
def test_half_of_a_request_holds_up_nobody(
    db: Database, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(metrics_http, "_CONNECTIONS", 4)
    before = threading.active_count()
    app = monitoring_app(FleetCollector(db, "q"), Readiness([database_check(db)]))
    server = serve_metrics(app, host="127.0.0.1", port=0)
    try:
        with ExitStack() as opened:
            for _ in range(40):
                half = socket.create_connection(("127.0.0.1", server.server_port))
                opened.enter_context(half).sendall(b"GET / HTTP/1.1\r\n")
            with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/healthz") as page:
                assert page.read() == b"alive\n"
            until = time.monotonic() + 30
            while threading.active_count() > before + 6:  # the server's, and one that ends
                assert time.monotonic() < until
                time.sleep(0.05)
    finally:
        server.shutdown()
        server.server_close()
    assert capfd.readouterr().err == ""


def test_a_database_that_goes_away_freezes_and_comes_back(
    postgres_url: str, at_once: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen by both servers at once, behind a proxy; each says so, and recovers by itself."""
    monkeypatch.setattr("orchestrator.monitoring.probes._HUNG", 0.1)
    testclient = pytest.importorskip("starlette.testclient")
    from orchestrator.serve.access import AccessRules
    from orchestrator.serve.application import application

    url = make_url(postgres_url)
    open_database(postgres_url, upgrade=True).close()
    with TcpProxy(url.host or "127.0.0.1", url.port or 5432) as proxy, ExitStack() as open_stores:
        through = url.set(host="127.0.0.1", port=proxy.port).render_as_string(hide_password=False)
        stores = [Database(through, read_only=one) for one in (False, True)]
        for one in stores:
            open_stores.callback(one.close)
        get = asked(stores[0], within=1.0)
        rules = AccessRules(token="a-token-of-thirty-two-characters")
        client = open_stores.enter_context(
            testclient.TestClient(application(stores[1], rules), base_url="http://localhost")
        )

        def seen() -> list[tuple[int, str]]:
            answer = client.get("/readyz")
            return [get("/readyz"), (answer.status_code, answer.text)]

        assert seen() == [(200, "ready\n")] * 2
        proxy.refuse()
        assert seen() == [(503, "not ready\n")] * 2
        assert get("/metrics")[1].split()[-2:] == ["transexplain_up", "0.0"]
        assert get("/healthz") == (200, "alive\n") and client.get("/healthz").status_code == 200
        proxy.listen()
        assert seen() == [(200, "ready\n")] * 2
        proxy.freeze()
        assert get("/readyz") == (503, "not ready\n"), "in a second"
        proxy.thaw()
        assert get("/readyz") == (200, "ready\n")
        assert client.get("/metrics").status_code == 401
