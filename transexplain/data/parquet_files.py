"""Reads rows of Parquet files."""

import gzip
import shutil
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import IO, Any, cast

import pyarrow as pa
import pyarrow.parquet as pq

from transexplain.data.parquet_pictures import TOGETHER, holds_pictures, plain_column
from transexplain.data.picture_places import packed_cells
from transexplain.data.source_files import RawRow, Table, printable, unreadable
from transexplain.errors import DataSourceError
from transexplain.remote_paths import AnyPath, RemotePath
from transexplain.types.plans import DatasetSpec

_BATCH = 1024
_REQUEST = 8 << 20  #: bytes of a column that one request to a store asks for


@contextmanager
def open_parquet(path: AnyPath, spec: DatasetSpec) -> Iterator[Table]:
    """A Parquet file, gzipped or not; texts come as bytes, so that a bad one costs its row only.

    Raises DataSourceError where the file is not Parquet or is damaged.
    """
    with _seekable(path) as stream:
        try:
            # Streamed column chunks: a row group of gigabytes never stands in memory whole.
            size = _REQUEST if isinstance(path, RemotePath) else 1 << 20
            file = pq.ParquetFile(stream, buffer_size=size, pre_buffer=False)
            columns = tuple(file.schema_arrow.names)
        except (OSError, pa.ArrowException, ValueError) as error:  # names that are not UTF-8
            raise unreadable(path, error) from error
        with file:
            yield Table(
                columns=columns,
                rows=lambda wanted: _rows(file, wanted, path, spec.image),
            )


@contextmanager
def _seekable(path: AnyPath) -> Iterator[IO[bytes]]:
    with ExitStack() as stack:
        try:
            packed = path.suffix.lower() == ".gz"
            if isinstance(path, RemotePath) and not packed:  # only the columns that are wanted
                stream: IO[bytes] = cast(IO[bytes], stack.enter_context(path.ranges()))
            else:
                stream = stack.enter_context(path.open("rb"))
            if packed:
                unpacked = stack.enter_context(gzip.open(stream))
                stream = stack.enter_context(tempfile.TemporaryFile())
                shutil.copyfileobj(unpacked, stream)
                stream.seek(0)
        except (OSError, EOFError, zlib.error) as error:
            raise unreadable(path, error) from error
        yield stream


def _rows(
    file: Any, wanted: Sequence[str], path: AnyPath, pictures: str | None
) -> Iterator[RawRow]:
    if pictures and not holds_pictures(file.schema_arrow.field(pictures).type, path, pictures):
        pictures = None
    size, row = TOGETHER if pictures else _BATCH, 0
    try:
        for batch in file.iter_batches(batch_size=size, columns=list(wanted), use_threads=False):
            columns = [
                packed_cells(batch.column(name), name, row)
                if name == pictures
                else python_column(batch.column(name)).to_pylist()
                for name in wanted
            ]
            row += len(batch)
            for cells in zip(*columns, strict=True):
                yield dict(zip(wanted, cells, strict=True))
    except (OSError, pa.ArrowException, ValueError) as error:
        raise DataSourceError(f"cannot read {path}: {printable(str(error))}") from error


def python_column(column: Any) -> Any:
    """The column in a type whose values become plain Python objects, whatever they hold."""
    column = plain_column(column)
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_string_view(kind):
        return column.cast(pa.binary())
    if pa.types.is_large_string(kind):
        return column.cast(pa.large_binary())
    if pa.types.is_temporal(kind) or pa.types.is_decimal(kind):
        return column.cast(pa.string())
    return column
