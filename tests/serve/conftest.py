"""Servers of pages over a store, and their clients."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from browser_pages import browser
from served_pages import listening
from serving import acting_client
from starlette.testclient import TestClient

from orchestrator.serve import slow_desk
from orchestrator.serve.access import AccessRules
from transexplain.store.database import Database

__all__ = ["browser"]  # a fixture

Serve = Callable[..., TestClient]


@pytest.fixture
def server(db: Database) -> Iterator[str]:
    """The address of a real server over the store."""
    with listening(f"sqlite:///{db.path}") as address:
        yield address


@pytest.fixture
def serve(db: Database) -> Iterator[Serve]:
    """Makes clients of servers over the store; where it is may be said."""
    with ExitStack() as open_clients:

        def make(
            rules: AccessRules | None = None, url: str | None = None, **more: object
        ) -> TestClient:
            store = Database(url or f"sqlite:///{db.path}", read_only=True)
            open_clients.callback(store.close)
            return open_clients.enter_context(acting_client(store, rules=rules, **more))

        yield make


@pytest.fixture
def client(serve: Serve) -> TestClient:
    """Everybody on this machine may read."""
    return serve()


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Searches see the whole run on a busy machine, too."""
    monkeypatch.setattr("orchestrator.serve.page_request._BUDGET", 60.0)


@pytest.fixture(autouse=True)
def _in_this_process(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """A process of their own costs seconds; one test has it."""
    if "slow_process" not in request.fixturenames:
        here = lambda desk, job: slow_desk.made(desk._url, job)  # noqa: E731
        monkeypatch.setattr("orchestrator.serve.slow_desk.SlowDesk._made", here)
