"""Rows of CSV and TSV files, with explicit quoting and without losing a row to a bad byte.

Bytes that are not UTF-8 come through as lone surrogates, so that the check of the cell finds
them and only that row is lost.
"""

import csv
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from transexplain.data.lines import open_lines, without_trailing
from transexplain.data.records import MAX_ROW, Problem, RawRow, Table, printable
from transexplain.errors import DataSourceError
from transexplain.plans import DatasetSpec

_UNQUOTED = "quoting: none reads quotes as plain characters"

Cells = list[str] | Problem


def open_csv(path: Path, spec: DatasetSpec) -> AbstractContextManager[Table]:
    """A comma-separated file with a header line; RFC 4180 quoting unless the spec says none."""
    return _open(path, ",", quoted=spec.quoting != "none")


def open_tsv(path: Path, spec: DatasetSpec) -> AbstractContextManager[Table]:
    """A tab-separated file with a header line; no quoting unless the spec says rfc4180."""
    return _open(path, "\t", quoted=spec.quoting == "rfc4180")


@contextmanager
def _open(path: Path, delimiter: str, *, quoted: bool) -> Iterator[Table]:
    with open_lines(path) as lines:
        split = _split_quoted if quoted else _split_plain
        cells = without_trailing(split(lines, delimiter), _is_blank)
        header = _header(next(cells, None), path)
        yield Table(
            columns=tuple(header), rows=lambda wanted: _pick(cells, header, wanted, delimiter)
        )


def _header(cells: Cells | None, path: Path) -> list[str]:
    if cells is None:
        raise DataSourceError(f"{path} is empty; its first line must name the columns")
    if isinstance(cells, Problem):
        raise DataSourceError(
            f"{path}: the header line cannot be read: {cells.message}; the first line must name "
            "the columns, and lines must end with LF or CRLF"
        )
    return [printable(name) for name in cells]


def _pick(
    rows: Iterator[Cells], header: Sequence[str], wanted: Sequence[str], delimiter: str
) -> Iterator[RawRow]:
    positions = [(name, header.index(name)) for name in wanted]
    width = len(header)
    for cells in rows:
        if isinstance(cells, Problem):
            yield cells
        elif len(cells) == width:
            yield {name: cells[position] for name, position in positions}
        else:
            kind = "tab" if delimiter == "\t" else "comma"
            yield Problem(
                kind="malformed-row",
                message=f"{len(cells)} {kind}-separated cells where the header names {width}",
            )


def _is_blank(cells: Cells) -> bool:
    return cells == [] or (
        isinstance(cells, list) and len(cells) == 1 and not cells[0].strip(" \r\n")
    )


def _split_plain(lines: Iterator[bytes | Problem], delimiter: str) -> Iterator[Cells]:
    for line in lines:
        if isinstance(line, Problem):
            yield line
        else:
            text = _decode(line).removesuffix("\n").removesuffix("\r")
            yield text.split(delimiter)


def _decode(line: bytes) -> str:
    return line.decode("utf-8", "surrogateescape")


class _Rewindable:
    """Lines for a csv reader that can be given again from the second line of the record on."""

    def __init__(self, lines: Iterator[bytes | Problem]) -> None:
        self._lines = lines
        self._again: deque[str | Problem] = deque()
        self._record: list[str | Problem] = []
        self._length = 0

    def __iter__(self) -> "_Rewindable":
        return self

    def __next__(self) -> str:
        line = self._again.popleft() if self._again else self._fresh()
        self._record.append(line)
        if isinstance(line, Problem):
            raise csv.Error(line.message)
        self._length += len(line)
        if self._length > MAX_ROW:
            raise csv.Error(f"the row is longer than {MAX_ROW:,} characters")
        return line

    def _fresh(self) -> str | Problem:
        line = next(self._lines)
        return line if isinstance(line, Problem) else _decode(line)

    def begin(self) -> None:
        """The next line is the first of a record."""
        self._record.clear()
        self._length = 0

    def rewind(self) -> None:
        """Give every line of this record but its first once more."""
        self._again.extendleft(reversed(self._record[1:]))


def _split_quoted(lines: Iterator[bytes | Problem], delimiter: str) -> Iterator[Cells]:
    # The limit is global to the process and 131,072 by default; it is only ever raised here, so
    # that two readers at once cannot lower it under each other.
    csv.field_size_limit(max(csv.field_size_limit(), MAX_ROW))
    source = _Rewindable(lines)
    reader = csv.reader(source, delimiter=delimiter, strict=True)
    while True:
        source.begin()
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            # A stray quote would swallow the rows up to the next quote, or to the end of the
            # file: only its own line is given up and the lines after it are read afresh.
            source.rewind()
            yield Problem(kind="malformed-row", message=f"bad quoting ({error}); {_UNQUOTED}")
            continue
        yield cells
