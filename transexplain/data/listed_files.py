"""The manifest of a dataset: a Parquet file that lists its files, and that stands for a snapshot.

A row is a file: where it lies, its size and state, its rows, which of its columns are read, and of
a text file where its rows begin. Like a snapshot it is named by its own sha256.
"""

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import IO, TypedDict

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from transexplain.data import file_formats
from transexplain.data.file_formats import Splitter
from transexplain.data.source_files import Problem, RawRow
from transexplain.data.table_source import Columns
from transexplain.files.remote_files import FileInfo

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


def write(
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


def read(path: Path) -> FileManifest:
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
