"""Reads Excel workbooks: one sheet, whose first row names the columns."""

import datetime as dt
import io
import re
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from itertools import chain, islice
from typing import Any

from transexplain.data.file_formats import without_trailing
from transexplain.data.source_files import RATIO, OpenTable, Problem, RawRow, printable
from transexplain.errors import DataSourceError
from transexplain.files.paths import AnyPath, RemotePath
from transexplain.registry import require
from transexplain.types.plans import DatasetSpec

_ROWS = 1 << 20  #: of a sheet of Excel
#: bytes that all parts unpack to, and each of those that are held in memory, which takes ten times
#: as much; smaller ones may be packed as tightly as they like
_WHOLE, _HELD, _SMALL = 1 << 29, 1 << 26, 1 << 20
_PIECE = 1 << 20
#: a formula at the end of its cell, or before an empty value
_NO_VALUE = re.compile(rb"(?:</f>|<f[^<>]{0,200}/>)(?:<v ?/>|<v></v>)?</c>")
_CELL, _LONGEST = b"</c>", 300  #: how a cell ends, and bytes that what is looked for has at most
#: a character that XML or Excel does not hold as itself (ECMA-376 part 1, 22.9.2.19)
_ESCAPED = re.compile("_x([0-9A-Fa-f]{4})_")
#: what Excel shows where it cannot compute
_ERRORS = {"#NULL!", "#DIV/0!", "#VALUE!", "#REF!", "#NAME?", "#NUM!", "#N/A", "#GETTING_DATA"}


@contextmanager
def open_workbook(path: AnyPath, spec: DatasetSpec) -> Iterator[OpenTable]:
    """The sheet of the specification, or the first; cells hold what Excel last computed.

    Raises DataSourceError where the file is no workbook, is too large, or has no such sheet;
    ConfigurationError where the extra that reads workbooks is not installed.
    """
    require("openpyxl", "excel")
    import openpyxl

    with ExitStack() as stack:
        remote = isinstance(path, RemotePath)
        content = stack.enter_context(io.BytesIO(path.read_bytes()) if remote else path.open("rb"))
        _refuse_large(content, path)
        book = openpyxl.load_workbook(content, read_only=True, data_only=True)
        stack.enter_context(closing(book))
        sheet = _sheet(book, spec.sheet, path)
        from openpyxl.cell.text import Text
        from openpyxl.xml.constants import SHEET_MAIN_NS
        from openpyxl.xml.functions import iterparse

        for name in book._archive.namelist():
            if name.lower().endswith("sharedstrings.xml") and b"x005F_" in book._archive.read(name):
                with book._archive.open(name) as part:
                    nodes = (
                        node for _, node in iterparse(part) if node.tag == f"{{{SHEET_MAIN_NS}}}si"
                    )
                    sheet._shared_strings[:] = [Text.from_tree(node).content for node in nodes]
        sheet.reset_dimensions()  # what the file says of its size is not true of it
        cells = sheet.iter_rows(max_row=_ROWS + 1, values_only=True)
        rows = without_trailing(
            _bounded(cells, path), lambda row: all(cell is None for cell in row)
        )
        header = ["" if cell is None else printable(str(_plain(cell))) for cell in next(rows, ())]
        while header and not header[-1]:
            header.pop()
        if not header:
            raise DataSourceError(f"{path}: the first row of the sheet must name the columns")
        yield OpenTable(
            columns=tuple(header),
            rows=lambda wanted: _picked(rows, header, wanted),
            notes=(*_other_sheets(book, spec.sheet), *_without_values(sheet)),
        )


def _refuse_large(content: Any, path: AnyPath) -> None:
    """Raise DataSourceError for parts that unpack to more than is read; no more is, of any part."""
    try:
        with zipfile.ZipFile(content) as book:
            parts = book.infolist()
    except zipfile.BadZipFile as error:
        raise DataSourceError(
            f"cannot read {path}: it is no workbook, damaged, or has a password ({error}); check "
            "the file, and save it as .xlsx without one"
        ) from error
    for part in parts:
        held = not part.filename.startswith("xl/worksheets/")
        dense = part.file_size > max(_SMALL, RATIO * part.compress_size)
        if dense or (held and part.file_size > _HELD):
            _refuse(path, f"{printable(part.filename)} unpacks to {part.file_size:,} bytes")
    if (whole := sum(part.file_size for part in parts)) > _WHOLE:
        _refuse(path, f"it unpacks to {whole:,} bytes")


def _refuse(path: AnyPath, why: str) -> None:
    raise DataSourceError(f"{path} is too large for a workbook: {why}; save the sheet as csv")


def _bounded(rows: Iterator[Sequence[Any]], path: AnyPath) -> Iterator[Sequence[Any]]:
    yield from islice(rows, _ROWS)
    if next(rows, None) is not None:
        _refuse(path, f"its sheet has more than {_ROWS:,} rows")


def _sheet(book: Any, wanted: str | None, path: AnyPath) -> Any:
    names = [sheet.title for sheet in book.worksheets]
    if wanted is None and names:
        return book.worksheets[0]
    if not names:
        raise DataSourceError(f"{path} holds no sheet that can be read; check the file")
    if wanted not in names:
        listed = ", ".join(map(repr, names))
        raise DataSourceError(f"{path} has no sheet {wanted!r}; its sheets: {listed}")
    return book[wanted]


def _other_sheets(book: Any, wanted: str | None) -> Iterator[str]:
    first, *others = (sheet.title for sheet in book.worksheets)
    if wanted is None and others:
        shown = ", ".join(map(repr, others[:5])) + (", ..." if len(others) > 5 else "")
        yield f"the sheet {first!r} is read; it has {shown} too, which data.sheet names"


def _without_values(sheet: Any) -> Iterator[str]:
    """Return what a sheet holds that reads as empty cells."""
    merged = formulas = 0
    piece = rest = b"<"
    with sheet._get_source() as part:
        while piece:
            piece = part.read(_PIECE)
            text = rest + piece
            last = text.rfind(_CELL)
            end = last + len(_CELL) if last >= 0 else max(0, len(text) - _LONGEST)
            end = end if piece else len(text)
            merged += text.count(b"<mergeCell ", 0, end)
            formulas += len(_NO_VALUE.findall(text, 0, end))
            rest = text[end:]
    if merged:
        yield (
            f"{merged:,} ranges of cells are merged, only the first cell of each has a value; "
            "unmerge them"
        )
    if formulas:
        yield (
            f"{formulas:,} cells hold formulas without a value: open the workbook in a program "
            "that computes them, and save it"
        )


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
    if isinstance(cell, str):
        return None if cell in _ERRORS else _ESCAPED.sub(_unescaped, cell)
    if isinstance(cell, dt.timedelta):
        return str(cell)
    return cell.isoformat() if isinstance(cell, dt.date | dt.time) else cell


def _unescaped(escape: re.Match[str]) -> str:
    code = int(escape[1], 16)
    return escape[0] if 0xD800 <= code <= 0xDFFF else chr(code)
