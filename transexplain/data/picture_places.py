"""Pictures by where they are: in a file of their own, in a tar, or in a column of a Parquet file.

A snapshot names the place of every picture relative to the dataset's root:

    cats/a.jpg                              a file
    shard-000.tar#cats/a.jpg@1536+20480     a member of a tar: first byte and number of bytes
    part-0.parquet#image[17]                a cell of a Parquet file: column and row

One read gives the bytes of a member; the tar is not searched.
"""

import bisect
import hashlib
import re
import threading
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
from PIL import Image

from transexplain.data.image_files import MAX_BYTES, image_of, load_image
from transexplain.data.source_files import PackedPicture, inside, picture_digest, printable
from transexplain.errors import ConfigurationError, DataSourceError, ItemError, RemoteFileError
from transexplain.files.paths import AnyPath, RemotePath, local_path, state_of
from transexplain.files.remote_files import read_range

TOGETHER = 16  #: cells that are read at once; of a folder as many pictures are
_BYTES, _PATH = "bytes", "path"


def plain_column(column: Any) -> Any:
    """A column without what only says how it is kept: extension types and dictionaries."""
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def holds_pictures(kind: Any, path: AnyPath, name: str) -> bool:
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
            cell = _reader(path, column).cell(row)
    except RemoteFileError as error:
        raise ItemError("missing-image", f"cannot read {where}: {error}") from None
    except Exception as error:  # a reader fed hostile bytes may fail in any way at all
        reason = getattr(error, "strerror", None) or printable(str(error))
        raise ItemError("missing-image", f"cannot read {where}: {reason}") from error
    if not isinstance(cell, bytes):
        raise ItemError("missing-image", f"{where} holds no picture any more")
    return cell


class _ColumnReader:
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
            self._batches = self._file.iter_batches(  # one by one: a coded column may be huge
                batch_size=1, row_groups=[group], columns=[self._leaf], use_threads=False
            )
            self._group, self._row = group, self._starts[group] - 1
        while self._row < row:
            self._cell, self._row = next(self._batches).column(0), self._row + 1
        (content,) = contents(self._cell)
        return content


#: the column read last, by the state of its file: the next picture is mostly in it, too
_latest: tuple[tuple[str, int | str, int, str], _ColumnReader] | None = None
_READING = threading.Lock()


def _reader(path: AnyPath, column: str) -> _ColumnReader:
    global _latest  # noqa: PLW0603 - behind the lock
    key = (str(path), *state_of(path), column)
    if _latest is None or _latest[0] != key:
        _latest = (key, _ColumnReader(path, column))
    return _latest[1]


#: the bytes may be left out by a person, and the member is looked for
_MEMBER = re.compile(r"(.+?\.tar)#(.+?)(?:@(\d+)\+(\d+))?", re.IGNORECASE | re.DOTALL)
_CELL = re.compile(r"(.+?\.parquet)#(.+)\[(\d+)\]", re.IGNORECASE | re.DOTALL)


def packed_cells(column: Any, name: str, first: int) -> list[PackedPicture | str | None]:
    """The cells of a Parquet column of pictures from row `first` on: pictures, or their paths."""
    return [
        PackedPicture(f"#{name}[{row}]", hashlib.sha256(cell).hexdigest())
        if isinstance(cell, bytes)
        else cell
        for row, cell in enumerate(contents(column), first)
    ]


def is_packed(place: str) -> bool:
    """Return whether a place is written as one inside of a file with many pictures."""
    return bool(_MEMBER.fullmatch(place) or _CELL.fullmatch(place))


def open_picture(
    root: AnyPath,
    place: str,
    *,
    sha256: str | None = None,
    resolved: bool = False,
    read: RemotePath | None = None,
) -> Image.Image:
    """The picture at a place below `root`, as `image_files.load_image`; `resolved`: root's links.

    `read`: the file there, where that was read already. Raises ItemError: as `picture_bytes` and
    `load_image`; ObjectStoreError.
    """
    if not is_packed(place):
        path = read or inside(root, place, resolved=resolved)
        return load_image(path, name=place, sha256=sha256)
    data, shown = picture_bytes(root, place), _shown(place)
    if sha256 is not None and hashlib.sha256(data).hexdigest() != sha256:
        raise ItemError("image-changed", f"{shown} has changed since the audit was planned")
    return image_of(data, name=shown)


def picture_at(place: str | Path) -> Image.Image:
    """The picture of a file, or in a tar or Parquet file, that a person names.

    Raises ItemError as `open_picture` does.
    """
    try:
        whole = local_path(place)
    except ConfigurationError as error:
        raise ItemError("missing-image", str(error)) from error
    if whole.is_file() or not is_packed(str(place)):
        return load_image(whole)
    file, separator, rest = str(place).partition("#")
    path = local_path(file)
    return open_picture(path.parent, f"{path.name}{separator}{rest}")


def place_digest(root: AnyPath, place: str) -> str:
    """Sha256 of the bytes at a place below `root`; raises ItemError as `picture_bytes`."""
    if not is_packed(place):
        return picture_digest(inside(root, place), place)
    return hashlib.sha256(picture_bytes(root, place)).hexdigest()


def picture_bytes(root: AnyPath, place: str) -> bytes:
    """The bytes of a picture in a tar or Parquet file below `root`.

    Raises ItemError: path-outside-root, missing-image (no such file, member or row, or it cannot
    be read), image-too-large, image-changed (the file has become shorter).
    """
    if member := _MEMBER.fullmatch(place):
        file, name, start, size = member.groups()
        path = _below(root, file)
        found = (int(start), int(size)) if start else _searched(path, name)
        return _range(path, _shown(place), *found)
    cell = _CELL.fullmatch(place)
    if cell is None:
        raise ItemError("missing-image", f"{printable(place)!r} is no place in a tar or Parquet")
    file, column, row = cell.groups()
    return cell_bytes(_below(root, file), column, int(row))


def _shown(place: str) -> str:
    """A place for a person: without the bytes."""
    member = _MEMBER.fullmatch(place)
    return printable(f"{member[1]}#{member[2]}" if member else place)


def _below(root: AnyPath, file: str) -> AnyPath:
    """The file, which may be a link: whoever audits has named it, or the folder it lies in."""
    if PurePosixPath(file).is_absolute() or ".." in PurePosixPath(file).parts:
        raise ItemError("path-outside-root", f"{printable(file)!r} leads outside the dataset")
    return root / file


def _range(path: AnyPath, shown: str, start: int, size: int) -> bytes:
    if size > MAX_BYTES:
        raise ItemError("image-too-large", f"{shown} has more than {MAX_BYTES:,} bytes")
    try:
        if isinstance(path, RemotePath):
            return read_range(path.url, start, start + size)
        with path.open("rb") as stream:
            stream.seek(start)
            data = stream.read(size)
    except RemoteFileError as error:  # deleted, or shorter
        raise ItemError("missing-image", str(error)) from None
    except OSError as error:
        raise ItemError("missing-image", f"cannot read {shown}: {error.strerror}") from error
    if len(data) < size:
        raise ItemError("image-changed", f"{path.name} has become shorter: {shown} is cut off")
    return data


def _searched(path: AnyPath, name: str) -> tuple[int, int]:
    """First byte and number of bytes of a member that a person names."""
    import tarfile

    try:
        with path.open("rb") as stream, tarfile.open(fileobj=stream, mode="r:") as tar:
            for member in tar:
                if member.isreg() and member.name.removeprefix("./") == name:
                    return member.offset_data, member.size
    except (OSError, tarfile.TarError) as error:
        raise ItemError("missing-image", f"cannot read {path.name}: {error}") from error
    raise ItemError("missing-image", f"{path.name} has no picture {printable(name)!r}")
