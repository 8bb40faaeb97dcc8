"""What files hold that would be lost without a word: it is read, refused, or noted."""

import datetime as dt
import gzip
import json
from pathlib import Path
from typing import Any, Literal

import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hostile_files import parts, zipped

from transexplain.data.dataset_plan import plan_dataset
from transexplain.data.shard_reader import read_shard
from transexplain.errors import DataSourceError
from transexplain.types.items import Item
from transexplain.types.plans import DatasetRef, DatasetSpec, Shard

Snapshot = Literal["copy", "manifest"]


def planned(source: Path | str, folder: Path, **options: Any) -> DatasetRef:
    return plan_dataset(DatasetSpec(source=str(source), **options), folder / "snapshots")


def labels(ref: DatasetRef) -> list[Any]:
    """The label of each row, or why it has none."""
    items = read_shard(ref, Shard(index=0, start=0, stop=ref.rows))
    return [one.label if isinstance(one, Item) else one.kind for one in items]


def noted(ref: DatasetRef) -> str:
    return " ".join(ref.read_as)


@pytest.mark.parametrize("snapshot", ["copy", "manifest"])
@pytest.mark.parametrize("form", ["csv", "parquet", "jsonl"])
def test_a_file_without_the_labels_that_others_have_is_noted(
    form: str, snapshot: Snapshot, tmp_path: Path
) -> None:
    tables = {"a": {"text": ["x"], "label": ["y"]}, "b": {"text": ["z"]}, "c": {"text": ["w"]}}
    for name, columns in tables.items():
        path = tmp_path / f"{name}.{form}"
        if form == "parquet":
            pq.write_table(pa.table(columns), path)
        elif form == "csv":
            cells = (",".join(row) for row in zip(*columns.values(), strict=True))
            path.write_text("\n".join([",".join(columns), *cells, ""]))
        else:
            rows = pa.table(columns).to_pylist()
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    for _ in range(2):  # the second time the snapshot is remembered
        found = planned(tmp_path / f"*.{form}", tmp_path, snapshot=snapshot)
        assert labels(found) == ["y", None, None]
        assert f"b.{form} and 1 more" in noted(found) and f"a.{form}" not in noted(found)
    assert "label" not in noted(planned(tmp_path / f"a.{form}", tmp_path, snapshot=snapshot))
    assert "label" not in noted(planned(tmp_path / f"b.{form}", tmp_path, snapshot=snapshot))


@pytest.mark.parametrize("name", ["Label", " label", "labels"])
def test_a_column_that_is_nearly_called_label_is_noted(name: str, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text(f"text,{name}\na,b\n")
    found = planned(tmp_path / "x.csv", tmp_path)
    assert labels(found) == [None] and repr(name) in noted(found)
    found = planned(tmp_path / "x.csv", tmp_path, label=name)
    assert labels(found) == ["b"] and not noted(found)


def workbook(path: Path, rows: list[list[Any]], *others: str) -> openpyxl.Workbook:
    book = openpyxl.Workbook()
    book.active.title = "first"
    for row in rows:
        book.active.append(row)
    for name in others:
        book.create_sheet(name).append(["text", "label"])
    book.save(path)
    return book


def test_sheets_that_are_not_read_are_noted(tmp_path: Path) -> None:
    path = tmp_path / "x.xlsx"
    workbook(path, [["text", "label"], ["a", "b"]], "second", "third")
    assert "'first'" in noted(planned(path, tmp_path)) and "'third'" in noted(
        planned(path, tmp_path)
    )
    assert not noted(planned(path, tmp_path, sheet="first"))


def test_merged_cells_and_formulas_without_values_are_noted(tmp_path: Path) -> None:
    path = tmp_path / "x.xlsx"
    book = workbook(path, [["text", "label"], *([f"a {n}", "b"] for n in range(4_000))])
    assert not noted(planned(path, tmp_path))
    book.active.merge_cells("B3:B4")
    book.active["B2"], book.active["B6"] = '=A2&"x"', "=1+1"
    book.save(path)
    found = planned(path, tmp_path)
    assert labels(found)[:6] == [None, "b", None, "b", None, "b"]
    assert "1 ranges" in noted(found) and "2 cells hold" in noted(found)


def test_cells_of_workbooks_are_what_they_are(tmp_path: Path) -> None:
    cells = [
        *(True, 0.0, 2.5, dt.date(2026, 9, 30), dt.datetime(2026, 9, 30, 1, 2), "#N/A", None),
        dt.timedelta(hours=30),
    ]
    workbook(tmp_path / "x.xlsx", [["text", "label"], *(["a", cell] for cell in cells)])
    found = labels(planned(tmp_path / "x.xlsx", tmp_path))
    assert found[:5] == ["true", "0", "2.5", "2026-09-30T00:00:00", "2026-09-30T01:02:00"]
    assert found[5:7] == [None, None] and '"' not in found[7]


@pytest.mark.parametrize("snapshot", ["copy", "manifest"])
def test_a_key_that_stands_twice_in_a_line_fails_that_line(snapshot: Snapshot, tmp_path) -> None:
    lines = ['{"text": "a", "label": 0, "label": 1}', '{"text": "b", "label": 1}']
    (tmp_path / "x.jsonl").write_text("\n".join(lines))
    found = planned(tmp_path / "x.jsonl", tmp_path, snapshot=snapshot)
    assert labels(found) == ["malformed-row", "1"]


def test_integers_of_any_size_and_all_members_of_a_gzip_are_read(tmp_path: Path) -> None:
    numbers = [2**53 + 1, 2**64 + 1, -(2**70)]
    lines = [json.dumps({"text": "a", "label": one}).encode() + b"\n" for one in numbers]
    (tmp_path / "x.jsonl.gz").write_bytes(b"".join(map(gzip.compress, lines)))
    assert labels(planned(tmp_path / "x.jsonl.gz", tmp_path)) == [str(one) for one in numbers]


@pytest.mark.parametrize("snapshot", ["copy", "manifest"])
def test_types_of_parquet_are_read_by_their_values(snapshot: Snapshot, tmp_path: Path) -> None:
    zoned = pa.array([0, None], pa.timestamp("ms", tz="Europe/Vienna"))
    columns = {
        "words": pa.array(["b", None]).dictionary_encode(),
        "zoned": zoned,
        "nested": pa.array([{"a": [1, 2], "b": "ü"}, None]),
        "large": pa.array([2**63, None], pa.uint64()),
        "views": pa.array(["b", None], pa.string_view()),
    }
    table = pa.table({"text": ["x", "y"], **columns})
    pq.write_table(table, tmp_path / "x.parquet")
    expected = {
        "words": "b",
        "zoned": "1970-01-01 01:00:00.000+0100",
        "nested": '{"a": [1, 2], "b": "ü"}',
        "large": str(2**63),
        "views": "b",
    }
    for name, value in expected.items():
        found = planned(tmp_path / "x.parquet", tmp_path, label=name, snapshot=snapshot)
        assert labels(found) == [value, None], name


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_columns_of_one_name_are_refused_where_they_are_read(form: str, tmp_path: Path) -> None:
    path = tmp_path / f"x.{form}"
    if form == "csv":
        path.write_text("text,label,label,more,more\na,b,c,d,e\n")
    else:
        names = ["text", "label", "label", "more", "more"]
        pq.write_table(pa.table([pa.array(["a"])] * 5, names=names), path)
    with pytest.raises(DataSourceError, match="'label' more"):
        planned(path, tmp_path)


def test_files_of_different_types_are_one_dataset(tmp_path: Path) -> None:
    """Part 0 has whole numbers, part 1 a gap and therefore floats, part 2 texts."""
    for number, column in enumerate(([1, 5], [1.0, None], ["5", "1.0"])):
        table = pa.table({"text": ["a", "b"], "label": column})
        pq.write_table(table, tmp_path / f"part-{number}.parquet")
    found = planned(tmp_path / "part-*.parquet", tmp_path)
    assert labels(found) == ["1", "5", "1", None, "5", "1.0"]


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
    ref = planned(tmp_path / "x.xlsx", tmp_path)
    (item,) = read_shard(ref, Shard(index=0, start=0, stop=ref.rows))
    assert isinstance(item, Item) and item.content == text
