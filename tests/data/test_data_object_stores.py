"""Data and snapshots at URLs: the same items as from this machine, and no bytes but a shard's."""

import csv
import io
import json
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import data_files
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from data_files import items_of, told
from faulty_s3 import BUCKET, FaultyS3
from PIL import Image

from transexplain.data import listed_files, snapshot
from transexplain.data.dataset_plan import plan_dataset
from transexplain.data.shard_reader import (
    annotated_groups,
    clustering_of,
    ids_of,
    labels_of,
    make_shards,
    piece_at,
    published,
    put_pieces,
    read_shard,
    rows_of_piece,
    unread_rows,
    value_counts,
)
from transexplain.data.snapshot import prepare
from transexplain.errors import DataSourceError, ObjectStoreError, RemoteFileError
from transexplain.files.remote_files import delete, info, read, write
from transexplain.settings import Settings
from transexplain.types.items import Item, ItemFailure
from transexplain.types.plans import DatasetRef, DatasetSpec

_FORMS = ("csv", "xlsx", "jsonl")
FOLDER = f"s3://{BUCKET}/t"


@pytest.fixture(autouse=True)
def nothing_kept() -> None:
    """Pieces that another test read last."""
    piece_at.cache_clear()


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """1,300 texts with labels and groups, some of them bad."""
    drawn = random.Random(3)
    rows = io.StringIO()
    writer = csv.writer(rows)
    writer.writerow(["text", "label", "kind", "spans"])
    for number in range(1_300):
        text = " ".join(f"{drawn.getrandbits(40):x}" for _ in range(12))
        mark = json.dumps([[0, 4, "people"]]) if number % 3 else ""
        writer.writerow(["" if number % 400 == 7 else text, number % 2, f"k{number % 5}", mark])
    path = tmp_path / "reviews.csv"
    path.write_text(rows.getvalue(), encoding="utf-8")
    return path


def spec_of(source: object, **options: object) -> DatasetSpec:
    return DatasetSpec(source=str(source), meta=("kind",), spans="spans", **options)


def at_store(ref: DatasetRef, size: int = 256) -> DatasetRef:
    return replace(ref, snapshot=put_pieces(ref, size, f"{FOLDER}/snapshots"))


@pytest.mark.parametrize(
    ("shard", "piece"),
    [(1, 1), (40, 40), (256, 256), (300, 150), (1000, 250), (4096, 256), (257, 257), (514, 514)],
)
def test_no_piece_has_rows_of_two_shards(shard: int, piece: int) -> None:
    assert rows_of_piece(shard) == piece and shard % piece == 0


@pytest.mark.exhaustive
def test_pieces_hold_what_the_snapshot_holds(s3: FaultyS3, table: Path, tmp_path: Path) -> None:
    local = prepare(spec_of(table), tmp_path / "snapshots")
    remote = at_store(local, 100)
    assert items_of(remote, 100) == items_of(local, 100)
    assert items_of(remote, 999) == items_of(local, 999)
    for facts in (labels_of, annotated_groups, clustering_of):
        assert facts(remote) == facts(local)
    assert labels_of(remote) == ["0", "1"] and annotated_groups(remote) == ["people"]
    assert list(unread_rows(remote)) == list(unread_rows(local)) != []
    assert value_counts(remote, "kind") == value_counts(local, "kind")
    assert ids_of(remote, range(90, 120)) == tuple(map(str, range(90, 120)))


def test_what_is_there_is_not_written_again(s3: FaultyS3, table: Path, tmp_path: Path) -> None:
    local = prepare(spec_of(table), tmp_path / "snapshots")
    remote = at_store(local)
    delete(f"{remote.snapshot}/{512:012}.parquet")
    before = len(s3.requests)
    assert at_store(local) == remote
    written = [path for method, path in s3.requests[before:] if method == "PUT"]
    assert [path.rpartition("/")[2] for path in written] == [f"{512:012}.parquet"]
    assert items_of(remote) == items_of(local)


def test_a_piece_that_is_gone_damaged_or_of_other_data_is_refused(s3, table, tmp_path) -> None:
    remote = at_store(prepare(spec_of(table), tmp_path / "snapshots"))
    url = f"{remote.snapshot}/{256:012}.parquet"
    shard = make_shards(remote.rows, 256)[1]
    whole = read(url)
    broken = bytearray(whole)
    broken[len(whole) // 3] ^= 255
    for content in (bytes(broken), whole[:-9], read(f"{remote.snapshot}/{512:012}.parquet"), None):
        if content is None:
            delete(url)
        else:
            write(url, content)
        with pytest.raises(DataSourceError, match=r"000256\.parquet.*submit the audit"):
            list(read_shard(remote, shard))
    write(url, whole)
    assert len(list(read_shard(remote, shard))) == 256
    s3.refusal = "ExpiredToken"
    with pytest.raises(ObjectStoreError, match="credentials"):
        list(read_shard(remote, make_shards(remote.rows, 256)[2]))


@pytest.mark.parametrize(
    "form",
    ["csv.gz", "parquet", *(pytest.param(one, marks=pytest.mark.exhaustive) for one in _FORMS)],
)
def test_files_at_urls_give_the_items_of_files_here(s3, table, tmp_path, form: str) -> None:
    rows = list(csv.DictReader(io.StringIO(table.read_text(encoding="utf-8"))))[:300]
    path = data_files.write(tmp_path / f"reviews.{form}", rows)
    remote = write(f"{FOLDER}/in/reviews.{form}", path)
    local = prepare(spec_of(path), tmp_path / "here")
    found = prepare(spec_of(f"{FOLDER}/in/*.{form}"), tmp_path / "there")
    assert found.fingerprint == local.fingerprint and found.rows == 300
    (named,) = found.files
    assert (named.path, named.size, named.state) == (remote.url, remote.size, remote.state)
    assert named.sha256 == ""
    before = s3.given
    assert prepare(spec_of(f"{FOLDER}/in/*.{form}"), tmp_path / "there") == found
    if form == "parquet":  # of text files the dialect is looked at once in a process
        assert s3.given == before


def test_only_the_wanted_columns_of_a_parquet_file_are_read(s3: FaultyS3, tmp_path: Path) -> None:
    drawn = random.Random(4)
    texts = [drawn.randbytes(30).hex() for _ in range(4_000)]
    wide = pa.table({"text": texts, "other": [drawn.randbytes(300).hex() for _ in texts]})
    pq.write_table(wide, tmp_path / "wide.parquet")
    write(f"{FOLDER}/wide.parquet", tmp_path / "wide.parquet")
    group = pq.read_metadata(tmp_path / "wide.parquet").row_group(0)
    before = s3.given
    prepare(DatasetSpec(source=f"{FOLDER}/wide.parquet"), tmp_path / "there")
    assert s3.given - before < 1.05 * group.column(0).total_compressed_size + 65_536


@pytest.fixture
def pictures(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "pictures"
    for number in range(12):
        path = folder / ("cats" if number % 2 else "dogs") / f"{number:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8), (number, 2 * number, 90)).save(path)
    (folder / "cats" / "note.txt").write_text("no picture")
    (folder / "list.csv").write_text(
        "file,kind,spans\ncats/01.png,a,\ndogs/00.png,b,\nnone.png,c,\n../x.png,d,\n", "utf-8"
    )
    for path in sorted(folder.rglob("*.*")):
        write(f"{FOLDER}/pictures/{path.relative_to(folder).as_posix()}", path)
    yield folder


@pytest.mark.exhaustive
def test_pictures_at_urls(s3: FaultyS3, pictures: Path, tmp_path: Path) -> None:
    local = prepare(DatasetSpec(source=f"imagefolder:{pictures}"), tmp_path / "here")
    remote = prepare(DatasetSpec(source=f"imagefolder:{FOLDER}/pictures/"), tmp_path / "there")
    assert remote.fingerprint == local.fingerprint and remote.rows == 12
    assert remote.root == f"{FOLDER}/pictures"
    assert same(items_of(remote), items_of(local))
    spec = DatasetSpec(source=str(pictures / "list.csv"), image="file")
    listed = prepare(spec, tmp_path / "here")
    there = prepare(replace(spec, source=f"{FOLDER}/pictures/list.csv"), tmp_path / "there")
    found = items_of(there)
    assert told(found) == ["ok", "ok", "[missing-image]", "[path-outside-root]"]
    assert same(found[:2], items_of(listed)[:2])


def same(found: list[Item | ItemFailure], other: list[Item | ItemFailure]) -> bool:
    first, second = (
        [(item.id, item.label, item.source, item.content.tobytes()) for item in some]
        for some in (found, other)
    )
    return first == second


@pytest.mark.exhaustive
def test_a_picture_that_was_changed_or_deleted_is_one_bad_item(s3, pictures, tmp_path) -> None:
    ref = prepare(DatasetSpec(source=f"imagefolder:{FOLDER}/pictures"), tmp_path / "there")
    delete(f"{FOLDER}/pictures/cats/01.png")
    write(f"{FOLDER}/pictures/cats/03.png", read(f"{FOLDER}/pictures/dogs/00.png"))
    found = items_of(ref)
    bad = {one.item_id: one for one in found if isinstance(one, ItemFailure)}
    assert {name: one.kind for name, one in bad.items()} == {
        "cats/01.png": "missing-image",
        "cats/03.png": "image-changed",
    }
    assert f"{FOLDER}/pictures/cats/01.png" in bad["cats/01.png"].message
    s3.refusal = "ExpiredToken"  # which is no fault of a picture
    with pytest.raises(ObjectStoreError, match="credentials"):
        items_of(ref)


def test_a_source_that_changes_while_it_is_read_is_refused(s3, table, tmp_path, monkeypatch):
    url = write(f"{FOLDER}/reviews.csv", table).url

    def write_snapshot(*given: object, **options: object) -> object:
        made = kept(*given, **options)
        write(url, table.read_bytes() + b"one more,1,k0,\n")
        return made

    kept = snapshot.write_snapshot
    monkeypatch.setattr(snapshot, "write_snapshot", write_snapshot)
    with pytest.raises(DataSourceError, match="changed while"):
        prepare(spec_of(url), tmp_path / "there")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (f"{FOLDER}/none.csv", r"none.csv"),
        (f"{FOLDER}/*.parquet", "parquet"),
        ("s3://nowhere-at-all/x.csv", "bucket 'nowhere-at-all'"),
        (f"imagefolder:{FOLDER}/none", "none"),
        (f"graphs:{FOLDER}/none", "none"),
        ("s3://AKIA:hidden@bucket/x.csv", "s3://BUCKET/KEY"),
        ("ftp://host/x.csv", "ftp://"),
        ("hf:org/name", "hf://datasets/ORG/NAME@REVISION/FILES"),
    ],
)
def test_a_wrong_source_is_named(s3: FaultyS3, tmp_path: Path, source: str, message: str) -> None:
    wrong = (DataSourceError, RemoteFileError, ObjectStoreError)
    with pytest.raises(wrong, match=message) as caught:
        prepare(DatasetSpec(source=source), tmp_path)
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize(
    ("rate", "items"), [(0.2, 200), pytest.param(0.05, 1_300, marks=pytest.mark.exhaustive)]
)
def test_nothing_is_lost_or_doubled_where_requests_fail(
    s3: FaultyS3, table: Path, tmp_path: Path, rate: float, items: int
) -> None:
    local = prepare(spec_of(table, limit=items), tmp_path / "here")
    s3.rate = rate
    write(f"{FOLDER}/reviews.csv", table)
    remote = prepare(spec_of(f"{FOLDER}/reviews.csv", limit=items), tmp_path / "there")
    assert remote.fingerprint == local.fingerprint
    pieces = at_store(remote, 16)
    assert items_of(pieces, 16) == items_of(local, 16)
    assert {"slow down", "reset", "torn"} <= set(s3.failed)
    assert info(f"{FOLDER}/reviews.csv").size == table.stat().st_size


def test_pictures_in_tars_and_parquet_columns_at_urls(s3, pictures, tmp_path) -> None:
    import tarfile

    files = sorted(pictures.rglob("*.png"))
    with tarfile.open(tmp_path / "all-000.tar", "w") as tar:
        for path in files:
            tar.add(path, f"{path.stem}.png")
    cells = [{"image": {"bytes": path.read_bytes(), "path": None}} for path in files]
    pq.write_table(pa.Table.from_pylist(cells), tmp_path / "all.parquet", row_group_size=5)
    for name, options in (("all-000.tar", {}), ("all.parquet", {"image": "image"})):
        url = write(f"{FOLDER}/packed/{name}", tmp_path / name).url
        local = prepare(DatasetSpec(source=str(tmp_path / name), **options), tmp_path / "here")
        there = prepare(DatasetSpec(source=url, **options), tmp_path / "there")
        assert there.fingerprint == local.fingerprint and there.rows == 12
        before = s3.given
        assert same(items_of(there), items_of(local))
        if name.endswith("tar"):  # a range for each picture, and nothing beside it
            assert s3.given - before == sum(path.stat().st_size for path in files)


@pytest.mark.exhaustive
def test_a_manifest_lies_in_the_store_too(s3, table, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("TRANSEXPLAIN_CACHE_DIR", str(tmp_path / "cache"))
    url = write(f"{FOLDER}/in/reviews.csv", table).url
    planned = plan_dataset(DatasetSpec(source=url, snapshot="manifest"), tmp_path / "planner")
    there = published(planned, 256, Settings(snapshot_url=f"{FOLDER}/snapshots"))
    assert there.snapshot == f"{FOLDER}/snapshots/{planned.fingerprint}.parquet"
    Path(planned.snapshot).unlink()
    local = prepare(DatasetSpec(source=str(table)), tmp_path / "here")
    pairs = zip(items_of(there), items_of(local), strict=True)
    assert all(
        (a.index, a.content) == (b.index, b.content) for a, b in pairs if isinstance(b, Item)
    )
    write(url, table.read_bytes() + b"x,1,k0,\n")
    listed_files._opened.cache_clear()
    with pytest.raises(DataSourceError, match=r"reviews\.csv has changed"):
        list(read_shard(there, make_shards(there.rows, 256)[1]))
