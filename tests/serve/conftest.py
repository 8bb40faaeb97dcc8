"""A store with a run that found something, and a client of the pages over it."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest
from browser_pages import CHROMIUM, FLAGS, chromium
from fresh_stores import fresh_store
from report_samples import biased_run
from served_pages import listening
from starlette.testclient import TestClient

from orchestrator.serve import slow_worker
from orchestrator.serve.access import AccessRules
from orchestrator.serve.application import application
from transexplain.reports.sql_results import write
from transexplain.store.database import Database

if TYPE_CHECKING:
    from playwright.sync_api import Browser

Serve = Callable[..., TestClient]


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    """Chromium, for the tests of a module."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = chromium()
    if path is None:
        pytest.skip(f"no Chromium: install it, or say where it is with {CHROMIUM}")
    with sync_api.sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=path, args=FLAGS)
        yield found
        found.close()


@pytest.fixture
def server(db: Database) -> Iterator[str]:
    """The address of a real server over the store."""
    with listening(f"sqlite:///{db.path}") as address:
        yield address


@pytest.fixture
def db(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Database]:
    """An SQLite database at the newest revision; with the run of `run_id` where that is used."""
    if "run_id" not in request.fixturenames:
        with fresh_store(tmp_path / "store.db") as database:
            yield database
        return
    path = tmp_path / "store.db"
    path.write_bytes(_with_run()[1])
    with Database(f"sqlite:///{path}") as database:
        yield database


@cache
def _with_run() -> tuple[str, bytes]:
    """The run's id and the file, made once in a process."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "store.db"
        with fresh_store(path) as database:
            found = biased_run(database)
            assert write(database, found)
        assert not path.with_name("store.db-wal").exists(), "all is in the one file"
        return found, path.read_bytes()


@pytest.fixture
def run_id(db: Database) -> str:
    """A finished run whose groups differ, with its rows for SQL."""
    return _with_run()[0]


@pytest.fixture
def serve(db: Database) -> Iterator[Serve]:
    """Makes clients of servers over the store; where it is may be said."""
    with ExitStack() as open_clients:

        def make(
            rules: AccessRules | None = None, url: str | None = None, **more: object
        ) -> TestClient:
            store = Database(url or f"sqlite:///{db.path}", read_only=True)
            open_clients.callback(store.close)
            settings = {"base_url": "http://localhost", "follow_redirects": False, **more}
            client = TestClient(application(store, rules or AccessRules()), **settings)
            return open_clients.enter_context(client)

        yield make


@pytest.fixture
def client(serve: Serve) -> TestClient:
    """Everybody on this machine may read."""
    return serve()


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Searches see the whole run on a busy machine, too."""
    monkeypatch.setattr("orchestrator.serve.asked._BUDGET", 60.0)


@pytest.fixture(autouse=True)
def _in_this_process(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """A process of their own costs seconds; one test has it."""
    if "slow_process" not in request.fixturenames:
        here = lambda desk, job: slow_worker.made(desk._url, job)  # noqa: E731
        monkeypatch.setattr("orchestrator.serve.slow_desk.SlowDesk._made", here)
