"""Parquet sources, whatever their column types."""

import datetime
import decimal
import gzip
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from data_files import planned, read, told
from hypothesis import given
from hypothesis import strategies as st
from packed_pictures import draw, in_parquet, png

from transexplain.data import parquet_files
from transexplain.data.picture_places import picture_at
from transexplain.errors import DataSourceError, ItemError


@given(
    texts=st.lists(st.one_of(st.none(), st.text(st.characters(codec="utf-8"))), min_size=1),
    kind=st.sampled_from([pa.string(), pa.large_string(), pa.string_view(), None]),
)
def test_parquet_gives_back_every_text(texts, kind, tmp_path_factory, load):
    path = tmp_path_factory.mktemp("parquet") / "x.parquet"
    column = pa.array(texts, kind or pa.string())
    pq.write_table(pa.table({"text": column if kind else column.dictionary_encode()}), path)
    wanted = ["[null]" if t is None else t if t.strip() else "[empty-text]" for t in texts]
    assert told(load(path)) == wanted


@pytest.mark.parametrize("name", ["x.parquet", "x.parquet.gz"])
def test_types_of_labels_and_bytes_that_are_not_utf8(name, tmp_path: Path, load):
    day = datetime.datetime(2024, 5, 1, 12, 30, 0, 123456)
    table = pa.table(
        {
            "text": pa.array([b"good", b"caf\xe9", b"\xc3\xa9", b"x"]).cast(
                pa.string(), safe=False
            ),
            "label": pa.array([1.0, 2.0, float("nan"), None]),
            "when": pa.array([day] * 4, pa.timestamp("ns")),
            "price": pa.array([decimal.Decimal("1.50")] * 4),
            "tags": pa.array([["a"]] * 4),
        }
    )
    path = tmp_path / "x.parquet"
    pq.write_table(table, path)
    if name.endswith(".gz"):
        (tmp_path / name).write_bytes(gzip.compress(path.read_bytes()))
    items = load(tmp_path / name, meta=("when", "price", "tags"))
    assert told(items) == ["good", "[invalid-utf8]", "é", "x"]
    assert [items[0].label, items[2].label] == ["1", None]
    assert items[0].meta["price"] == "1.50"
    assert items[0].meta["when"].startswith("2024-05-01 12:30:00.123456")
    assert items[0].meta["tags"] == '["a"]'


def test_unusable_files_are_reported(tmp_path: Path, load):
    path = tmp_path / "x.parquet"
    path.write_bytes(b"this is no parquet file at all")
    with pytest.raises(DataSourceError, match=r"x\.parquet"):
        load(path)
    pq.write_table(pa.table({"text": [1, 2]}), path)
    assert told(load(path)) == ["[malformed-row]"] * 2
    with pytest.raises(DataSourceError, match="column 'phrase'"):
        load(path, text="phrase")
    whole = path.read_bytes()
    path.write_bytes(whole[:4] + b"\xff" * 60 + whole[64:])
    with pytest.raises(DataSourceError, match=r"x\.parquet"):
        load(path)


def test_a_column_name_that_is_not_utf8_is_reported(tmp_path: Path, load):
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"text": ["a"], "caption": ["b"]}), path, store_schema=False)
    path.write_bytes(path.read_bytes().replace(b"caption", b"capti\xff\xfe"))
    with pytest.raises(DataSourceError, match=r"cannot read .*x.parquet"):
        load(path)


# ---- columns of pictures in Parquet files: bytes, or bytes and path


@pytest.mark.parametrize("struct", [True, False])
@pytest.mark.parametrize("shard_size", [1, 4, 300])
def test_a_column_gives_the_pictures_of_the_folder(struct: bool, shard_size: int, tmp_path, load):
    pictures = draw(tmp_path / "folder", 23)
    alone = load(f"imagefolder:{tmp_path}/folder")
    path = in_parquet(tmp_path / "x.parquet", pictures, struct=struct, group=10)
    packed = load(path, image="image", id="name", shard_size=shard_size)
    for one, other in zip(packed, alone, strict=True):
        assert (one.id, one.label) == (other.id, other.label)
        np.testing.assert_array_equal(np.asarray(one.content), np.asarray(other.content))
    assert packed[12].source == "x.parquet#image[12]"


def test_rows_are_read_in_any_order_and_once_where_they_come_in_order(tmp_path, monkeypatch):
    pictures = draw(tmp_path / "folder", 40)
    path = in_parquet(tmp_path / "x.parquet", pictures, struct=True, group=40)
    wanted = list(pictures.values())
    begun, begin = [], pq.ParquetFile.iter_batches

    def counted(self, **options):
        begun.append(options["row_groups"][0])
        return begin(self, **options)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", counted)
    assert [parquet_files.cell_bytes(path, "image", row) for row in range(40)] == wanted
    assert begun == [0]
    for row in (39, 0, 17, 17, 16, 31, 15):
        assert parquet_files.cell_bytes(path, "image", row) == wanted[row]
    assert len(begun) == 4  # at first, and three times back


def test_cells_without_bytes_are_paths_or_failures(tmp_path: Path, load) -> None:
    draw(tmp_path, 1)
    cells = [
        {"bytes": png(), "path": None},
        {"bytes": None, "path": "cat/000.png"},
        {"bytes": None, "path": "../secret.png"},
        {"bytes": None, "path": None},
        None,
        {"bytes": b"", "path": ""},
        {"bytes": b"no picture", "path": "x.png"},
        {"bytes": png(3), "path": "../secret.png"},
    ]
    kind = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"image": pa.array(cells, kind)}), path)
    items = load(path, image="image")
    assert told(items) == [
        *("ok", "ok", "[path-outside-root]", "[null]", "[null]", "[null]", "[bad-image]", "ok")
    ]
    assert items[1].source == "cat/000.png"
    assert "x.parquet#image[6]" in items[6].message
    pq.write_table(pa.table({"image": pa.array([png(), None, b""]).dictionary_encode()}), path)
    assert told(load(path, image="image")) == ["ok", "[null]", "[null]"]
    pq.write_table(pa.table({"image": ["cat/000.png", None]}), path)
    assert told(load(path, image="image")) == ["ok", "[null]"]


def test_columns_of_something_else_are_refused_by_name(tmp_path: Path, load) -> None:
    pq.write_table(pa.table({"image": pa.array([[1, 2], [3]])}), tmp_path / "numbers.parquet")
    path = in_parquet(tmp_path / "x.parquet", draw(tmp_path, 2), struct=True)
    (tmp_path / "x.parquet.gz").write_bytes(gzip.compress(path.read_bytes()))
    for name, column, named in (
        ("numbers.parquet", "image", "'image'"),
        ("x.parquet", "picture", r"'picture'.*'image'"),
        ("x.parquet.gz", "image", r"x\.parquet\.gz"),
    ):
        with pytest.raises(DataSourceError, match=named):
            load(tmp_path / name, image=column)


def test_a_file_that_changes_after_the_plan(tmp_path: Path) -> None:
    pictures = draw(tmp_path / "folder", 3)
    path = in_parquet(tmp_path / "x.parquet", pictures, struct=True)
    ref = planned(path, tmp_path, image="image")
    assert told(read(ref)) == ["ok"] * 3
    other = {**pictures, next(iter(pictures)): png()}
    in_parquet(path, other, struct=True)
    assert told(read(ref)) == ["[image-changed]", "ok", "ok"]
    in_parquet(path, dict(list(pictures.items())[:2]), struct=True)
    items = read(ref)
    assert told(items) == ["ok", "ok", "[missing-image]"]
    assert "row 2 of 'image' in x.parquet" in items[2].message
    path.write_bytes(path.read_bytes()[:-200])
    assert told(read(ref)) == ["[missing-image]"] * 3


def test_a_cell_is_named_by_a_person(tmp_path: Path) -> None:
    pictures = draw(tmp_path / "folder", 3)
    path = in_parquet(tmp_path / "x.parquet", pictures, struct=False)
    assert picture_at(f"{path}#image[2]").size == (28, 24)
    with pytest.raises(ItemError, match="0 of 'picture'"):
        picture_at(f"{path}#picture[0]")
