"""Snapshots in an object store: a small Parquet file for each part of a shard.

A worker reads the pieces of its shard, each by one request, and nothing else: no index and no
footer of the whole. A piece names the snapshot and the row that it begins with, and its pages have
checksums, so that one of other data, or a damaged one, is refused.
"""

import io
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from transexplain.data.source_files import verify
from transexplain.errors import DataSourceError, RemoteFileError
from transexplain.files.remote_files import is_url, read, under, write, write_all
from transexplain.settings import Settings
from transexplain.types.plans import DatasetRef

#: most rows of a piece: what is read and encoded by one call, see `explaining.reading.PART`
_MOST, _FEWEST = 256, 64
_NAME = b"piece"


def rows_of_piece(shard_size: int) -> int:
    """Rows of each piece, so that no piece has rows of two shards: a divisor of the shard's."""
    divisors = (size for size in range(min(_MOST, shard_size), 0, -1) if shard_size % size == 0)
    best = next(divisors)
    return best if best >= min(_FEWEST, shard_size) else shard_size


def put_pieces(ref: DatasetRef, shard_size: int, url: str) -> str:
    """Write the snapshot of `ref`, a file, as pieces below `url`; returns the URL of their folder.

    Pieces that are there already are left; a second call after an error goes on where the first one
    ended. Raises RemoteFileError, ObjectStoreError.
    """
    size = rows_of_piece(shard_size)
    folder = f"{url.rstrip('/')}/{ref.fingerprint}-{size}"
    known = {file.url for file in under(folder)}
    with pq.ParquetFile(ref.snapshot, pre_buffer=False) as file:
        whole, schema = _blocks(file, size), file.schema_arrow
        write_all(
            (_address(folder, start), _piece(ref, schema, start, table))
            for start, table in whole
            if _address(folder, start) not in known
        )
    return folder


def published(ref: DatasetRef, shard_size: int, settings: Settings) -> DatasetRef:
    """The dataset with its snapshot where workers read it: in the store that settings name, if any.

    A manifest is one file there, which each machine copies.
    Raises RemoteFileError, ObjectStoreError.
    """
    if not settings.snapshot_url or is_url(ref.snapshot):
        return ref
    if ref.manifest:
        url = f"{settings.snapshot_url.rstrip('/')}/{ref.fingerprint}.parquet"
        return replace(ref, snapshot=write(url, Path(ref.snapshot)).url)
    return replace(ref, snapshot=put_pieces(ref, shard_size, settings.snapshot_url))


def _address(folder: str, start: int) -> str:
    return f"{folder}/{start:012}.parquet"


def _blocks(file: pq.ParquetFile, size: int) -> Iterator[tuple[int, pa.Table]]:
    """(first row, the table of `size` rows from there) of a Parquet file, in order."""
    start, waiting = 0, file.schema_arrow.empty_table()
    for group in range(file.num_row_groups):
        waiting = pa.concat_tables([waiting, file.read_row_group(group, use_threads=False)])
        while len(waiting) >= size:
            yield start, waiting.slice(0, size)
            start, waiting = start + size, waiting.slice(size)
    if len(waiting):
        yield start, waiting


def _piece(ref: DatasetRef, schema: pa.Schema, start: int, table: pa.Table) -> bytes:
    sink = io.BytesIO()
    with pq.ParquetWriter(
        sink,
        schema,
        compression="zstd",
        write_statistics=False,
        write_page_checksum=True,
        # small footers and pages: most cells differ, and numbers of rows follow each other
        store_schema=False,
        use_dictionary=["label"],
        column_encoding={"index": "DELTA_BINARY_PACKED"},
    ) as writer:
        writer.write_table(table, row_group_size=max(1, len(table)))
        writer.add_key_value_metadata({**(schema.metadata or {}), _NAME: _named(ref, start)})
    return sink.getvalue()


def _named(ref: DatasetRef, start: int) -> bytes:
    """The snapshot, by so much of its digest as is needed, and the first row."""
    return f"{ref.fingerprint[:32]}-{start}".encode()


class SnapshotPieces:
    """The rows of a snapshot that lies in an object store as pieces."""

    def __init__(self, ref: DatasetRef) -> None:
        self._ref = ref
        self._size = int(ref.snapshot.rpartition("-")[2])

    def schema(self) -> pa.Schema:
        """Names and types of the columns, and what was found in the texts."""
        schema = self._table(0).schema
        kept = dict(schema.metadata or {})
        kept.pop(_NAME, None)
        return schema.with_metadata(kept or None)

    def batches(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """Some columns of all rows, in order."""
        for table in self.tables(range(self._ref.rows), columns):
            yield from table.to_batches()

    def tables(self, rows: range, columns: list[str] | None = None) -> Iterator[pa.Table]:
        """The rows in order, a table for each piece that holds some."""
        for start in range(rows.start - rows.start % self._size, rows.stop, self._size):
            table = self._table(start)
            first, stop = max(rows.start - start, 0), min(rows.stop - start, len(table))
            if columns is not None:
                table = table.select(columns)
            yield table.slice(first, stop - first)

    def _table(self, start: int) -> pa.Table:
        rows = min(self._size, self._ref.rows - start)
        return piece_at(_address(self._ref.snapshot, start), _named(self._ref, start), rows)


_AGAIN = "submit the audit again, which writes what is missing, or restore it"


@lru_cache(maxsize=4)  # parts of pictures and graphs are smaller than a piece
def piece_at(url: str, name: bytes, rows: int) -> pa.Table:
    """The rows of a piece, which has this name and so many.

    Raises DataSourceError where it is missing, damaged or another one; ObjectStoreError.
    """
    try:
        content = read(url)
        with pq.ParquetFile(io.BytesIO(content), page_checksum_verification=True) as file:
            table = file.read(use_threads=False)
            table = table.replace_schema_metadata(file.metadata.metadata)
    except RemoteFileError as error:
        raise DataSourceError(f"the data's snapshot is not whole: {error}; {_AGAIN}") from None
    except (OSError, pa.ArrowException) as error:
        raise DataSourceError(f"{url} is damaged ({error}); delete it and {_AGAIN}") from error
    if ((table.schema.metadata or {}).get(_NAME), len(table)) != (name, rows):
        raise DataSourceError(
            f"{url} holds other rows than the snapshot that the audit was planned with; delete it "
            f"and {_AGAIN}"
        )
    return table


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
