"""Reads rows of a dataset by its manifest, straight from its files and nothing beside them."""

import io
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transexplain.data import listed_files
from transexplain.data.file_formats import lines_of
from transexplain.data.listed_files import ListedFile
from transexplain.data.parquet_files import RowGroups, parquet_file, rows_of
from transexplain.data.source_files import (
    OpenTable,
    RawRow,
    Record,
    file_digest,
    reading,
    snapshot_file,
    with_partitions,
)
from transexplain.data.table_source import RowReader
from transexplain.errors import DataSourceError, RemoteFileError
from transexplain.files.paths import any_path, part_of, state_of
from transexplain.files.remote_files import FileInfo, is_url
from transexplain.types.plans import DatasetRef

#: seconds for which a remote file is taken to be what it was
_TRUSTED = 10.0


def info_of(place: str) -> FileInfo:
    """Size and state of a file: the ETag, or when it was changed, in nanoseconds.

    Raises DataSourceError where there is none, ObjectStoreError.
    """
    with _named(place):
        state, size = state_of(any_path(place))
    return FileInfo(url=place, size=size, state=str(state))


def checked(planned: FileInfo, sha256: str) -> FileInfo:
    """What a file of a plan is now; `sha256` is that of its bytes, "" where they were not read.

    Raises DataSourceError where it was changed or is gone, ObjectStoreError.
    """
    try:
        now = info_of(planned.url)
    except DataSourceError as error:
        raise DataSourceError(
            f"{error}; it was one of the data's files when the audit was planned: put it back "
            "and resume the run, or plan the audit again"
        ) from None
    same = (now.size, now.state) == (planned.size, planned.state)
    if not same and now.size == planned.size and sha256 and not is_url(now.url):
        # put back with another time: its bytes decide, where they are known
        same = file_digest(Path(now.url)) == sha256
    if not same:
        raise DataSourceError(
            f"{now.url} has changed since the audit was planned: {planned.size:,} bytes "
            f"({planned.state}) then, {now.size:,} ({now.state}) now; put the file back "
            "with its time of change (cp -p, rsync -t) and resume the run, or plan again"
        )
    return now


@contextmanager
def _named(place: str) -> Iterator[None]:
    """A block whose errors name the file."""
    try:
        yield
    except RemoteFileError as error:
        raise DataSourceError(str(error)) from None
    except OSError as error:
        raise DataSourceError(f"cannot read {place}: {error.strerror or error}") from error


def manifest_rows(ref: DatasetRef, start: int, stop: int) -> Iterator[dict[str, Any]]:
    """The rows from `start` to `stop` as a snapshot of the same data would hold them.

    The manifest was verified before. Raises DataSourceError that names the file where one has
    changed or is gone, ObjectStoreError.
    """
    manifest = listed_files.read(snapshot_file(ref))
    for row, record in manifest_records(ref, start, stop):
        values = {name: getattr(record, name) for name in manifest.columns}
        if manifest.clusters is not None:
            cluster = manifest.clusters.get(row)
            values["cluster"] = None if cluster is None else str(cluster)
        yield values


def manifest_records(ref: DatasetRef, start: int, stop: int) -> Iterator[tuple[int, Record]]:
    """As `manifest_rows`, each with its number; clusters are as the files name them."""
    row = start
    while row < stop:
        first, end, opened = _at(ref, row)
        reader = RowReader(opened.listed.columns, Path(), "")
        for raw in opened.rows(row - first, min(stop, end) - first):
            yield row, reader.record(row, raw)
            row += 1


def aligned(ref: DatasetRef, row: int) -> int:
    """The last row at or before this one from which on its file can be read."""
    first, _, opened = _at(ref, row)
    return first + int(opened.begins[opened.block(row - first)])


def changed_files(ref: DatasetRef) -> Iterator[str]:
    """Return what is wrong with each of the files that is not as it was when the audit was planned.

    Raises as `listed_files.read`, ObjectStoreError.
    """
    manifest = listed_files.read(snapshot_file(ref))
    for number in range(len(manifest.starts) - 1):
        listed = manifest.listed(number)
        try:
            checked(listed.info, listed.sha256)
        except DataSourceError as error:
            yield str(error)


def _at(ref: DatasetRef, row: int) -> "tuple[int, int, _File]":
    """First row of the file that holds a row, the one behind its last, and the file.

    It is kept open for the rows after these, and checked each time.
    """
    manifest = listed_files.read(snapshot_file(ref))
    number = int(np.searchsorted(manifest.starts, row, side="right")) - 1
    file = _opened(manifest.path, ref.fingerprint, number, threading.get_ident())
    file.check()
    return int(manifest.starts[number]), int(manifest.starts[number + 1]), file


@lru_cache(maxsize=16)
def _opened(manifest: Path, fingerprint: str, number: int, thread: int) -> "_File":
    """A file of the manifest; each thread has its own."""
    del fingerprint, thread
    listed = listed_files.read(manifest).listed(number)
    return (_Parquet if listed.layout.format == "parquet" else _TextFile)(listed)


class _File(ABC):
    """An open file of the manifest.

    `columns` are those that are read from it, and not from its folders; `begins` the rows that
    it can be read from.
    """

    columns: tuple[str, ...]
    begins: Sequence[int] | NDArray[np.int64]

    def __init__(self, listed: ListedFile) -> None:
        self.listed = listed
        self._info, self._checked = checked(listed.info, listed.sha256), time.monotonic()

    def check(self) -> None:
        """Raise DataSourceError where it was changed or is gone; ask a store now and then."""
        if not is_url(self._info.url) or time.monotonic() - self._checked >= _TRUSTED:
            self._info = checked(self._info, self.listed.sha256)
            self._checked = time.monotonic()

    def rows(self, start: int, stop: int) -> Iterator[RawRow]:
        """Rows of the file, by their number in it."""
        table = OpenTable(columns=self.columns, rows=lambda _: self._rows(start, stop))
        wanted = self.listed.columns.wanted
        return with_partitions(table, self.listed.info.url).rows(wanted)

    @abstractmethod
    def _rows(self, start: int, stop: int) -> Iterator[RawRow]:
        """As `rows`, without the columns of its folders."""

    def block(self, row: int) -> int:
        """The number in `begins` of the last row at or before this one."""
        return int(np.searchsorted(self.begins, row, side="right")) - 1


class _TextFile(_File):
    """A text file: as many rows as are noted together are read and kept at a time."""

    def __init__(self, listed: ListedFile) -> None:
        super().__init__(listed)
        self.columns = listed.own_columns(listed.layout.header or listed.columns.wanted)
        self.begins = listed.noted
        self._block, self._held = -1, list[RawRow]()

    def _rows(self, start: int, stop: int) -> Iterator[RawRow]:
        while start < stop:
            block = self.block(start)
            first = int(self.begins[block])
            if block != self._block:
                self._held, self._block = list(self._read(block)), block
            end = min(stop, first + len(self._held))
            if end <= start:
                raise DataSourceError(
                    f"{self.listed.info.url} has {start:,} rows where {self.listed.rows:,} were "
                    "planned; plan the audit again"
                )
            yield from self._held[start - first : end - first]
            start = end

    def _read(self, block: int) -> Iterator[RawRow]:
        rows = [*self.begins[block : block + 2], self.listed.rows]
        offsets = [*self.listed.offsets[block : block + 2], self.listed.info.size]
        path = any_path(self.listed.info.url)
        with _named(self.listed.info.url):
            content = io.BytesIO(part_of(path, int(offsets[0]), int(offsets[1])))
        lines = lines_of(content.readline, path, beginning=False)
        return islice(self.listed.layout.rows(lines, self.columns), int(rows[1] - rows[0]))


class _Parquet(_File):
    """A Parquet file: a row group is decoded from its beginning, and on from where it was left."""

    def __init__(self, listed: ListedFile) -> None:
        super().__init__(listed)
        path = any_path(listed.info.url)
        with reading(path):
            self._groups = RowGroups(lambda **how: parquet_file(path, **how), path)
        self.columns = listed.own_columns(self._groups.file.schema_arrow.names)
        self.begins = self._groups.starts

    def _rows(self, start: int, stop: int) -> Iterator[RawRow]:
        while start < stop:
            with reading(self.listed.info.url):
                first, batch = self._groups.batch_at(start, self.columns)
                yield from rows_of(batch.slice(start - first, stop - start), self.columns)
            start = first + len(batch)
