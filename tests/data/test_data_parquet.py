"""Parquet sources, whatever their column types."""

import datetime
import decimal
import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transexplain.errors import DataSourceError
from transexplain.types.items import Item


def contents(items) -> list[str]:
    return [item.content if isinstance(item, Item) else f"[{item.kind}]" for item in items]


@given(
    texts=st.lists(st.one_of(st.none(), st.text(st.characters(codec="utf-8"))), min_size=1),
    kind=st.sampled_from([pa.string(), pa.large_string(), pa.string_view(), None]),
)
def test_parquet_gives_back_every_text(texts, kind, tmp_path_factory, load):
    path = tmp_path_factory.mktemp("parquet") / "x.parquet"
    column = pa.array(texts, kind or pa.string())
    pq.write_table(pa.table({"text": column if kind else column.dictionary_encode()}), path)
    wanted = ["[null]" if t is None else t if t.strip() else "[empty-text]" for t in texts]
    assert contents(load(path)) == wanted


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
    assert contents(items) == ["good", "[invalid-utf8]", "é", "x"]
    assert [items[0].label, items[2].label] == ["1", None]
    assert items[0].meta["price"] == "1.50"
    assert items[0].meta["when"].startswith("2024-05-01 12:30:00.123456")
    assert items[0].meta["tags"] == '["a"]'


def test_rows_of_many_row_groups_keep_their_order(tmp_path: Path, load):
    path = tmp_path / "x.parquet"
    pq.write_table(
        pa.table({"sentence": [f"n {n}" for n in range(3000)]}), path, row_group_size=700
    )
    assert contents(load(path)) == [f"n {n}" for n in range(3000)]


def test_unusable_files_are_reported(tmp_path: Path, load):
    path = tmp_path / "x.parquet"
    path.write_bytes(b"this is no parquet file at all")
    with pytest.raises(DataSourceError, match=r"x\.parquet"):
        load(path)
    pq.write_table(pa.table({"text": [1, 2]}), path)
    assert contents(load(path)) == ["[malformed-row]"] * 2
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
