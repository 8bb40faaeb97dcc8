"""Columns of pictures in Parquet files: their bytes, alone or as {bytes, path}.

The second is how the library `datasets` writes them; where a row has no bytes, its path is that of
a file beside the Parquet file.
"""

import bisect
import threading
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

import pyarrow as pa

from transexplain.data.source_files import printable
from transexplain.errors import DataSourceError, ItemError, RemoteFileError
from transexplain.remote_paths import AnyPath, RemotePath, state_of

TOGETHER = 16  #: cells that are read at once; of a folder as many pictures are
_BYTES, _PATH = "bytes", "path"


def plain_column(column: Any) -> Any:
    """A column without what only says how it is kept: extension types and dictionaries."""
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def holds_pictures(kind: Any, path: AnyPath, name: str) -> bool:
    """Whether a column holds the bytes of pictures; False: their paths, as texts.

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


def contents(column: Any) -> Iterator[bytes | str | None]:
    """Of each row of a column of pictures the bytes, else the path, else None."""
    column = plain_column(column)
    for cell in column:
        value = cell.as_py()
        if isinstance(value, dict):
            value = value.get(_BYTES) or value.get(_PATH)
        yield value or None


def cell_bytes(path: AnyPath, column: str, row: int) -> bytes:
    """The bytes of the picture in a cell; rows that are asked for in order are read once.

    Raises ItemError missing-image: no such file, column or row, or it cannot be read or is empty.
    """
    where = f"row {row} of {printable(column)!r} in {printable(path.name)}"
    try:
        with _READING:
            found = _reader(path, column).cell(row)
    except RemoteFileError as error:
        raise ItemError("missing-image", f"cannot read {where}: {error}") from None
    except Exception as error:  # a reader fed hostile bytes may fail in any way at all
        reason = getattr(error, "strerror", None) or printable(str(error))
        raise ItemError("missing-image", f"cannot read {where}: {reason}") from error
    if not isinstance(found, bytes):
        raise ItemError("missing-image", f"{where} holds no picture any more")
    return found


class _Reader:
    """An open column, and the cell of it that was read last."""

    def __init__(self, path: AnyPath, column: str) -> None:
        import pyarrow.parquet as pq  # takes 14 MB, which pages of texts never need

        # a row group of gigabytes never stands in memory whole
        opened = path.ranges() if isinstance(path, RemotePath) else path
        self._file = pq.ParquetFile(opened, buffer_size=1 << 20, pre_buffer=False)
        kind = _storage(self._file.schema_arrow.field(column).type)
        self._leaf = f"{column}.{_BYTES}" if pa.types.is_struct(kind) else column
        metadata = self._file.metadata
        sizes = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
        self._starts = list(accumulate(sizes, initial=0))
        self._batches: Iterator[Any] = iter(())
        self._group, self._row, self._cell = -1, -1, pa.nulls(0)  #: of the column, and its place

    def cell(self, row: int) -> bytes | str | None:
        """Of one row; those before it in its row group are passed over, or read again."""
        if not 0 <= row < self._starts[-1]:
            raise ValueError(f"it has {self._starts[-1]:,} rows")
        group = bisect.bisect_right(self._starts, row) - 1
        if group != self._group or row < self._row:
            self._begin(group)
        while self._row < row:
            self._cell, self._row = next(self._batches).column(0), self._row + 1
        (found,) = contents(self._cell)
        return found

    def _begin(self, group: int) -> None:
        self._batches = self._file.iter_batches(  # one by one: a coded column may be huge
            batch_size=1, row_groups=[group], columns=[self._leaf], use_threads=False
        )
        self._group, self._row = group, self._starts[group] - 1


#: the column read last, by the state of its file: the next picture is mostly in it, too
_latest: tuple[tuple[str, int | str, int, str], _Reader] | None = None
_READING = threading.Lock()


def _reader(path: AnyPath, column: str) -> _Reader:
    global _latest  # noqa: PLW0603 - behind the lock
    key = (str(path), *state_of(path), column)
    if _latest is None or _latest[0] != key:
        _latest = (key, _Reader(path, column))
    return _latest[1]
