"""A store for the tests of the exports."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from fresh_stores import fresh_store

from transexplain.store.database import Database


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    """An empty SQLite database at the newest revision."""
    with fresh_store(tmp_path / "exports.db") as database:
        yield database
