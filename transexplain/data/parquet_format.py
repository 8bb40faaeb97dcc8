"""Rows of Parquet files, read batch by batch."""

import gzip
import shutil
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from transexplain.data.line_formats import unreadable
from transexplain.data.source_records import RawRow, Table, printable
from transexplain.errors import DataSourceError
from transexplain.types.plans import DatasetSpec

_BATCH = 1024


@contextmanager
def open_parquet(path: Path, spec: DatasetSpec) -> Iterator[Table]:
    """A Parquet file, gzipped or not; texts come as bytes, so that a bad one costs its row only.

    Raises DataSourceError where the file is not Parquet or is damaged.
    """
    del spec  # the format has no options
    with _seekable(path) as stream:
        try:
            # Streamed column chunks: a row group of gigabytes never stands in memory whole.
            file = pq.ParquetFile(stream, buffer_size=1 << 20, pre_buffer=False)
            columns = tuple(file.schema_arrow.names)
        except (OSError, pa.ArrowException, ValueError) as error:  # names that are not UTF-8
            raise unreadable(path, error) from error
        with file:
            yield Table(
                columns=columns,
                rows=lambda wanted: _rows(file, wanted, path),
            )


@contextmanager
def _seekable(path: Path) -> Iterator[IO[bytes]]:
    with ExitStack() as stack:
        try:
            stream: IO[bytes] = stack.enter_context(path.open("rb"))
            if path.suffix.lower() == ".gz":
                packed = stack.enter_context(gzip.open(stream))
                stream = stack.enter_context(tempfile.TemporaryFile())
                shutil.copyfileobj(packed, stream)
                stream.seek(0)
        except (OSError, EOFError, zlib.error) as error:
            raise unreadable(path, error) from error
        yield stream


def _rows(file: Any, wanted: Sequence[str], path: Path) -> Iterator[RawRow]:
    try:
        for batch in file.iter_batches(batch_size=_BATCH, columns=list(wanted), use_threads=False):
            columns = [_plain(batch.column(name)).to_pylist() for name in wanted]
            for cells in zip(*columns, strict=True):
                yield dict(zip(wanted, cells, strict=True))
    except (OSError, pa.ArrowException, ValueError) as error:
        raise DataSourceError(f"cannot read {path}: {printable(str(error))}") from error


def _plain(column: Any) -> Any:
    """The column in a type whose values become plain Python objects, whatever they hold."""
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_string_view(kind):
        return column.cast(pa.binary())
    if pa.types.is_large_string(kind):
        return column.cast(pa.large_binary())
    if pa.types.is_temporal(kind) or pa.types.is_decimal(kind):
        return column.cast(pa.string())
    return column
