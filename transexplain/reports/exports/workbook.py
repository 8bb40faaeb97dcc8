"""A run's findings as a workbook (.xlsx): the tables of the CSV export, a sheet each."""

import re
from math import isfinite
from pathlib import Path
from typing import Any

from transexplain.errors import ConfigurationError
from transexplain.registry import require
from transexplain.reports.exports.csv_tables import tables_for
from transexplain.reports.exports.export_run import Redaction, check_over, replacing
from transexplain.reports.phrasing import encodable
from transexplain.reports.tables import Table
from transexplain.store.database import Database
from transexplain.types.plans import AuditRun

_ROWS = 1_048_576  #: of a sheet, its head among them
_CHARACTERS = 32_767  #: of a cell
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")  #: no XML holds them


def write(db: Database, run: AuditRun, path: Path, redaction: Redaction | None = None) -> None:
    """Write the workbook `path`, redacted as the CSV export is.

    No cell is a formula. Control characters become the replacement character, and of a text longer
    than a cell holds the beginning is kept. Raises ConfigurationError: the run is not over, a table
    has more rows than a sheet, `path` cannot be written, or openpyxl is not installed.
    """
    require("openpyxl", "excel")
    from openpyxl import Workbook

    check_over(run, "workbook")
    book = Workbook(write_only=True)
    try:
        for table in tables_for(db, run, redaction):
            _fill(book.create_sheet(table.name), table)
        if not book.worksheets:
            book.create_sheet("empty")
    except BaseException:
        for sheet in book.worksheets:
            sheet.close()  # each has a temporary file
        raise
    with replacing(path) as partial:
        book.save(partial)


def _fill(sheet: Any, table: Table) -> None:
    from openpyxl.cell import WriteOnlyCell

    sheet.freeze_panes = "A2"
    sheet.append([column.title for column in table.columns])
    for place, row in enumerate(table.rows, start=2):
        if place > _ROWS:
            raise ConfigurationError(
                f"{table.name} has more rows than the {_ROWS:,} of a sheet; use --format csv, "
                "or parquet for rows of items"
            )
        cells = [WriteOnlyCell(sheet, _cell(column.cell(row))) for column in table.columns]
        for cell in cells:
            if cell.data_type == "f":
                cell.data_type = "s"
        sheet.append(cells)


def _cell(value: Any) -> Any:
    if isinstance(value, float) and not isfinite(value):
        return str(value)  # no sheet holds it as a number
    if not isinstance(value, str):
        return value
    text = _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", encodable(value))
    return text if len(text) <= _CHARACTERS else f"{text[: _CHARACTERS - 1]}…"
