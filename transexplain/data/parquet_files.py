"""Reads rows of Parquet files, in batches that fit into memory whatever the file asks for."""

import gzip
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import IO, Any, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from transexplain.data.picture_places import TOGETHER, holds_pictures, packed_cells, plain_column
from transexplain.data.source_files import MAX_ROW, OpenTable, Problem, RawRow, unpacking
from transexplain.errors import DataSourceError
from transexplain.files.paths import AnyPath, RemotePath
from transexplain.types.plans import DatasetSpec

_BATCH = 1024
_REQUEST = 8 << 20  #: bytes of a column that one request to a store asks for
_BUFFER = 1 << 20  #: streamed column chunks: a row group of gigabytes never stands in memory whole
_PLAIN = 1 << 20  #: bytes that pages of a column may have without a closer look
_NESTED = 1 << 26  #: values of a column of lists in a row group


@contextmanager
def open_parquet(path: AnyPath, spec: DatasetSpec) -> Iterator[OpenTable]:
    """A Parquet file, gzipped or not; texts come as bytes, so that a bad one costs its row only.

    Raises DataSourceError where it asks for too much.
    """
    with _seekable(path) as stream:
        size = _REQUEST if isinstance(path, RemotePath) else _BUFFER
        groups = RowGroups(lambda **how: pq.ParquetFile(stream, buffer_size=size, **how), path)
        with groups.file:
            yield OpenTable(
                columns=tuple(groups.file.schema_arrow.names),
                rows=lambda wanted: _rows(groups, wanted, path, spec.image),
                metadata=groups.file.schema_arrow.metadata,
            )


@contextmanager
def _seekable(path: AnyPath) -> Iterator[IO[bytes]]:
    with ExitStack() as stack:
        packed = path.suffix.lower() == ".gz"
        if isinstance(path, RemotePath) and not packed:  # only the columns that are wanted
            stream: IO[bytes] = cast(IO[bytes], stack.enter_context(path.ranges()))
        else:
            stream = stack.enter_context(path.open("rb"))
        if packed:
            unpacked, count = stack.enter_context(gzip.open(stream)), unpacking(path)
            stream = stack.enter_context(tempfile.TemporaryFile())
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
        self.file = opened(pre_buffer=False)

    def batches(self, group: int, wanted: Sequence[str], size: int = _BATCH) -> Iterator[Any]:
        """The rows of one group; raises DataSourceError for lists of far too many values."""
        file, columns = self.file, list(wanted)
        if coded := [name for name in self._large(group, wanted) if self._is_long(group, name)]:
            file = self._opened(
                pre_buffer=False, metadata=self.file.metadata, read_dictionary=coded
            )
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
        file = self._opened(pre_buffer=False, metadata=self.file.metadata, read_dictionary=[name])
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
    if pictures and not holds_pictures(kind.field(pictures).type, path, pictures):
        pictures = None
    size, row, count = TOGETHER if pictures else _BATCH, 0, unpacking(path)
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
        packed_cells(batch.column(name), name, first)
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
    column = plain_column(column)
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_string_view(kind):
        return column.cast(pa.binary())
    if pa.types.is_large_string(kind):
        return column.cast(pa.large_binary())
    if pa.types.is_temporal(kind) or pa.types.is_decimal(kind):
        return column.cast(pa.string())
    return column
