"""Reads rows of a dataset by its manifest, straight from its files and nothing beside them."""

import io
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from itertools import accumulate, islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from transexplain.data import listed_files
from transexplain.data.file_formats import lines_of
from transexplain.data.listed_files import ListedFile
from transexplain.data.parquet_files import RowGroups, rows_of
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
from transexplain.files import remote_files
from transexplain.files.paths import any_path, state_of
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


class LocatedFile:
    """A file of a plan, open at any byte; refused by name where it is not what it was."""

    def __init__(self, planned: FileInfo, sha256: str = "") -> None:
        """Open it; `sha256` is that of its bytes, "" where they were not read."""
        self.planned, self._sha256 = planned, sha256
        self._checked = float("-inf")
        self.check()

    def check(self) -> None:
        """Raise DataSourceError where the file was changed or is gone; ask a store now and then."""
        remote = is_url(self.planned.url)
        if remote and time.monotonic() - self._checked < _TRUSTED:
            return
        try:
            now = info_of(self.planned.url)
        except DataSourceError as error:
            raise DataSourceError(
                f"{error}; it was one of the data's files when the audit was planned: put it back "
                "and resume the run, or plan the audit again"
            ) from None
        same = (now.size, now.state) == (self.planned.size, self.planned.state)
        if not same and now.size == self.planned.size and self._sha256 and not remote:
            # put back with another time: its bytes decide, where they are known
            same = file_digest(Path(now.url)) == self._sha256
        if not same:
            raise DataSourceError(
                f"{now.url} has changed since the audit was planned: {self.planned.size:,} bytes "
                f"({self.planned.state}) then, {now.size:,} ({now.state}) now; put the file back "
                "with its time of change (cp -p, rsync -t) and resume the run, or plan again"
            )
        self.planned, self._checked = now, time.monotonic()

    def between(self, start: int, stop: int) -> bytes:
        """The bytes from `start` to `stop`, and no others; raises DataSourceError."""
        place = self.planned.url
        with _named(place):
            if is_url(place):
                return remote_files.read_range(place, start, stop)
            with Path(place).open("rb") as stream:
                stream.seek(start)
                return stream.read(stop - start)

    def arrow(self) -> Any:
        """The file for pyarrow, which closes it where it is forgotten."""
        place = self.planned.url
        with _named(place):
            if is_url(place):
                return pa.PythonFile(remote_files.RangeReader(place), mode="r")
            return pa.OSFile(place)


@contextmanager
def _named(place: str) -> Iterator[None]:
    """A block whose errors name the file."""
    try:
        yield
    except RemoteFileError as error:
        raise DataSourceError(str(error)) from None
    except OSError as error:
        raise DataSourceError(f"cannot read {place}: {error.strerror or error}") from error


_BUFFER = 1 << 20  #: bytes of a column that are fetched at once
#: files that a thread keeps open
_OPEN = 4


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
    return first + opened.aligned(row - first)


def changed_files(ref: DatasetRef) -> Iterator[str]:
    """Return what is wrong with each of the files that is not as it was when the audit was planned.

    Raises as `listed_files.read`, ObjectStoreError.
    """
    manifest = listed_files.read(snapshot_file(ref))
    for number in range(len(manifest.starts) - 1):
        listed = manifest.listed(number)
        try:
            LocatedFile(listed.info, listed.sha256)
        except DataSourceError as error:
            yield str(error)


_local = threading.local()


def _at(ref: DatasetRef, row: int) -> "tuple[int, int, _TextFile | _Parquet]":
    """First row of the file that holds a row, the one behind its last, and the file.

    It is kept open for the rows after these, and checked each time.
    """
    manifest = listed_files.read(snapshot_file(ref))
    number = int(np.searchsorted(manifest.starts, row, side="right")) - 1
    files: dict[tuple[str, int], _TextFile | _Parquet] = _local.__dict__.setdefault("files", {})
    key = (ref.fingerprint, number)
    known = files.pop(key, None)
    if known is None:
        while len(files) >= _OPEN:
            del files[next(iter(files))]
        listed = manifest.listed(number)
        known = (_Parquet if listed.layout.format == "parquet" else _TextFile)(listed)
    known.file.check()
    files[key] = known
    return int(manifest.starts[number]), int(manifest.starts[number + 1]), known


class _File(ABC):
    """A file of the manifest; `own` are the columns that are read from it, not from its folders."""

    own: tuple[str, ...]

    def __init__(self, listed: ListedFile) -> None:
        self.listed = listed
        self.file = LocatedFile(listed.info, listed.sha256)

    def rows(self, start: int, stop: int) -> Iterator[RawRow]:
        """Rows of the file, by their number in it."""
        table = OpenTable(columns=self.own, rows=lambda _: self.own_rows(start, stop))
        wanted = self.listed.columns.wanted
        return with_partitions(table, self.listed.info.url).rows(wanted)

    @abstractmethod
    def own_rows(self, start: int, stop: int) -> Iterator[RawRow]:
        """As `rows`, without the columns of its folders."""

    def own_of(self, names: Collection[str]) -> tuple[str, ...]:
        """The columns that are wanted and that a file of such columns has."""
        return tuple(name for name in self.listed.columns.wanted if name in names)


class _TextFile(_File):
    """A text file: as many rows as are noted together are read and kept at a time."""

    def __init__(self, listed: ListedFile) -> None:
        super().__init__(listed)
        self.own = self.own_of(listed.layout.header or listed.columns.wanted)
        self._block, self._held = -1, list[RawRow]()

    def own_rows(self, start: int, stop: int) -> Iterator[RawRow]:
        noted = self.listed.noted
        while start < stop:
            block = int(np.searchsorted(noted, start, side="right")) - 1
            first = int(noted[block])
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
        noted, offsets = self.listed.noted, self.listed.offsets
        last = block + 1 == len(noted)
        begin = int(offsets[block])
        end = self.listed.info.size if last else int(offsets[block + 1])
        count = (self.listed.rows if last else int(noted[block + 1])) - int(noted[block])
        stream = io.BytesIO(self.file.between(begin, end))
        lines = lines_of(stream.readline, Path(self.listed.info.url), beginning=False)
        return islice(self.listed.layout.rows(lines, self.own), count)

    def aligned(self, row: int) -> int:
        """The last noted row at or before this one."""
        noted = self.listed.noted
        return int(noted[np.searchsorted(noted, row, side="right") - 1])


class _Parquet(_File):
    """A Parquet file: a row group is decoded from its beginning, and on from where it was left."""

    def __init__(self, listed: ListedFile) -> None:
        super().__init__(listed)
        with reading(listed.info.url):
            self._groups = RowGroups(
                lambda **how: pq.ParquetFile(self.file.arrow(), buffer_size=_BUFFER, **how),
                listed.info.url,
            )
            self.own = self.own_of(self._groups.file.schema_arrow.names)
            metadata = self._groups.file.metadata
            sizes = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
        self._starts = np.array([*accumulate(sizes, initial=0)], dtype=np.int64)
        self._group = -1
        self._batches: Iterator[Any] = iter(())
        self._batch: Any = None  #: decoded last
        self._first = 0  #: its first row in the file

    def own_rows(self, start: int, stop: int) -> Iterator[RawRow]:
        while start < stop:
            with reading(self.listed.info.url):
                group = int(np.searchsorted(self._starts, start, side="right")) - 1
                if group != self._group or start < self._first:
                    self._group, self._first = group, int(self._starts[group])
                    self._batch = None
                    self._batches = self._groups.batches(group, self.own)
                while self._batch is None or start >= self._first + len(self._batch):
                    self._first += 0 if self._batch is None else len(self._batch)
                    self._batch = next(self._batches, None)
                    if self._batch is None:
                        raise EOFError("it ends early")
                some = self._batch.slice(start - self._first, stop - start)
                yield from rows_of(some, self.own)
            start += len(some)

    def aligned(self, row: int) -> int:
        """The first row of the row group of this one."""
        return int(self._starts[np.searchsorted(self._starts, row, side="right") - 1])
