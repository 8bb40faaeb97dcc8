"""Finding two items of the same id in eight bytes an id."""

import hashlib
from array import array
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from transexplain.errors import DataSourceError


class DuplicateIds:
    """Eight bytes per id: equal digests are suspects, looked up again in the snapshot."""

    def __init__(self) -> None:
        self._digests = array("Q")

    def add(self, ids: Iterable[str]) -> None:
        """Remember the ids of some rows, in order."""
        self._digests.extend(map(_digest, ids))

    def check(self, snapshot: Path) -> None:
        """Raise DataSourceError naming the first id that `snapshot` holds a second time."""
        ordered = np.sort(np.frombuffer(self._digests, dtype=np.uint64))
        suspects = set(ordered[1:][ordered[1:] == ordered[:-1]].tolist())
        if not suspects:
            return
        seen: dict[str, int] = {}
        with pq.ParquetFile(snapshot) as file:
            for batch in file.iter_batches(columns=["id", "index"]):
                ids, rows = (column.to_pylist() for column in batch.columns)
                for name, row in zip(ids, rows, strict=True):
                    if name in seen:
                        raise DataSourceError(
                            f"the id {name!r} stands in row {seen[name]} and again in row {row} "
                            "(counted from 0); ids must differ, or leave `id` away to number "
                            "the rows"
                        )
                    if _digest(name) in suspects:
                        seen[name] = row


def _digest(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")
