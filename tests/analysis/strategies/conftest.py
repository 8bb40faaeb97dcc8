"""Runs to discover strategies in."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from fresh_stores import fresh_store
from local_audits import audited_in

from transexplain.store.database import Database

Audit = Callable[..., tuple[Database, str]]


@pytest.fixture(scope="session")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Audit]:
    """Runs a specification in this process: the store, and the run's id."""
    with ExitStack() as stack:

        def audit(**keys: Any) -> tuple[Database, str]:
            folder = tmp_path_factory.mktemp("audited")
            return stack.enter_context(audited_in(folder, **keys))

        yield audit


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    """An empty SQLite database at the newest revision."""
    with fresh_store(tmp_path / "strategies.db") as database:
        yield database
