"""Reads Excel workbooks: one sheet, whose first row names the columns."""

import datetime as dt
import io
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import chain
from typing import Any

from transexplain.data.file_formats import without_trailing
from transexplain.data.source_files import Problem, RawRow, Table, printable, unreadable
from transexplain.errors import DataSourceError
from transexplain.registry import require
from transexplain.remote_paths import AnyPath, RemotePath
from transexplain.types.plans import DatasetSpec


@contextmanager
def open_workbook(path: AnyPath, spec: DatasetSpec) -> Iterator[Table]:
    """The sheet of the specification, or the first; cells hold what Excel last computed.

    Raises DataSourceError where the file is no workbook, is damaged, or has no such sheet;
    ConfigurationError where the extra that reads workbooks is not installed.
    """
    require("openpyxl", "excel")
    import openpyxl

    try:
        content = io.BytesIO(path.read_bytes()) if isinstance(path, RemotePath) else path
        book = openpyxl.load_workbook(content, read_only=True, data_only=True)
    except (OSError, zipfile.BadZipFile, KeyError, ValueError) as error:
        raise unreadable(path, error) from error
    with closing(book):
        rows = without_trailing(_sheet(book, spec.sheet, path).values, _is_blank)
        header = _header(next(rows, ()), path)
        yield Table(columns=tuple(header), rows=lambda wanted: _picked(rows, header, wanted))


def _sheet(book: Any, wanted: str | None, path: AnyPath) -> Any:
    names = [sheet.title for sheet in book.worksheets]
    if wanted is None and names:
        return book.worksheets[0]
    if wanted not in names:
        listed = ", ".join(map(repr, names)) or "none"
        raise DataSourceError(f"{path} has no sheet {wanted!r}; its sheets: {listed}")
    return book[wanted]


def _is_blank(cells: Sequence[Any]) -> bool:
    return all(cell is None for cell in cells)


def _header(cells: Sequence[Any], path: AnyPath) -> list[str]:
    names = ["" if cell is None else printable(str(cell)) for cell in cells]
    while names and not names[-1]:
        names.pop()
    if not names:
        raise DataSourceError(f"{path}: the first row of the sheet must name the columns")
    return names


def _picked(
    rows: Iterator[Sequence[Any]], header: Sequence[str], wanted: Sequence[str]
) -> Iterator[RawRow]:
    places = [(name, header.index(name)) for name in wanted]
    for cells in rows:
        beyond = [cell for cell in cells[len(header) :] if cell is not None]
        if beyond:
            yield Problem(
                kind="malformed-row",
                message=f"{len(beyond)} cells to the right of the last named column",
            )
        else:
            full = list(chain(cells, [None] * len(header)))
            yield {name: _plain(full[place]) for name, place in places}


def _plain(cell: Any) -> Any:
    return cell.isoformat() if isinstance(cell, dt.date | dt.time) else cell
