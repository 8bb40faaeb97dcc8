"""A store for the tests of the exports."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from transexplain.store.database import Database
from transexplain.store.revisions import open_database


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    """An empty SQLite database at the newest revision."""
    with open_database(f"sqlite:///{tmp_path / 'exports.db'}", upgrade=True) as database:
        yield database
