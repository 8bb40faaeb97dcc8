"""Reads rows of Parquet files, in batches that fit into memory whatever the file asks for."""

import bisect
import gzip
import hashlib
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import accumulate
from typing import IO, Any, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from transexplain.data.source_files import (
    MAX_ROW,
    OpenTable,
    PackedPicture,
    Problem,
    RawRow,
    printable,
    unpacking,
)
from transexplain.errors import DataSourceError, ItemError, RemoteFileError
from transexplain.files.paths import AnyPath, RemotePath, info_of
from transexplain.files.remote_files import FileInfo
from transexplain.types.plans import DatasetSpec

_BATCH = 1024
_PICTURES = 16  #: pictures that are read at once
_REQUEST = 8 << 20  #: bytes of a column that one request to a store asks for
_BUFFER = 1 << 20  #: streamed column chunks: a row group of gigabytes never stands in memory whole
_PLAIN = 1 << 20  #: bytes that pages of a column may have without a closer look
_NESTED = 1 << 26  #: values of a column of lists in a row group


def parquet_file(source: AnyPath | IO[bytes], **options: Any) -> pq.ParquetFile:
    """The open file, of which only what is asked for is read."""
    opened = source.ranges() if isinstance(source, RemotePath) else source
    return pq.ParquetFile(opened, **{"buffer_size": _BUFFER, "pre_buffer": False, **options})


@contextmanager
def open_parquet(path: AnyPath, spec: DatasetSpec) -> Iterator[OpenTable]:
    """A Parquet file, gzipped or not; texts come as bytes, so that a bad one costs its row only.

    Raises DataSourceError where it asks for too much.
    """
    with _seekable(path) as stream:
        size = _REQUEST if isinstance(path, RemotePath) else _BUFFER
        groups = RowGroups(lambda **how: parquet_file(stream, buffer_size=size, **how), path)
        with groups.file:
            yield OpenTable(
                columns=tuple(groups.file.schema_arrow.names),
                rows=lambda wanted: _rows(groups, wanted, path, spec.image),
                metadata=groups.file.schema_arrow.metadata,
            )


@contextmanager
def _seekable(path: AnyPath) -> Iterator[IO[bytes]]:
    if path.suffix.lower() != ".gz":
        # of a store only the columns that are wanted
        opened = path.ranges() if isinstance(path, RemotePath) else path.open("rb")
        with opened as stream:
            yield cast(IO[bytes], stream)
        return
    count = unpacking(path)
    with (
        path.open("rb") as packed,
        gzip.open(packed) as unpacked,
        tempfile.TemporaryFile() as stream,
    ):
        while piece := unpacked.read(_BUFFER):
            count(len(piece))
            stream.write(piece)
        stream.seek(0)
        yield stream


class RowGroups:
    """An open Parquet file whose row groups are read in batches.

    A dictionary of a few long texts is a small page, and decoded a column far larger than memory:
    such a column stays coded until its rows are made. `opened` opens the file as ParquetFile does.
    """

    def __init__(self, opened: Callable[..., Any], path: AnyPath | str) -> None:
        self._opened, self._path = opened, path
        self.file = opened()
        metadata = self.file.metadata
        sizes = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
        self.starts = list(accumulate(sizes, initial=0))  #: first row of each; at the end all
        self._group, self._first, self._batch = -1, 0, pa.nulls(0)  #: read last, its first row
        self._batches: Iterator[Any] = iter(())

    def batch_at(self, row: int, wanted: Sequence[str], size: int = _BATCH) -> tuple[int, Any]:
        """The batch that holds a row, and its first row; rows asked for in order are read once."""
        group = bisect.bisect_right(self.starts, row) - 1
        if group != self._group or row < self._first:
            self._group, self._first, self._batch = group, self.starts[group], pa.nulls(0)
            self._batches = self.batches(group, wanted, size)
        while row >= self._first + len(self._batch):
            if (batch := next(self._batches, None)) is None:
                raise EOFError("it ends early")
            self._first, self._batch = self._first + len(self._batch), batch
        return self._first, self._batch

    def batches(self, group: int, wanted: Sequence[str], size: int = _BATCH) -> Iterator[Any]:
        """The rows of one group; raises DataSourceError for lists of far too many values."""
        file, columns = self.file, list(wanted)
        if coded := [name for name in self._large(group, wanted) if self._is_long(group, name)]:
            file = self._opened(metadata=self.file.metadata, read_dictionary=coded)
        batches: Iterator[Any] = file.iter_batches(
            batch_size=size, row_groups=[group], columns=columns, use_threads=False
        )
        return batches

    def _large(self, group: int, wanted: Sequence[str]) -> Iterator[str]:
        """The paths of dictionaries in some columns that may be large."""
        metadata = self.file.metadata.row_group(group)
        for number in range(metadata.num_columns):
            chunk = metadata.column(number)
            if chunk.path_in_schema.partition(".")[0] not in wanted:
                continue
            if chunk.num_values > max(_NESTED, metadata.num_rows):
                raise DataSourceError(
                    f"cannot read {self._path}: the lists of {chunk.path_in_schema} in row group "
                    f"{group} have {chunk.num_values:,} values; write smaller row groups"
                )
            if chunk.has_dictionary_page and chunk.total_uncompressed_size > _PLAIN:
                yield chunk.path_in_schema

    def _is_long(self, group: int, name: str) -> bool:
        """Whether a batch of the longest text in a dictionary is larger than any row may be."""
        file = self._opened(metadata=self.file.metadata, read_dictionary=[name])
        some = file.iter_batches(batch_size=1, row_groups=[group], columns=[name])
        column = next(some).column(0)
        while not pa.types.is_dictionary(column.type):
            if not pa.types.is_nested(column.type):
                return False
            column = column.field(0) if pa.types.is_struct(column.type) else column.values
        longest = pc.max(pc.binary_length(column.dictionary)).as_py() or 0
        return bool(longest * _BATCH > MAX_ROW)


def _rows(
    groups: RowGroups, wanted: Sequence[str], path: AnyPath, pictures: str | None
) -> Iterator[RawRow]:
    kind = groups.file.schema_arrow
    if pictures and not _holds_pictures(kind.field(pictures).type, path, pictures):
        pictures = None
    size, row, count = _PICTURES if pictures else _BATCH, 0, unpacking(path)
    for group in range(groups.file.num_row_groups):
        for batch in groups.batches(group, wanted, size):
            count(sum(map(_size, batch.columns)))
            yield from rows_of(batch, wanted, pictures, row)
            row += len(batch)


def rows_of(
    batch: Any, wanted: Sequence[str], pictures: str | None = None, first: int = 0
) -> Iterator[RawRow]:
    """The rows of a batch, which begins with row `first` of its file; bad cells cost their row."""
    half = len(batch) // 2
    if half and sum(map(_size, batch.columns)) > MAX_ROW:
        yield from rows_of(batch.slice(0, half), wanted, pictures, first)
        yield from rows_of(batch.slice(half), wanted, pictures, first + half)
        return
    columns = [
        _packed_cells(batch.column(name), name, first)
        if name == pictures
        else _cells(batch.column(name), name)
        for name in wanted
    ]
    for cells in zip(*columns, strict=True):
        faults = (cell for cell in cells if isinstance(cell, Problem))
        yield next(faults, None) or dict(zip(wanted, cells, strict=True))


def _size(column: Any) -> int:
    """Bytes of a column without its dictionaries, each text counted wherever it stands."""
    kind = column.type
    if isinstance(column, pa.ExtensionArray):
        return _size(column.storage)
    if pa.types.is_dictionary(kind) and not pa.types.is_primitive(kind.value_type):
        lengths = pc.binary_length(column.dictionary).take(column.indices)
        return int(pc.sum(lengths.cast(pa.int64())).as_py() or 0)
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        # pyarrow 23 cannot say their bytes
        return sum(cell.as_buffer().size for cell in column if cell.is_valid)
    if pa.types.is_struct(kind):
        return sum(map(_size, column.flatten()))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _size(column.flatten())
    return int(column.nbytes)


def _cells(column: Any, name: str) -> list[Any]:
    """The cells as plain Python objects, whatever they hold; a Problem for one that cannot be."""
    if len(column) == 1 and _size(column) > MAX_ROW:
        return [Problem("malformed-row", f"{name!r} has more than {MAX_ROW:,} bytes")]
    try:
        return list(_plain(column).to_pylist())
    except Exception as error:  # noqa: BLE001 - of any cell, in many classes
        if len(column) > 1:
            return [_cells(column.slice(place, 1), name)[0] for place in range(len(column))]
        kind = "invalid-utf8" if isinstance(error, UnicodeError) else "malformed-row"
        return [Problem(kind, f"the cell of {name!r} cannot be read: {error}")]


def _plain(column: Any) -> Any:
    """The column in a type whose values become plain Python objects."""
    column = _plain_column(column)
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_string_view(kind):
        return column.cast(pa.binary())
    if pa.types.is_large_string(kind):
        return column.cast(pa.large_binary())
    if pa.types.is_temporal(kind) or pa.types.is_decimal(kind):
        return column.cast(pa.string())
    return column


_BYTES, _PATH = "bytes", "path"  #: of a picture, as the library `datasets` writes it


def _plain_column(column: Any) -> Any:
    """A column without what only says how it is kept: extension types and dictionaries."""
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _holds_pictures(kind: Any, path: AnyPath, name: str) -> bool:
    """Return whether a column holds the bytes of pictures; False: their paths, as texts.

    Raises DataSourceError where it holds neither.
    """
    kind = _storage(kind)
    fields = {kind.field(i).name: kind.field(i).type for i in range(kind.num_fields)}
    if _is_bytes(kind) or (pa.types.is_struct(kind) and _is_bytes(fields.get(_BYTES))):
        if path.suffix.lower() == ".gz":
            raise DataSourceError(f"{path} is compressed: gunzip it, to read its pictures by row")
        return True
    if any(check(kind) for check in _TEXTS):
        return False
    raise DataSourceError(
        f"{path}: the column {name!r} holds {kind}; of pictures it holds their bytes (binary), "
        "{bytes, path} as the library datasets writes them, or their paths (string)"
    )


_TEXTS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view, pa.types.is_null)


def _storage(kind: Any) -> Any:
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _is_bytes(kind: Any) -> bool:
    checks = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view)
    return kind is not None and any(check(kind) for check in checks)


def _contents(column: Any) -> Iterator[bytes | str | None]:
    """Of each row of a column of pictures the bytes, else the path, else None."""
    column = _plain_column(column)
    for cell in column:
        value = cell.as_py()
        if isinstance(value, dict):
            value = value.get(_BYTES) or value.get(_PATH)
        yield value or None


def _packed_cells(column: Any, name: str, first: int) -> list[PackedPicture | str | None]:
    """The cells of a Parquet column of pictures from row `first` on: pictures, or their paths."""
    return [
        PackedPicture(f"#{name}[{row}]", hashlib.sha256(cell).hexdigest())
        if isinstance(cell, bytes)
        else cell
        for row, cell in enumerate(_contents(column), first)
    ]


def cell_bytes(path: AnyPath, column: str, row: int) -> bytes:
    """The bytes of the picture in a cell; rows that are asked for in order are read once.

    Raises ItemError missing-image: no such file, column or row, or it cannot be read or is empty.
    """
    where = f"row {row} of {printable(column)!r} in {printable(path.name)}"
    try:
        with _READING:
            groups, leaf = _column(path, info_of(path), column)
            if not 0 <= row < groups.starts[-1]:
                raise ValueError(f"it has {groups.starts[-1]:,} rows")
            # one by one: a coded column may be huge
            (cell,) = _contents(groups.batch_at(row, [leaf], 1)[1].column(0))
    except RemoteFileError as error:
        raise ItemError("missing-image", f"cannot read {where}: {error}") from None
    except Exception as error:  # a reader fed hostile bytes may fail in any way at all
        reason = getattr(error, "strerror", None) or printable(str(error))
        raise ItemError("missing-image", f"cannot read {where}: {reason}") from error
    if not isinstance(cell, bytes):
        raise ItemError("missing-image", f"{where} holds no picture any more")
    return cell


_READING = threading.Lock()


@lru_cache(maxsize=1)  # the next picture is mostly in it, too
def _column(path: AnyPath, state: FileInfo, column: str) -> tuple[RowGroups, str]:
    """An open column of pictures of a file in this state, and the name of their bytes."""
    del state
    groups = RowGroups(lambda **how: parquet_file(path, **how), path)
    is_struct = pa.types.is_struct(_storage(groups.file.schema_arrow.field(column).type))
    return groups, f"{column}.{_BYTES}" if is_struct else column
