"""What files hold that would be lost without a word: it is read, refused, or noted."""

import datetime as dt
from pathlib import Path
from typing import Any, Literal

import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from data_files import labels, planned, read, told, write
from hostile_files import parts, zipped

from transexplain.errors import DataSourceError
from transexplain.types.plans import DatasetRef

Snapshot = Literal["copy", "manifest"]


def noted(ref: DatasetRef) -> str:
    return " ".join(ref.read_as)


@pytest.mark.parametrize("snapshot", ["copy", "manifest"])
@pytest.mark.parametrize("form", ["csv", "parquet", "jsonl"])
def test_a_file_without_the_labels_that_others_have_is_noted(
    form: str, snapshot: Snapshot, tmp_path: Path
) -> None:
    for name, row in (
        ("a", {"text": "x", "label": "y"}),
        ("b", {"text": "z"}),
        ("c", {"text": "w"}),
    ):
        write(tmp_path / f"{name}.{form}", [row])
    for _ in range(2):  # the second time the snapshot is remembered
        found = planned(tmp_path / f"*.{form}", tmp_path, snapshot=snapshot)
        assert labels(read(found)) == ["y", None, None]
        assert f"b.{form} and 1 more" in noted(found) and f"a.{form}" not in noted(found)
    for name in "ab":
        found = planned(tmp_path / f"{name}.{form}", tmp_path, snapshot=snapshot)
        assert "label" not in noted(found)


@pytest.mark.parametrize("name", ["Label", " label", "labels"])
def test_a_column_that_is_nearly_called_label_is_noted(name: str, tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv", [{"text": "a", name: "b"}])
    found = planned(path, tmp_path)
    assert labels(read(found)) == [None] and repr(name) in noted(found)
    found = planned(path, tmp_path, label=name)
    assert labels(read(found)) == ["b"] and not noted(found)


def workbook(path: Path, rows: list[list[Any]], *others: str) -> openpyxl.Workbook:
    book = openpyxl.Workbook()
    book.active.title = "first"
    for row in rows:
        book.active.append(row)
    for name in others:
        book.create_sheet(name).append(["text", "label"])
        book[name].append(["other", None])
    book.save(path)
    return book


def test_a_sheet_is_read_and_those_that_are_not_are_noted(tmp_path: Path) -> None:
    path = tmp_path / "x.xlsx"
    rows = [["text", "label", None], ["good, old", 1, None], [None, 2, None], ["x", 1, "beyond"]]
    workbook(path, rows, "second", "third")
    found = planned(path, tmp_path)
    assert told(read(found)) == ["good, old", "[null]", "[malformed-row]"]
    assert labels(read(found))[0] == "1"
    assert "'first'" in noted(found) and "'third'" in noted(found)
    assert not noted(planned(path, tmp_path, sheet="first"))
    assert told(read(planned(path, tmp_path, sheet="second"))) == ["other"]
    with pytest.raises(DataSourceError, match=r"'fourth'.*'second'"):
        planned(path, tmp_path, sheet="fourth")
    workbook(path, [])
    with pytest.raises(DataSourceError, match=r"x\.xlsx"):
        planned(path, tmp_path)


def test_merged_cells_and_formulas_without_values_are_noted(tmp_path: Path) -> None:
    path = tmp_path / "x.xlsx"
    book = workbook(path, [["text", "label"], *([f"a {n}", "b"] for n in range(4_000))])
    assert not noted(planned(path, tmp_path))
    book.active.merge_cells("B3:B4")
    book.active["B2"], book.active["B6"] = '=A2&"x"', "=1+1"
    book.save(path)
    found = planned(path, tmp_path)
    assert labels(read(found))[:6] == [None, "b", None, "b", None, "b"]
    assert "1 ranges" in noted(found) and "2 cells hold" in noted(found)


def test_cells_of_workbooks_are_what_they_are(tmp_path: Path) -> None:
    cells = [
        *(True, 0.0, 2.5, dt.date(2026, 9, 30), dt.datetime(2026, 9, 30, 1, 2), "#N/A", None),
        dt.timedelta(hours=30),
    ]
    workbook(tmp_path / "x.xlsx", [["text", "label"], *(["a", cell] for cell in cells)])
    found = labels(read(planned(tmp_path / "x.xlsx", tmp_path)))
    assert found[:5] == ["true", "0", "2.5", "2026-09-30T00:00:00", "2026-09-30T01:02:00"]
    assert found[5:7] == [None, None] and '"' not in str(found[7])


@pytest.mark.parametrize("snapshot", ["copy", "manifest"])
def test_types_of_parquet_are_read_by_their_values(snapshot: Snapshot, tmp_path: Path) -> None:
    zoned = pa.array([0, None], pa.timestamp("ms", tz="Europe/Vienna"))
    columns = {
        "words": (pa.array(["b", None]).dictionary_encode(), "b"),
        "zoned": (zoned, "1970-01-01 01:00:00.000+0100"),
        "nested": (pa.array([{"a": [1, 2], "b": "ü"}, None]), '{"a": [1, 2], "b": "ü"}'),
        "large": (pa.array([2**63, None], pa.uint64()), str(2**63)),
        "views": (pa.array(["b", None], pa.string_view()), "b"),
    }
    table = {"text": ["x", "y"], **{name: cells for name, (cells, _) in columns.items()}}
    pq.write_table(pa.table(table), tmp_path / "x.parquet")
    for name, (_, value) in columns.items():
        found = planned(tmp_path / "x.parquet", tmp_path, label=name, snapshot=snapshot)
        assert labels(read(found)) == [value, None], name


def test_columns_of_one_name_are_refused_where_they_are_read(tmp_path: Path) -> None:
    names = ["text", "label", "label", "more", "more"]
    pq.write_table(pa.table([pa.array(["a"])] * 5, names=names), tmp_path / "x.parquet")
    (tmp_path / "x.csv").write_text(f"{','.join(names)}\na,b,c,d,e\n")
    for path in (tmp_path / "x.parquet", tmp_path / "x.csv"):
        with pytest.raises(DataSourceError, match="'label'"):
            planned(path, tmp_path)


def test_files_of_different_types_are_one_dataset(tmp_path: Path) -> None:
    """Part 0 has whole numbers, part 1 a gap and therefore floats, part 2 texts."""
    for number, column in enumerate(([1, 5], [1.0, None], ["5", "1.0"])):
        table = pa.table({"text": ["a", "b"], "label": column})
        pq.write_table(table, tmp_path / f"part-{number}.parquet")
    found = planned(tmp_path / "part-*.parquet", tmp_path)
    assert labels(read(found)) == ["1", "5", "1", None, "5", "1.0"]


@pytest.mark.parametrize(
    ("stored", "text"),
    [
        ("a_x000D__x000A_film", "a\r\nfilm"),
        ("_x005F_x000D_", "_x000D_"),  # what Excel writes for a text of these letters
        ("0x005F_FFFF", "0x005F_FFFF"),
        ("_xD83D_ _x00e9_ _xGGGG_", "_xD83D_ é _xGGGG_"),
    ],
)
@pytest.mark.parametrize("place", ["shared", "rich", "inline", "formula"])
def test_escaped_characters_of_a_workbook_are_the_characters(
    tmp_path: Path, place: str, stored: str, text: str
) -> None:
    cell, shared = '<c r="A2" t="s"><v>1</v></c>', f"<t>{stored}</t>"
    if place == "rich":
        reading = '<rPh sb="0" eb="1"><t>not of the text</t></rPh>'
        shared = f"<r><rPr><b/></rPr><t>{stored}</t></r>{reading}"
    elif place == "inline":
        cell = f'<c r="A2" t="inlineStr"><is>{shared}</is></c>'
    elif place == "formula":
        cell = f'<c r="A2" t="str"><f>A1</f><v>{stored}</v></c>'
    rows = f'<row r="1"><c r="A1" t="s"><v>0</v></c></row><row r="2">{cell}</row>'
    book = zipped(parts(rows, strings=f"<si><t>text</t></si><si>{shared}</si>"))
    (tmp_path / "x.xlsx").write_bytes(book)
    assert told(read(planned(tmp_path / "x.xlsx", tmp_path))) == [text]
