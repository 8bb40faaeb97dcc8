"""Reads of one thread that share a connection and a transaction."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from fresh_stores import fresh_store
from noted_transactions import noted_transactions
from sqlalchemy import text

from transexplain.errors import DatabaseError
from transexplain.store import browsing
from transexplain.store.database import Database


@pytest.fixture
def db(any_db: Database) -> Iterator[Database]:
    """A store for reading only."""
    url = any_db.engine.url.render_as_string(hide_password=False)
    with Database(url, read_only=True) as store:
        yield store


def read(db: Database) -> int:
    with db.read() as connection:
        return int(connection.execute(text("SELECT 7")).scalar_one())


def test_reads_share_a_transaction_in_there_and_nowhere_else(db: Database) -> None:
    with noted_transactions(db.engine) as found:
        with db.reading_once():
            assert [read(db), read(db), read(db)] == [7] * 3
            assert len(found) == 1
            other = threading.Thread(target=read, args=(db,))
            other.start()
            other.join()
            assert len(found) == 2, "another thread has its own"
            with db.reading_once():
                read(db)
            assert len(found) == 2, "within each other they are one"
        read(db)
        assert len(found) == 3, "afterwards each has its own again"


def test_another_store_is_read_by_itself(db: Database, tmp_path: Path) -> None:
    with (
        fresh_store(tmp_path / "other.db") as other,
        noted_transactions(other.engine) as found,
        db.reading_once(),
    ):
        read(db)
        assert browsing.list_page(other) == [] and found


def test_an_error_in_there_leaves_a_connection_that_works(db: Database) -> None:
    with pytest.raises(ValueError, match="of the reader"), db.reading_once():
        read(db)
        raise ValueError("of the reader")
    with pytest.raises(DatabaseError), db.reading_once(), db.read() as connection:
        connection.execute(text("CREATE TABLE mine (id INTEGER)"))
    assert read(db) == 7
