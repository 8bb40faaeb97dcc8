"""Both databases, with room for every thread of a world."""

import pytest

from transexplain.store.database import Database


@pytest.fixture
def db(any_db: Database) -> Database:
    any_db.engine.pool._max_overflow = 100
    return any_db
