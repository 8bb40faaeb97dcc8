"""Every test of the store runs on both databases."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from fresh_stores import fresh_store

from transexplain.store.database import Database
from transexplain.store.revisions import open_database


@pytest.fixture(
    params=[
        "sqlite",
        pytest.param("postgresql", marks=[pytest.mark.postgres, pytest.mark.exhaustive]),
    ]
)
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """URL of an empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'store.db'}"
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def db(database_url: str, tmp_path: Path) -> Iterator[Database]:
    """A database at the newest revision."""
    with (
        fresh_store(tmp_path / "store.db")
        if database_url.startswith("sqlite")
        else open_database(database_url, upgrade=True)
    ) as database:
        yield database
