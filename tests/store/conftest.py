"""Every test of the store runs on both databases."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from transexplain.store.database import Database


@pytest.fixture
def db(any_db: Database) -> Database:
    return any_db


@pytest.fixture
def role(postgres_url: str) -> Callable[[Database, str], AbstractContextManager[Database]]:
    """Gives the PostgreSQL store as somebody sees it who has these rights alone."""
    name = f"role_{postgres_url.rpartition('/')[2]}"

    @contextmanager
    def opened(db: Database, rights: str) -> Iterator[Database]:
        with db.begin() as connection:
            connection.exec_driver_sql(f"CREATE ROLE {name} LOGIN")
            connection.exec_driver_sql(f"GRANT {rights} TO {name}")
        try:
            with Database(postgres_url.replace("postgres@", f"{name}@")) as other:
                yield other
        finally:
            with db.begin() as connection:
                connection.exec_driver_sql(f"DROP OWNED BY {name}")
                connection.exec_driver_sql(f"DROP ROLE {name}")

    return opened
