"""The rows of a dataset, open at any of them: of a snapshot here, in a store, or by a manifest.

In a store a snapshot is a small Parquet file for each part of a shard: a worker reads the pieces of
its shard, each by one request, and no index and no footer of the whole. A piece names the snapshot
and the row that it begins with, and its pages have checksums, so that one of other data, or a
damaged one, is refused.
"""

import io
import json
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from transexplain.data import listed_files
from transexplain.data.manifest_rows import manifest_rows
from transexplain.data.snapshot import FOUND
from transexplain.data.source_files import snapshot_file, verify
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
        batches = enumerate(file.iter_batches(size, use_threads=False))
        write_all(
            (url, _piece(ref, number * size, batch, file.schema_arrow))
            for number, batch in batches
            if (url := _address(folder, number * size)) not in known
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


def _piece(ref: DatasetRef, start: int, batch: pa.RecordBatch, schema: pa.Schema) -> bytes:
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
        writer.write_batch(batch)
        writer.add_key_value_metadata({**(schema.metadata or {}), _NAME: _named(ref, start)})
    return sink.getvalue()


def _named(ref: DatasetRef, start: int) -> bytes:
    """The snapshot, by so much of its digest as is needed, and the first row."""
    return f"{ref.fingerprint[:32]}-{start}".encode()


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


def stored_schema(ref: DatasetRef) -> pa.Schema:
    """The names of a dataset's columns, and under `snapshot.FOUND` what was found in the texts.

    Raises as `stored_rows`.
    """
    verify(ref)
    if ref.manifest:
        manifest = listed_files.read(snapshot_file(ref))
        columns = [(name, pa.string()) for name in manifest.columns]
        return pa.schema(columns, metadata={FOUND: json.dumps(dict(manifest.found))})
    return _piece_of(ref, 0).schema if is_url(ref.snapshot) else pq.read_schema(ref.snapshot)


def stored_rows(
    ref: DatasetRef, rows: range, columns: list[str] | None = None
) -> Iterator[dict[str, Any]]:
    """Some consecutive rows, in order; all columns, or at least these.

    The snapshot or manifest is checked at once as far as it can be before rows are read.

    Raises DataSourceError where it is missing or not the one of the plan, ObjectStoreError where
    the store that it lies in is away.
    """
    verify(ref)
    if ref.manifest:  # read whole from the files that it lists
        return manifest_rows(ref, rows.start, rows.stop)
    tables = _pieces if is_url(ref.snapshot) else _groups
    return (
        row
        for start, table in tables(ref, rows, columns)
        for row in table[max(rows.start - start, 0) : rows.stop - start].to_pylist()
    )


def _pieces(
    ref: DatasetRef, rows: range, columns: list[str] | None
) -> Iterator[tuple[int, pa.Table]]:
    """The pieces with some rows, in an object store, each with its first row."""
    size = _rows_of(ref)
    for start in range(rows.start - rows.start % size, rows.stop, size):
        table = _piece_of(ref, start)
        yield start, table if columns is None else table.select(columns)


def _rows_of(ref: DatasetRef) -> int:
    return int(ref.snapshot.rpartition("-")[2])


def _piece_of(ref: DatasetRef, start: int) -> pa.Table:
    rows = min(_rows_of(ref), ref.rows - start)
    return piece_at(_address(ref.snapshot, start), _named(ref, start), rows)


def _groups(
    ref: DatasetRef, rows: range, columns: list[str] | None
) -> Iterator[tuple[int, pa.Table]]:
    """The row groups with some rows, of a file of this machine, each with its first row."""
    state, start = Path(ref.snapshot).stat(), 0
    with pq.ParquetFile(ref.snapshot, pre_buffer=False) as file:
        for group in range(file.num_row_groups):
            size = file.metadata.row_group(group).num_rows
            if max(rows.start, start) < min(rows.stop, start + size):
                yield (
                    start,
                    _whole_group(ref.snapshot, state.st_mtime_ns, state.st_size, group)
                    if columns is None
                    else file.read_row_group(group, columns, use_threads=False),
                )
            start += size


@lru_cache(maxsize=1)  # the next part is mostly in it, too
def _whole_group(snapshot: str, changed: int, size: int, group: int) -> pa.Table:
    """All columns of a row group of a file in this state."""
    del changed, size
    with pq.ParquetFile(snapshot, pre_buffer=False) as file:
        return file.read_row_group(group, use_threads=False)
