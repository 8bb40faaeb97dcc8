"""An empty store, which most tests of workers begin with."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from fresh_stores import fresh_store

from transexplain.store.database import Database


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with fresh_store(tmp_path / "store.db") as store:
        yield store
