"""What data call the numbers of their labels: in the schema of a file, or beside it."""

import gzip
import json
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from data_files import planned, write
from faulty_s3 import BUCKET, FaultyS3

from transexplain.errors import DataSourceError
from transexplain.files import remote_files

Snapshot = Literal["copy", "manifest"]
NAMES = ("positive", "negative")
LABEL = {"names": list(NAMES), "_type": "ClassLabel"}


def parquet(path: Path, feature: Any, column: str = "label") -> str:
    """A file of four rows, whose schema says what `datasets` knows of a column."""
    features = {"text": {"dtype": "string", "_type": "Value"}, column: feature}
    table = pa.table({"text": list("abcd"), column: [0, 1, 0, 1]})
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table.replace_schema_metadata(metadata), path)
    return str(path)


@pytest.mark.parametrize("snapshot", ["copy", "manifest"])
@pytest.mark.parametrize(
    "feature",
    [
        LABEL,
        {"feature": LABEL, "_type": "Sequence"},
        {"feature": LABEL, "length": -1, "_type": "List"},
        [LABEL],
    ],
)
def test_the_schema_of_a_file_names_classes(feature: Any, snapshot: Snapshot, tmp_path) -> None:
    path = parquet(tmp_path / "rows.parquet", feature)
    assert planned(path, tmp_path, snapshot=snapshot).label_names == NAMES
    assert planned(path, tmp_path, snapshot=snapshot).label_names == NAMES, "remembered"
    other = parquet(tmp_path / "stars.parquet", feature, "stars")
    assert planned(other, tmp_path, snapshot=snapshot).label_names == ()
    assert planned(other, tmp_path, snapshot=snapshot, label="stars").label_names == NAMES


@pytest.mark.parametrize(
    "feature",
    [
        None,
        {},
        [],
        {"dtype": "int64", "_type": "Value"},
        {"names": None, "names_file": "labels.txt", "_type": "ClassLabel"},
        {"names": [1, 2], "_type": "ClassLabel"},
        {"names": {"0": "a", "2": "b"}, "_type": "ClassLabel"},
        {"feature": {"feature": 5}},
    ],
)
def test_other_features_name_none(feature: Any, tmp_path: Path) -> None:
    assert planned(parquet(tmp_path / "rows.parquet", feature), tmp_path).label_names == ()


@pytest.mark.parametrize("snapshot", ["copy", "manifest"])
def test_files_that_contradict_each_other_are_refused(snapshot: Snapshot, tmp_path: Path) -> None:
    parquet(tmp_path / "a.parquet", LABEL)
    parquet(tmp_path / "b.parquet", {"dtype": "int64", "_type": "Value"})
    found = planned(tmp_path / "*.parquet", tmp_path, snapshot=snapshot)
    assert found.label_names == NAMES, "a file without names is part of the same data"
    parquet(tmp_path / "c.parquet", {"names": list(NAMES[::-1]), "_type": "ClassLabel"})
    with pytest.raises(DataSourceError, match=r"a\.parquet.*c\.parquet"):
        planned(tmp_path / "*.parquet", tmp_path, snapshot=snapshot)


CARD = """---
license: mit
dataset_info:
- config_name: plain
  features:
  - name: text
    dtype: string
  - name: label
    dtype:
      class_label:
        names:
          '0': positive
          '1': negative
- config_name: lists
  features:
  - name: label
    sequence:
      class_label:
        names: {0: positive, 1: negative}
---
# Reviews
"""
INFO = json.dumps({"features": {"label": LABEL}, "splits": {}})


@pytest.mark.parametrize("snapshot", ["copy", "manifest"])
@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
@pytest.mark.parametrize(("name", "text"), [("README.md", CARD), ("dataset_info.json", INFO)])
def test_what_stands_beside_the_data_names_classes(
    name: str, text: str, form: str, snapshot: Snapshot, tmp_path: Path
) -> None:
    folder = tmp_path / "reviews" / "data"
    path = write(folder / f"rows.{form}", [{"text": "a", "label": 0}, {"text": "b", "label": 1}])
    (folder.parent / name).write_text(text)
    assert planned(path, tmp_path, snapshot=snapshot).label_names == NAMES


def test_a_changed_card_and_a_packed_file_are_noticed(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("text,label\na,0\nb,1\n")
    for names in (list(NAMES), list(NAMES[::-1]), None):
        info = {"features": {"label": {"names": names, "_type": "ClassLabel"}}}
        (tmp_path / "dataset_info.json").write_text(json.dumps(info))
        for _ in range(2):
            found = planned(tmp_path / "rows.csv", tmp_path)
            assert found.label_names == tuple(names or ())
    (tmp_path / "dataset_info.json").unlink()
    plain = Path(parquet(tmp_path / "rows.parquet", LABEL))
    packed = tmp_path / "packed.parquet.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert planned(packed, tmp_path).label_names == NAMES


@pytest.mark.parametrize("metadata", [b"\xff", b"[]", b"{", b'{"info": 5}', b"[" * 999])
@pytest.mark.parametrize("text", ["", "# Reviews", "---\n{\n---\n", "---\n- 5\n---\n", "\0"])
def test_documents_of_something_else_name_none(metadata: bytes, text: str, tmp_path: Path) -> None:
    table = pa.table({"text": ["a"], "label": [0]})
    pq.write_table(table.replace_schema_metadata({"huggingface": metadata}), tmp_path / "x.parquet")
    (tmp_path / "README.md").write_text(text)
    assert planned(tmp_path / "x.parquet", tmp_path).label_names == ()


def test_files_of_an_object_store_name_classes(s3: FaultyS3, tmp_path: Path) -> None:
    parquet(tmp_path / "rows.parquet", LABEL)
    remote_files.write(f"s3://{BUCKET}/rows.parquet", tmp_path / "rows.parquet")
    for snapshot in ("copy", "manifest"):
        found = planned(f"s3://{BUCKET}/rows.parquet", tmp_path, snapshot=snapshot)
        assert found.label_names == NAMES
