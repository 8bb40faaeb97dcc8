"""Reads rows of a snapshot wherever it lies: a Parquet file, or pieces in an object store."""

from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from transexplain.data.snapshot_pieces import SnapshotPieces
from transexplain.data.source_files import verify
from transexplain.remote_stores import is_url
from transexplain.types.plans import DatasetRef


class SnapshotRows(Protocol):
    """The rows of a dataset, open at any of them.

    Every method raises DataSourceError where the snapshot is missing or not the one of the plan,
    ObjectStoreError where the store that it lies in is away.
    """

    def schema(self) -> pa.Schema:
        """Names and types of its columns, and what was found in the texts."""

    def batches(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """Some columns of all rows, in order."""

    def tables(self, rows: range, columns: list[str] | None = None) -> Iterator[pa.Table]:
        """The rows (consecutive ones) in order, as several tables; all columns, or some."""


def snapshot_rows(ref: DatasetRef) -> SnapshotRows:
    """The snapshot of a dataset, checked as far as it can be before rows are read.

    Raises DataSourceError where it is missing or not the one of the plan.
    """
    if is_url(ref.snapshot):
        return SnapshotPieces(ref)
    verify(ref)
    return _SnapshotFile(Path(ref.snapshot))


class _SnapshotFile:
    """A snapshot that is one file of this machine, or of a folder that it shares."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def schema(self) -> pa.Schema:
        return pq.read_schema(self._path)

    def batches(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        with pq.ParquetFile(self._path, pre_buffer=False) as file:
            yield from file.iter_batches(columns=columns, use_threads=False)

    def tables(self, rows: range, columns: list[str] | None = None) -> Iterator[pa.Table]:
        with pq.ParquetFile(self._path, pre_buffer=False) as file:
            for group, first, stop in _row_groups(file.metadata, rows):
                if columns is None:
                    table = _whole_group(file, self._path, group)
                else:
                    table = file.read_row_group(group, columns, use_threads=False)
                yield table.slice(first, stop - first)


#: the row group read last, by the state of its file: the next part is mostly in it, too
_latest: tuple[tuple[str, int, int, int], Any] | None = None


def _whole_group(file: pq.ParquetFile, snapshot: Path, group: int) -> Any:
    """All columns of a row group."""
    global _latest  # noqa: PLW0603 - two threads may read it twice, which costs time only
    state, latest = snapshot.stat(), _latest
    key = (str(snapshot), state.st_mtime_ns, state.st_size, group)
    if latest is None or latest[0] != key:
        latest = _latest = (key, file.read_row_group(group, use_threads=False))
    return latest[1]


def _row_groups(metadata: Any, rows: range) -> Iterator[tuple[int, int, int]]:
    """(row group, first row in it, row after the last in it) for each group that holds `rows`."""
    sizes = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
    starts = accumulate(sizes, initial=0)
    for group, (start, size) in enumerate(zip(starts, sizes, strict=False)):
        first, stop = max(rows.start - start, 0), min(rows.stop - start, size)
        if first < stop:
            yield group, first, stop
