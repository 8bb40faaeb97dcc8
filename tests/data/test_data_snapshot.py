"""The snapshot: same source and options, same bytes; written once and completely."""

import json
import shutil
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from transexplain.data import snapshot, source_files
from transexplain.data.snapshot import prepare
from transexplain.errors import DataSourceError, RemoteFileError
from transexplain.types.plans import DatasetSpec


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "x.tsv"
    rows = [f"text {n}\t{n % 2}\tk{n}" for n in range(2500)]
    path.write_text("\n".join(["text\tlabel\tkey", *rows]), encoding="utf-8")
    return path


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_columns_and_row_groups(source: Path, tmp_path: Path):
    ref = prepare(DatasetSpec(source=str(source)), tmp_path / "snapshots")
    assert (ref.rows, ref.modality, ref.root, ref.source) == (2500, "text", "", str(source))
    file = pq.ParquetFile(ref.snapshot)
    with file:
        names = ["id", "index", "content", "label", "meta", "sha256", "error_kind", "error"]
        assert file.schema_arrow.names == names
        groups = range(file.num_row_groups)
        assert [file.metadata.row_group(n).num_rows for n in groups] == [1024, 1024, 452]
        row = file.read_row_group(1).to_pylist()[0]
        assert list(row.values()) == ["1024", 1024, "text 1024", "0", "{}", None, None, None]
    assert source_files.file_digest(Path(ref.snapshot)) == ref.fingerprint


def test_row_groups_end_early_for_long_texts(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(snapshot, "GROUP_CHARACTERS", 1000)
    path = tmp_path / "x.tsv"
    path.write_text("text\n" + ("w" * 300 + "\n") * 10, encoding="utf-8")
    ref = prepare(DatasetSpec(source=str(path)), tmp_path)
    metadata = pq.read_metadata(ref.snapshot)
    sizes = [metadata.row_group(n).num_rows for n in range(metadata.num_row_groups)]
    assert sizes == [4, 4, 2]


@pytest.mark.exhaustive
def test_a_snapshot_is_written_once(source: Path, tmp_path: Path, monkeypatch):
    """By many at once, too; the same source gives the same bytes, wherever it lies."""
    spec = DatasetSpec(source=str(source))
    with ThreadPoolExecutor(6) as threads:
        first, *others = threads.map(lambda _: prepare(spec, tmp_path / "a"), range(6))
    assert all(other == first for other in others)
    assert [Path(name).suffix for name in files(tmp_path / "a")] == [".parquet", ".source"]
    with monkeypatch.context() as patch:
        patch.setattr(snapshot, "write_rows", lambda *_: pytest.fail("written a second time"))
        assert prepare(spec, tmp_path / "a") == first
    copy = DatasetSpec(source=str(shutil.copy(source, tmp_path / "y.tsv")))
    assert prepare(copy, tmp_path / "b").fingerprint == first.fingerprint
    options = ({"meta": ("key",)}, {"limit": 100}, {"text": "key"})
    changed = [prepare(DatasetSpec(source=str(source), **each), tmp_path / "a") for each in options]
    source.write_text(source.read_text(encoding="utf-8") + "\nmore\t1\tk", encoding="utf-8")
    changed.append(prepare(spec, tmp_path / "a"))
    assert len({ref.fingerprint for ref in [first, *changed]}) == 5
    assert [ref.rows for ref in changed] == [2500, 100, 2500, 2501]


@pytest.mark.exhaustive
@pytest.mark.parametrize("damage", [b"short", None])
def test_a_damaged_snapshot_is_written_again(damage, source: Path, tmp_path: Path):
    spec = DatasetSpec(source=str(source))
    first = prepare(spec, tmp_path / "a")
    if damage is None:
        Path(first.snapshot).unlink()
    else:
        Path(first.snapshot).write_bytes(damage)
    assert prepare(spec, tmp_path / "a") == first
    assert source_files.file_digest(Path(first.snapshot)) == first.fingerprint


def test_a_failure_leaves_nothing(tmp_path: Path, source: Path):
    with pytest.raises(DataSourceError, match="'0'"):
        prepare(DatasetSpec(source=str(source), id="label"), tmp_path / "a")
    assert files(tmp_path / "a") == []


def test_a_source_that_changes_under_the_reader_is_reported(source, tmp_path, monkeypatch):
    write_rows = snapshot.write_rows

    def grow(*args, **options):
        source.write_text("text\nother\n", encoding="utf-8")
        return write_rows(*args, **options)

    monkeypatch.setattr(snapshot, "write_rows", grow)
    with pytest.raises(DataSourceError, match=r"x\.tsv"):
        prepare(DatasetSpec(source=str(source)), tmp_path / "a")
    assert not list((tmp_path / "a").glob("*.source"))


def test_duplicate_ids_are_found_across_row_groups(tmp_path: Path):
    path = tmp_path / "x.csv"
    path.write_text("key,text\n" + "".join(f"k{n % 2999},t\n" for n in range(3000)))
    with pytest.raises(DataSourceError, match="'k0'"):
        prepare(DatasetSpec(source=str(path), id="key"), tmp_path / "a")
    path.write_text("key,text\n" + "".join(f"k{n},t\n" for n in range(3000)))
    assert prepare(DatasetSpec(source=str(path), id="key"), tmp_path / "a").rows == 3000


def test_ids_whose_digests_collide_are_not_duplicates(tmp_path: Path, monkeypatch):
    monkeypatch.setattr("transexplain.data.snapshot._digest", len)
    path = tmp_path / "x.csv"
    path.write_text("key,text\na,t\nb,t\nc,t\n")
    assert prepare(DatasetSpec(source=str(path), id="key"), tmp_path).rows == 3


def test_globs_join_files_in_sorted_order(tmp_path: Path, load):
    (tmp_path / "sub").mkdir()
    (tmp_path / "b.csv").write_text("label,text\n1,b1\n2,b2\n\n")
    (tmp_path / "a.csv").write_text("text\na1\n\n")
    (tmp_path / "sub" / "c.jsonl").write_text('{"text": "c1"}')
    (tmp_path / "odd[1].csv").write_text("text\nodd\n")
    assert [item.content for item in load(tmp_path / "[ab].csv")] == ["a1", "b1", "b2"]
    assert [item.content for item in load(tmp_path / "**" / "*.jsonl")] == ["c1"]
    assert [item.content for item in load(tmp_path / "odd[1].csv")] == ["odd"]
    (tmp_path / "c.csv").write_text("phrase\nx\n")
    with pytest.raises(DataSourceError, match="'text'"):
        load(tmp_path / "*.csv")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"source": ""}, "source"),
        ({"source": "no/such.csv"}, "'no/such.csv'"),
        ({"source": "x.tsv", "limit": 0}, "limit"),
        ({"source": "x.tsv", "text": "phrase"}, "'phrase'"),
        ({"source": "x.tsv", "label": "y"}, "'y'"),
        ({"source": "x.tsv", "meta": ("y",)}, "'y'"),
        ({"source": "x.tsv", "text": "text", "image": "key"}, "text.*image"),
        ({"source": "x.ods"}, r"\.jsonl, \.parquet, \.xlsx"),
        ({"source": "."}, "imagefolder:."),
        ({"source": "hf:org/name@rev:train"}, "hf://datasets/ORG/NAME@REVISION"),
        ({"source": "https://host/x.csv"}, "https://"),
        ({"source": "imagefolder:no/such"}, "'no/such'"),
        ({"source": "imagefolder:.", "label": "y"}, "label"),
        ({"source": "x.tsv", "sample": 0}, "sample"),
    ],
)
def test_what_cannot_be_read_is_reported(options, says, source, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.ods").write_bytes(b"PK")
    with pytest.raises((DataSourceError, RemoteFileError), match=says):
        prepare(DatasetSpec(**options), tmp_path / "a")


def test_a_snapshot_folder_that_cannot_be_made_is_reported(source: Path):
    with pytest.raises(DataSourceError, match="TRANSEXPLAIN_SNAPSHOT_DIR"):
        prepare(DatasetSpec(source=str(source)), source / "under" / "a" / "file")


@pytest.mark.exhaustive
def test_memory_does_not_grow_with_the_source(tmp_path: Path):
    path, text = tmp_path / "x.jsonl", "word " * 2000
    with path.open("w") as stream:
        for n in range(6400):
            stream.write(json.dumps({"text": f"{n} {text}", "key": f"k{n}"}) + "\n")
    assert path.stat().st_size > 60e6
    tracemalloc.start()
    try:
        spec = DatasetSpec(source=str(path), id="key", duplicates="off")
        ref = prepare(spec, tmp_path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert ref.rows == 6400
    assert peak < 30e6
