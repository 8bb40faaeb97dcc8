"""Finding ids that stand for two items, in little memory."""

import hashlib
from pathlib import Path

import pyarrow.parquet as pq

from transexplain.errors import DataSourceError

_BYTES = 8  #: of a hash that stands for an id while rows stream by


class DuplicateIds:
    """Remembers a short hash of every id; a hash met twice is looked up in the file."""

    def __init__(self) -> None:
        self._seen: set[bytes] = set()
        self._twice: set[bytes] = set()

    def add(self, item_id: str) -> None:
        """Note one id."""
        short = _short(item_id)
        if short in self._seen:
            self._twice.add(short)
        self._seen.add(short)

    def check(self, snapshot: Path) -> None:
        """Raise DataSourceError naming an id that `snapshot` really holds twice."""
        if not self._twice:
            return
        first: dict[str, int] = {}
        with pq.ParquetFile(snapshot) as file:
            for batch in file.iter_batches(columns=["id", "index"]):
                for row in batch.to_pylist():
                    item_id = row["id"]
                    if _short(item_id) not in self._twice:
                        continue
                    if item_id in first:
                        raise DataSourceError(
                            f"the id {item_id!r} stands for two items (rows {first[item_id]} and "
                            f"{row['index']}); ids must be unique, or leave the id column out"
                        )
                    first[item_id] = row["index"]


def _short(item_id: str) -> bytes:
    return hashlib.blake2b(item_id.encode(), digest_size=_BYTES).digest()
