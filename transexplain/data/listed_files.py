"""The manifest of a dataset: a Parquet file that lists its files, and that stands for a snapshot.

A row is a file: where it lies, its size and state, its rows, which of its columns are read, and of
a text file where its rows begin. Like a snapshot it is named by its own sha256. Rows are read
straight from the files, and nothing beside them.
"""

import hashlib
import io
import json
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import IO, Any, TypedDict

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from transexplain.data import file_formats
from transexplain.data.file_formats import Splitter
from transexplain.data.parquet_files import RowGroups, parquet_file, rows_of
from transexplain.data.source_files import (
    OpenTable,
    Problem,
    RawRow,
    Record,
    file_digest,
    reading,
    snapshot_file,
    with_partitions,
)
from transexplain.data.table_source import Columns, RowReader
from transexplain.errors import DataSourceError, RemoteFileError
from transexplain.files.paths import any_path, info_of, part_of
from transexplain.files.remote_files import FileInfo, is_url
from transexplain.types.plans import DatasetRef

#: rows between two that are noted, as many as are read at once
STEP = 256


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """How the rows of a text file are read, but where they are."""

    format: str  #: csv, tsv or jsonl
    delimiter: str = ""
    quoted: bool = False
    header: tuple[str, ...] = ()  #: names of the cells; of JSON none

    def rows(self, lines: Iterator[bytes | Problem], wanted: Sequence[str]) -> Iterator[RawRow]:
        """The wanted columns of each row of some lines, none of which is the header."""
        if self.format == "jsonl":
            return file_formats.picked(map(file_formats.parsed, lines), wanted)
        cells = self.splitter(lines, self.delimiter, file_formats.unnoted)
        return file_formats.picked_cells(cells, self.header, wanted, self.delimiter)

    @property
    def splitter(self) -> Splitter:
        """Cuts lines into cells."""
        return file_formats.split_quoted if self.quoted else file_formats.split_plain


class _CountedLines:
    """Lines of a stream; counts its bytes and hashes them."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.consumed = 0
        self.digest = hashlib.sha256()

    def readline(self, size: int, /) -> bytes:
        line = self._stream.readline(size)
        self.consumed += len(line)
        self.digest.update(line)
        return line


def index_lines(stream: IO[bytes], listed: "ListedFile") -> "ListedFile":
    """The file with where its rows begin and its digest: `stream` is read from beginning to end.

    Raises DataSourceError where that fails.
    """
    counted = _CountedLines(stream)
    lines = file_formats.lines_of(counted.readline, Path(listed.info.url))
    mark = stream.read(len(file_formats.UTF8_MARK))
    stream.seek(0)
    first = len(mark) if mark == file_formats.UTF8_MARK else 0
    noted, offsets, rows = [0], [first], 0
    for row, (offset, blank) in enumerate(_starts(lines, counted, listed.layout, first)):
        if row == 0:
            offsets[0] = offset or 0
        elif offset is not None and row - noted[-1] >= STEP:
            noted.append(row)
            offsets.append(offset)
        if not blank:
            rows = row + 1
    kept = int(np.searchsorted(noted, max(1, rows)))
    return replace(
        listed,
        rows=rows,
        sha256=counted.digest.hexdigest(),
        noted=np.array(noted[:kept], dtype=np.int64),
        offsets=np.array(offsets[:kept], dtype=np.int64),
    )


def _starts(
    lines: Iterator[bytes | Problem], counted: _CountedLines, layout: Layout, first: int
) -> Iterator[tuple[int | None, bool]]:
    """Where each row begins, and whether it is blank; None: amid lines that were read before."""
    if layout.format == "jsonl":
        start = first
        for line in lines:
            yield start, file_formats.is_blank(line)
            start = counted.consumed
        return
    begun: list[int] = []
    cells = layout.splitter(lines, layout.delimiter, lambda: begun.append(counted.consumed))
    for number, row in enumerate(cells):
        if number:  # the first is the header
            yield begun[-1] if begun else None, file_formats.is_blank_row(row)
        begun.clear()


_COLUMNS = {
    "file": pa.string(),  #: JSON, see `_FileFacts`
    "rows": pa.int64(),
    "noted": pa.list_(pa.int64()),
    "offsets": pa.list_(pa.int64()),
}
_SCHEMA = pa.schema([pa.field(name, kind, nullable=False) for name, kind in _COLUMNS.items()])
_FACTS = b"transexplain_manifest"
#: files of a row group, and rows that are noted in it
_TOGETHER, _NOTED = 256, 65_536
_NONE = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ListedFile:
    """A file of a dataset as it was when the audit was planned."""

    info: FileInfo
    sha256: str = ""  #: of its bytes; "": they were not read
    rows: int  #: blank ones at its end left out
    columns: Columns
    layout: Layout
    #: (N,) ascending rows of a text file that are noted, the first of all among them
    noted: NDArray[np.int64] = field(default_factory=lambda: _NONE)
    offsets: NDArray[np.int64] = field(
        default_factory=lambda: _NONE
    )  #: (N,) bytes that they begin at

    def own_columns(self, names: Collection[str]) -> tuple[str, ...]:
        """The wanted columns among those that the file itself has."""
        return tuple(name for name in self.columns.wanted if name in names)


class _FileFacts(TypedDict):
    """What is kept of a file beside its rows."""

    info: FileInfo
    sha256: str
    columns: Columns
    layout: Layout


@dataclass(frozen=True, kw_only=True, slots=True)
class FileManifest:
    """What a manifest says of all its files together, and where each begins."""

    path: Path
    starts: NDArray[np.int64]  #: (N + 1,) first row of each file in the dataset; at the end all
    #: row -> first row of its cluster, of those that have one; None: clusters are named by a column
    clusters: Mapping[int, int] | None
    found: Mapping[str, int]  #: what was found in the texts, as in a snapshot
    groups: tuple[int, ...]  #: first file of each row group
    columns: tuple[str, ...]  #: those of a snapshot of the same data

    def listed(self, number: int) -> ListedFile:
        """The file of this number, with where its rows begin."""
        group = int(np.searchsorted(self.groups, number, side="right")) - 1
        return _group(self.path, group)[number - self.groups[group]]


def write_manifest(
    path: Path,
    files: Iterable[ListedFile],
    *,
    clusters: Mapping[int, int] | None,
    found: Mapping[str, int],
    columns: Sequence[str],
) -> int:
    """Write a manifest, a row group at a time; how many rows all files have.

    The same files always give the same bytes. Raises OSError where it cannot be written.
    """
    facts = {
        "clusters": None if clusters is None else [list(cluster) for cluster in clusters.items()],
        "found": dict(found),
        "columns": list(columns),
    }
    schema = _SCHEMA.with_metadata({_FACTS: json.dumps(facts, sort_keys=True).encode()})
    rows, some, noted = 0, list[ListedFile](), 0
    with pq.ParquetWriter(path, schema, compression="zstd", write_statistics=False) as writer:
        for file in files:
            some.append(file)
            rows, noted = rows + file.rows, noted + len(file.noted)
            if len(some) == _TOGETHER or noted >= _NOTED:
                writer.write_table(_table(some, schema), row_group_size=len(some))
                some, noted = [], 0
        if some:
            writer.write_table(_table(some, schema), row_group_size=len(some))
    return rows


def _table(files: Sequence[ListedFile], schema: pa.Schema) -> pa.Table:
    facts = [
        _FileFacts(info=file.info, sha256=file.sha256, columns=file.columns, layout=file.layout)
        for file in files
    ]
    columns = {
        "file": [msgspec.json.encode(fact, order="deterministic").decode() for fact in facts],
        "rows": [file.rows for file in files],
        "noted": [file.noted for file in files],
        "offsets": [file.offsets for file in files],
    }
    return pa.table(columns, schema=schema)


def read_manifest(path: Path) -> FileManifest:
    """The manifest, without where rows begin in its files; it was verified before."""
    stat = path.stat()
    return _read(path, stat.st_mtime_ns, stat.st_size)


@lru_cache(maxsize=16)
def _read(path: Path, changed: int, size: int) -> FileManifest:
    del changed, size  # one that was written anew is read anew
    with pq.ParquetFile(path, pre_buffer=False) as file:
        metadata = file.metadata
        rows = file.read(columns=["rows"], use_threads=False).column(0).to_numpy()
        counts = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
        facts = json.loads(file.schema_arrow.metadata[_FACTS])
    clusters = facts["clusters"]
    return FileManifest(
        path=path,
        starts=np.concatenate([[0], np.cumsum(rows)]).astype(np.int64),
        clusters=None if clusters is None else {int(row): int(first) for row, first in clusters},
        found=facts["found"],
        groups=tuple(np.concatenate([[0], np.cumsum(counts)[:-1]]).astype(int).tolist()),
        columns=tuple(facts["columns"]),
    )


@lru_cache(maxsize=4)
def _group(path: Path, group: int) -> list[ListedFile]:
    with pq.ParquetFile(path, pre_buffer=False) as file:
        table = file.read_row_group(group, use_threads=False)
    rows = table.column("rows").to_pylist()
    noted, offsets = (
        [cell.values.to_numpy() for cell in table.column(name)] for name in ("noted", "offsets")
    )
    return [
        ListedFile(
            **msgspec.json.decode(facts.as_py(), type=_FileFacts),
            rows=rows[place],
            noted=noted[place],
            offsets=offsets[place],
        )
        for place, facts in enumerate(table.column("file"))
    ]


#: seconds for which a remote file is taken to be what it was
_TRUSTED = 10.0


def checked(planned: FileInfo, sha256: str) -> FileInfo:
    """What a file of a plan is now; `sha256` is that of its bytes, "" where they were not read.

    Raises DataSourceError where it was changed or is gone, ObjectStoreError.
    """
    try:
        with _named(planned.url):
            now = info_of(any_path(planned.url))
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
    manifest = read_manifest(snapshot_file(ref))
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

    Raises as `read_manifest`, ObjectStoreError.
    """
    manifest = read_manifest(snapshot_file(ref))
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
    manifest = read_manifest(snapshot_file(ref))
    number = int(np.searchsorted(manifest.starts, row, side="right")) - 1
    file = _opened(manifest.path, ref.fingerprint, number, threading.get_ident())
    file.check()
    return int(manifest.starts[number]), int(manifest.starts[number + 1]), file


@lru_cache(maxsize=16)
def _opened(manifest: Path, fingerprint: str, number: int, thread: int) -> "_File":
    """A file of the manifest; each thread has its own."""
    del fingerprint, thread
    listed = read_manifest(manifest).listed(number)
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
        lines = file_formats.lines_of(content.readline, path, beginning=False)
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
