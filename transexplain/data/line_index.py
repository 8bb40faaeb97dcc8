"""Where the rows of a text file begin: the byte of about every 256th, so that any is read alone.

Rows are what `file_formats` makes of the file: a line of JSON, a line of cells, or a record whose
quoted cells hold line ends.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from transexplain.data import file_formats
from transexplain.data.file_formats import Splitter
from transexplain.data.source_files import Problem, RawRow

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


@dataclass(frozen=True, kw_only=True, slots=True)
class LineIndex:
    """Where rows begin, and what reading the whole file has told."""

    rows: int  #: of the file, blank ones at its end left out
    sha256: str  #: of its bytes
    noted: NDArray[np.int64]  #: (N,) ascending rows that are noted, the first of all among them
    offsets: NDArray[np.int64]  #: (N,) bytes at which they begin


class _Counted:
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


def index_lines(stream: IO[bytes], place: str, layout: Layout) -> LineIndex:
    """Read a file from its beginning to its end; raises DataSourceError where that fails."""
    counted = _Counted(stream)
    lines = file_formats.lines_of(counted, Path(place))
    starts: Iterator[tuple[int | None, bool]]
    if layout.format == "jsonl":
        starts = _plain_starts(lines, counted, _mark(stream))
    else:
        starts = _cell_starts(lines, counted, layout)
    noted, offsets, rows = [0], [0], 0
    for row, (offset, blank) in enumerate(starts):
        if row == 0:
            offsets[0] = offset or 0
        elif offset is not None and row - noted[-1] >= STEP:
            noted.append(row)
            offsets.append(offset)
        if not blank:
            rows = row + 1
    kept = int(np.searchsorted(noted, max(1, rows)))
    return LineIndex(
        rows=rows,
        sha256=counted.digest.hexdigest(),
        noted=np.array(noted[:kept], dtype=np.int64),
        offsets=np.array(offsets[:kept], dtype=np.int64),
    )


def _mark(stream: IO[bytes]) -> int:
    """Bytes of the mark at the beginning of a file in UTF-8; the stream stays there."""
    found = stream.read(len(file_formats.UTF8_MARK))
    stream.seek(0)
    return len(found) if found == file_formats.UTF8_MARK else 0


def _plain_starts(
    lines: Iterator[bytes | Problem], counted: _Counted, first: int
) -> Iterator[tuple[int | None, bool]]:
    """Where each line begins, and whether it is blank."""
    start = first
    for line in lines:
        yield start, file_formats.is_blank(line)
        start = counted.consumed


def _cell_starts(
    lines: Iterator[bytes | Problem], counted: _Counted, layout: Layout
) -> Iterator[tuple[int | None, bool]]:
    """As `_plain_starts`, of records; None where one began amid lines that were read before."""
    begun: list[int] = []

    def note() -> None:
        begun[:] = [counted.consumed]

    cells = layout.splitter(lines, layout.delimiter, note)
    yield from islice(_begun(cells, begun), 1, None)  # the first is the header


def _begun(cells: Iterator[Any], begun: list[int]) -> Iterator[tuple[int | None, bool]]:
    for one in cells:
        start = begun[0] if begun else None
        begun.clear()
        yield start, file_formats.is_blank_row(one)
