"""Both databases, with room for every thread of a world."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from transexplain.store.database import Database
from transexplain.store.revisions import open_database


@pytest.fixture(
    params=[
        "sqlite",
        pytest.param("postgresql", marks=[pytest.mark.postgres, pytest.mark.exhaustive]),
    ]
)
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """An empty database."""
    url = f"sqlite:///{tmp_path / 'store.db'}"
    if request.param == "postgresql":
        url = str(request.getfixturevalue("postgres_url"))
    with open_database(url, upgrade=True) as database:
        database.engine.pool._max_overflow = 100
        yield database
