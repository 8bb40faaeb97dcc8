"""Columns that folders name: `label=positive/part-0.parquet`, copied, listed, and in a store."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from data_files import labels, planned, read, write
from faulty_s3 import BUCKET

from transexplain.errors import DataSourceError
from transexplain.files import remote_files
from transexplain.types.items import Item, ItemFailure

#: texts by the folder that they lie in, and the label and meta that they have then
FOLDERS: Mapping[str, tuple[str | None, dict[str, str]]] = {
    "label=positive/lang=de%20at": ("positive", {"lang": "de at"}),
    "label=positive/lang=__HIVE_DEFAULT_PARTITION__": ("positive", {}),
    "label=a%2Fb=c/lang=%C3%BC": ("a/b=c", {"lang": "ü"}),
    "label=__HIVE_DEFAULT_PARTITION__/lang=de": (None, {"lang": "de"}),
    "label=1/lang=2.0": ("1", {"lang": "2.0"}),
}
FORMS = ("parquet", "csv", "tsv", "jsonl", "csv.gz")
Snapshot = Literal["copy", "manifest"]


def lake(root: Path, form: str) -> None:
    for folder in FOLDERS:
        write(root / folder / f"part-0.{form}", [{"text": f"{folder} {n}"} for n in range(3)])
    (root / "label=positive" / "_SUCCESS").touch()
    write(root / "label=positive" / "lang=de" / f"_hidden.{form}", [{"text": "no"}])


def rows_of(source: Path | str, folder: Path, **options: Any) -> list[Item | ItemFailure]:
    ref = planned(source, folder, **options)
    assert ref.manifest == (options.get("snapshot") == "manifest")
    return read(ref)


def facts(items: list[Item | ItemFailure]) -> dict[Any, tuple[str | None, Mapping[str, str]]]:
    assert all(isinstance(one, Item) for one in items), items
    return {one.content: (one.label, one.meta) for one in items if isinstance(one, Item)}


EXPECTED = {f"{folder} {n}": known for folder, known in FOLDERS.items() for n in range(3)}


@pytest.mark.parametrize("snapshot", ["copy", "manifest"])
@pytest.mark.parametrize("form", FORMS)
def test_folders_name_columns(form: str, snapshot: Snapshot, tmp_path: Path) -> None:
    if (form, snapshot) == ("csv.gz", "manifest"):
        pytest.skip("packed files are copied")
    lake(tmp_path / "lake", form)
    for source in ("lake", f"lake/*/*/[!_]*.{form}"):
        found = rows_of(tmp_path / source, tmp_path, meta=("lang",), snapshot=snapshot)
        assert facts(found) == EXPECTED
    one = "label=positive/lang=de%20at"
    found = rows_of(tmp_path / "lake" / one / f"part-0.{form}", tmp_path, snapshot=snapshot)
    assert facts(found) == {f"{one} {n}": ("positive", {}) for n in range(3)}


def test_what_pyarrow_writes_is_read(tmp_path: Path) -> None:
    table = pa.table({"text": ["a", "b", "c"], "label": ["x y", "ü/é", None]})
    flavour = ds.partitioning(pa.schema([("label", pa.string())]), flavor="hive")
    ds.write_dataset(table, tmp_path / "lake", format="parquet", partitioning=flavour)
    expected = {"a": ("x y", {}), "b": ("ü/é", {}), "c": (None, {})}
    assert facts(rows_of(tmp_path / "lake", tmp_path)) == expected


@pytest.mark.parametrize("snapshot", ["copy", "manifest"])
@pytest.mark.parametrize("form", ["parquet", "csv", "jsonl"])
def test_a_file_that_has_the_column_too_must_agree(form: str, snapshot: Snapshot, tmp_path) -> None:
    cells = zip("abcd", [1.0, None, 2.0, 1.0], strict=True)
    rows = [{"text": text, "label": label} for text, label in cells]
    write(tmp_path / "label=1" / f"part.{form}", rows)
    found = rows_of(tmp_path / "label=1" / f"part.{form}", tmp_path, snapshot=snapshot)
    assert labels(found) == ["1", "1", "[malformed-row]", "1"]


def test_a_column_of_a_folder_is_read_where_it_is_asked_for(tmp_path: Path) -> None:
    """A file that lies in such a folder by chance, and has the columns itself, is as it was."""
    path = write(tmp_path / "run=5" / "part.csv", [{"text": "a", "label": "b"}])
    assert facts(rows_of(path, tmp_path)) == {"a": ("b", {})}
    with pytest.raises(DataSourceError, match="'runs'"):
        rows_of(path, tmp_path, meta=("runs",))


def test_the_same_bytes_in_another_folder_are_other_data(tmp_path: Path) -> None:
    for label in ("x", "y"):
        write(tmp_path / label / f"label={label}" / "part.csv", [{"text": "a"}])
        assert facts(rows_of(tmp_path / label, tmp_path)) == {"a": (label, {})}


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "plain" / "train.csv", [{"text": "a"}])
    (tmp_path / "plain" / "label=x").mkdir()
    with pytest.raises(DataSourceError, match="tars or partitions"):
        rows_of(tmp_path / "plain", tmp_path)


@pytest.mark.parametrize("snapshot", ["copy", "manifest"])
@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_partitions_of_an_object_store(s3, form: str, snapshot: Snapshot, tmp_path) -> None:
    lake(tmp_path / "lake", form)
    for folder in FOLDERS:
        file = f"{folder}/part-0.{form}"
        remote_files.write(f"s3://{BUCKET}/lake/{file}", tmp_path / "lake" / file)
    for source in ("lake/", f"lake/*/*/*.{form}"):
        found = rows_of(f"s3://{BUCKET}/{source}", tmp_path, meta=("lang",), snapshot=snapshot)
        assert facts(found) == EXPECTED
    with pytest.raises(DataSourceError, match="no partitions"):
        rows_of(f"s3://{BUCKET}/other/", tmp_path)
