"""The snapshot: same source and options, same bytes; written once and completely."""

import json
import shutil
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from transexplain.data import snapshot, source_files
from transexplain.data.shard_reader import items_per_shard, labels_of, make_shards, read_shard
from transexplain.data.snapshot import prepare, sample
from transexplain.data.source_files import Record
from transexplain.errors import ConfigurationError, DataSourceError, RemoteFileError
from transexplain.randomness import row_number, row_places
from transexplain.types.plans import DatasetRef, DatasetSpec, Shard


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


# --- reading shards: only their row groups, and only from the snapshot of the plan


ROWS = 5000


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> DatasetRef:
    folder = tmp_path_factory.mktemp("prepared")
    path = folder / "x.tsv"
    path.write_text("text\tlabel\n" + "".join(f"t{n}\tl{n % 3}\n" for n in range(ROWS)))
    return prepare(DatasetSpec(source=str(path)), folder)


@pytest.fixture
def ref(prepared: DatasetRef, tmp_path: Path) -> DatasetRef:
    """The dataset with a snapshot of this test's own."""
    return replace(prepared, snapshot=str(shutil.copy(prepared.snapshot, tmp_path)))


@pytest.fixture
def groups_read(monkeypatch) -> list[int]:
    """Row groups that were read; every other way of reading rows is a failure."""
    read: list[int] = []
    original = pq.ParquetFile.read_row_group

    def counted(self, group, *args, **kwargs):
        read.append(group)
        return original(self, group, *args, **kwargs)

    def refused(*args, **kwargs):
        pytest.fail("read more than row groups")

    monkeypatch.setattr(pq.ParquetFile, "read_row_group", counted)
    for name in ("read", "iter_batches", "read_row_groups"):
        monkeypatch.setattr(pq.ParquetFile, name, refused)
    return read


@pytest.mark.parametrize(
    ("start", "stop", "groups"),
    [
        (0, 256, [0]),
        (4608, 4864, [4]),
        (4864, 5000, [4]),
        (768, 1024, [0]),
        (1024, 1025, [1]),
        (1000, 1100, [0, 1]),
        (1000, 3100, [0, 1, 2, 3]),
        (7, 7, []),
    ],
)
def test_a_shard_reads_its_row_groups_only(start, stop, groups, ref, groups_read):
    items = list(read_shard(ref, Shard(index=3, start=start, stop=stop)))
    assert groups_read == groups
    assert [item.content for item in items] == [f"t{n}" for n in range(start, stop)]
    assert [item.id for item in items] == [str(n) for n in range(start, stop)]


@pytest.mark.parametrize("size", [1, 256, 1024, 4999, 5000, 9999])
def test_shards_cover_every_row_once(size, ref):
    shards = make_shards(ref.rows, size)
    assert [shard.index for shard in shards] == list(range(len(shards)))
    assert [n for s in shards for n in range(s.start, s.stop)] == list(range(ROWS))
    assert all(shard.stop - shard.start == size for shard in shards[:-1])
    assert list(make_shards(0, size)) == []


def test_shards_of_nonsense_are_refused(ref):
    for rows, size, named in ((10, 0, "shard_size"), (-1, 10, "-1 rows")):
        with pytest.raises(ConfigurationError, match=named):
            make_shards(rows, size)
    with pytest.raises(DataSourceError, match="dataset has 5000"):
        read_shard(ref, Shard(index=9, start=4990, stop=5001))


def test_a_snapshot_that_changed_is_refused_before_the_first_item(ref):
    shard = Shard(index=0, start=0, stop=10)
    assert len(list(read_shard(ref, shard))) == 10
    path = Path(ref.snapshot)
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"PAR1", b"PAR2", 1))
    with pytest.raises(DataSourceError, match=r"\.parquet"):
        read_shard(ref, shard)
    path.unlink()
    with pytest.raises(DataSourceError, match="TRANSEXPLAIN_SNAPSHOT_DIR"):
        read_shard(ref, shard)


def test_a_snapshot_is_hashed_once(ref, monkeypatch):
    hashed: list[Path] = []
    original = source_files.file_digest
    monkeypatch.setattr(source_files, "file_digest", lambda p: hashed.append(p) or original(p))
    for shard in make_shards(ref.rows, 1000):
        list(read_shard(ref, shard))
    assert hashed == [Path(ref.snapshot)]


def test_labels_of_a_dataset(ref, tmp_path: Path):
    assert labels_of(ref) == ["l0", "l1", "l2"]
    path = tmp_path / "y.csv"
    path.write_text("text,label\na,\nb,p\n")
    assert labels_of(prepare(DatasetSpec(source=str(path)), tmp_path)) == ["p"]
    with pytest.raises(DataSourceError):
        labels_of(replace(ref, fingerprint="0" * 64))


@pytest.mark.parametrize(
    ("rows", "size"),
    [(0, 256), (872, 256), (66_000, 512), (140_000, 1024), (1_000_000, 4096), (10**9, 4096)],
)
def test_large_data_have_larger_shards(rows: int, size: int) -> None:
    assert items_per_shard("auto", rows) == size
    assert items_per_shard(7, rows) == 7


def test_numbers_are_those_of_the_generator() -> None:
    # the first numbers of SplitMix64 from state 0, as published
    assert [hex(row_number(row, 0)) for row in range(3)] == [
        "0xe220a8397b1dcdaf",
        "0x6e789e6aa1b965f4",
        "0x6c45d188009454f",
    ]


@pytest.mark.parametrize("seed", [0, 3, 2**63, -1])
def test_a_stream_and_row_numbers_give_the_same_sample(seed: int) -> None:
    order = np.argsort(row_places(100, seed))
    assert sorted(order) == list(range(100))
    for count in (1, 7, 100, 200):
        found = sample((Record(f"r{i}", i) for i in range(100)), count, seed)
        assert [one.id for one in found] == [f"r{row}" for row in sorted(order[:count])]
        assert [one.index for one in found] == list(range(len(found)))


def test_a_sampled_dataset_keeps_the_rows_names(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("text\n" + "".join(f"row {i}\n" for i in range(50)), encoding="utf-8")
    ref = prepare(DatasetSpec(source=str(path), sample=5, seed=2), tmp_path / "snaps")
    items = list(read_shard(ref, Shard(index=0, start=0, stop=ref.rows)))
    rows = sorted(np.argsort(row_places(50, 2))[:5])
    assert [(item.content, item.id) for item in items] == [(f"row {row}", str(row)) for row in rows]
    assert [item.index for item in items] == [0, 1, 2, 3, 4]
