"""Reading shards: only their row groups, and only from the snapshot of the plan."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from transexplain.data import source_files
from transexplain.data.shard_reader import items_per_shard, labels_of, make_shards, read_shard
from transexplain.data.snapshot import prepare, sample
from transexplain.data.source_files import Record
from transexplain.errors import ConfigurationError, DataSourceError
from transexplain.randomness import row_number, row_places
from transexplain.types.plans import DatasetRef, DatasetSpec, Shard

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


# ---- samples: golden numbers, nested, the same from a stream and from row numbers


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
