"""The workbook holds the tables of the CSV export, and nothing that computes."""

import csv
from pathlib import Path
from typing import Any

import pytest
from report_samples import biased_run, explained_text, stored_run

from transexplain.errors import ConfigurationError
from transexplain.reports.exports import workbook
from transexplain.reports.exports.export_run import export
from transexplain.store.database import Database

openpyxl = pytest.importorskip("openpyxl", reason="the extra `excel` is not installed")


def sheets(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    book = openpyxl.load_workbook(path)
    return {sheet.title: list(sheet.iter_rows(values_only=True)) for sheet in book}


def test_its_sheets_are_the_tables_of_the_csv_export(db: Database, tmp_path: Path) -> None:
    run_id = biased_run(db)
    export(db, run_id, "csv", tmp_path / "csv")
    export(db, run_id, "xlsx", tmp_path / "run.xlsx")
    book = sheets(tmp_path / "run.xlsx")
    assert set(book) == {path.stem for path in (tmp_path / "csv").iterdir()}
    for path in (tmp_path / "csv").iterdir():
        with path.open(encoding="utf-8", newline="") as file:
            head, *rows = csv.reader(file, strict=True)
        assert list(book[path.stem][0]) == head
        for cells, row in zip(book[path.stem][1:], rows, strict=True):
            for cell, text in zip(cells, row, strict=True):
                if isinstance(cell, int | float) and not isinstance(cell, bool):
                    assert cell == pytest.approx(float(text), rel=1e-15, abs=0.0)
                else:
                    assert text.lstrip("'") == ("" if cell is None else str(cell)).lstrip("'")


def test_no_cell_is_a_formula_or_breaks_the_file(db: Database, tmp_path: Path) -> None:
    hostile = '=HYPERLINK("http://x")\x00\x1b\ud800' + "x" * 40_000
    outcome, attribution = explained_text(0, "good", None)
    run_id = stored_run(db, [(outcome, attribution)], name=hostile[:22])
    export(db, run_id, "xlsx", tmp_path / "run.xlsx")
    cell = workbook._cell(hostile)
    assert len(cell) == 32_767 and cell.startswith('=HYPERLINK("http://x")���xxx')
    book = openpyxl.load_workbook(tmp_path / "run.xlsx")
    cells = [cell for sheet in book for row in sheet.iter_rows() for cell in row]
    assert cells and all(cell.data_type != "f" for cell in cells)


def test_a_table_that_no_sheet_holds_is_refused(
    db: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id, path = biased_run(db), tmp_path / "run.xlsx"
    monkeypatch.setattr(workbook, "_ROWS", 10)
    with pytest.raises(ConfigurationError, match="csv"):
        export(db, run_id, "xlsx", path)
    assert not path.exists()
