"""Empty SQLite stores at the newest revision: migrated once in a process, then copied."""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from transexplain.store.database import Database
from transexplain.store.revisions import open_database


def fresh_store(path: Path) -> Database:
    """A new store in this file."""
    path.write_bytes(_migrated())
    return open_database(f"sqlite:///{path}")


@cache
def _migrated() -> bytes:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "store.db"
        open_database(f"sqlite:///{path}", upgrade=True).close()
        assert not path.with_name("store.db-wal").exists(), "all is in the one file"
        return path.read_bytes()
