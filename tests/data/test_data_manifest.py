"""Manifests: rows are read from the source files, as a snapshot of the same data holds them."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from data_files import items_of, planned, read, write

from transexplain.data import dataset_plan, listed_files, shard_reader
from transexplain.data.shard_reader import (
    clustering_of,
    has_rationales,
    labels_of,
    looked_at,
    read_rows,
    unread_rows,
    value_counts,
)
from transexplain.errors import DataSourceError
from transexplain.files import remote_files
from transexplain.types.plans import DatasetRef, Shard

#: of a file: good and bad, with what separates cells and lines in each format
TEXTS = [
    *(f"text number {n} of the file, with its own words {n * 7919}" for n in range(700)),
    "",
    'a tab\tand a quote " and a comma, here',
    "  ",
    "Zoë — ünïcode",
]


def rows(texts: list[str] = TEXTS) -> list[dict[str, Any]]:
    return [
        {"text": text, "label": f"l{n % 3}", "id": f"id-{n}", "author": f"a{n % 5}"}
        for n, text in enumerate(texts)
    ]


def both(source: Path | str, folder: Path, **options: Any) -> tuple[DatasetRef, DatasetRef]:
    """The data copied, and listed."""
    options = {"duplicates": "off", **options}
    copied, listed = (
        planned(source, folder, snapshot=snapshot, **options) for snapshot in ("copy", "manifest")
    )
    assert (copied.manifest, listed.manifest) == (False, True)
    return copied, listed


def assert_same(copied: DatasetRef, listed: DatasetRef) -> None:
    assert (copied.rows, copied.modality) == (listed.rows, listed.modality)
    assert items_of(copied) == items_of(listed, 64)
    whole = Shard(index=0, start=0, stop=copied.rows)
    assert list(read_rows(copied, whole)) == list(read_rows(listed, whole))
    for row in (copied.rows - 1, copied.rows // 2, copied.rows // 2 - 1, 0):
        assert read(copied, row, row + 1) == read(listed, row, row + 1)
    for told in (labels_of, clustering_of, has_rationales):
        assert told(copied) == told(listed)
    assert list(unread_rows(copied)) == list(unread_rows(listed))


@pytest.mark.parametrize("suffix", ["parquet", "jsonl", "csv", "tsv"])
def test_every_row_is_as_in_the_copy(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"data.{suffix}", rows())
    copied, listed = both(path, tmp_path, meta=("author",), id="id")
    assert_same(copied, listed)
    assert value_counts(copied, "author") == value_counts(listed, "author")
    assert listed.rows == len(TEXTS)


ODD_CSV = {0: '"two\nlines",a', 7: '"stray" quote,b', 9: "short"}
ODD_JSON = {300: "", 301: "[1]", 302: '{"text": "\\ufeffx"}', 700: '\ufeff{"text": "t"}'}
#: files with records of several lines, bad quotes, and lines that are no rows
ODD = {
    "data.csv": ["text,label", *(ODD_CSV.get(n % 11, f"t{n},c") for n in range(1500)), "", " "],
    "data.jsonl": ["\ufeff{}", *(ODD_JSON.get(n, f'{{"text": "t{n}"}}') for n in range(900)), ""],
}


@pytest.mark.parametrize("name", ODD)
def test_records_and_lines_that_are_no_rows(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("\n".join(ODD[name]) + "\n", encoding="utf-8")
    copied, listed = both(tmp_path / name, tmp_path)
    assert_same(copied, listed)
    assert "malformed-row" in {getattr(item, "kind", "") for item in items_of(listed)}


def test_a_glob_is_read_in_order_up_to_the_limit(tmp_path: Path) -> None:
    for number in range(4):
        write(tmp_path / f"part-{number}.parquet", rows(TEXTS[number * 90 : number * 90 + 90]))
    copied, listed = both(tmp_path / "part-*.parquet", tmp_path, limit=200)
    assert_same(copied, listed)
    assert listed.rows == 200


def test_few_rows_have_the_clusters_of_the_copy(tmp_path: Path) -> None:
    texts = [*TEXTS[:50], *(f"{TEXTS[3]}!" for _ in range(3)), TEXTS[8]]
    path = write(tmp_path / "data.jsonl", rows(texts))
    copied, listed = both(path, tmp_path, duplicates="auto")
    assert clustering_of(copied)["repeating"] == 6
    assert_same(copied, listed)
    copied, listed = both(path, tmp_path, duplicates="auto", cluster="author")
    assert_same(copied, listed)


def test_ids_that_stand_twice_in_few_rows_are_refused(tmp_path: Path) -> None:
    some = rows()
    some[650]["id"] = "id-3"
    path = write(tmp_path / "data.parquet", some)
    for snapshot in ("copy", "manifest"):
        with pytest.raises(DataSourceError, match="'id-3'"):
            planned(path, tmp_path, id="id", snapshot=snapshot)


@pytest.mark.exhaustive
def test_auto_copies_what_is_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "data.jsonl", rows())
    assert planned(path, tmp_path) == planned(path, tmp_path, snapshot="copy")
    monkeypatch.setattr(dataset_plan, "COPIED", 1000)
    assert planned(path, tmp_path).manifest
    assert not planned(path, tmp_path, sample=5).manifest


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"sample": 5}, "data.sample"),
        ({"image": "text"}, "data.image"),
        ({"encoding": "cp1252"}, "data.encoding is cp1252"),
        ({"source": "imagefolder:x"}, "imagefolder"),
        ({"source": "other.tsv"}, r"other\.tsv"),
    ],
)
def test_what_no_manifest_can_hold_is_refused(
    tmp_path: Path, options: dict[str, Any], named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = write(tmp_path / "data.jsonl", rows())
    lines = "".join(f"Müller schläft {n}\n" for n in range(30))
    (tmp_path / "other.tsv").write_bytes(f"text\n{lines}".encode("cp1252"))
    with pytest.raises(DataSourceError, match=rf"{named}.*data.snapshot: copy"):
        planned(**{"source": path, "folder": tmp_path, "snapshot": "manifest", **options})


@pytest.fixture
def listed(tmp_path: Path) -> Iterator[tuple[Path, DatasetRef]]:
    for number in range(3):
        write(tmp_path / f"part-{number}.jsonl", rows(TEXTS[number * 100 : number * 100 + 100]))
    ref = planned(tmp_path / "part-*.jsonl", tmp_path, snapshot="manifest")
    yield tmp_path / "part-1.jsonl", ref


def test_a_changed_file_is_refused_by_name(listed: tuple[Path, DatasetRef]) -> None:
    """One that is gone, too; it may come back."""
    path, ref = listed
    before = read(ref, 100, 200)
    text = path.read_bytes()
    path.write_bytes(text.replace(b"number 101", b"number 999"))
    with pytest.raises(DataSourceError, match=r"part-1.jsonl has changed"):
        read(ref, 100, 200)
    path.unlink()
    with pytest.raises(DataSourceError, match=r"part-1.jsonl"):
        read(ref, 150, 250)
    assert read(ref, 0, 100), "the other files are read"
    assert read(ref, 200, 300)
    path.write_bytes(text)  # with another time of change: its bytes are those of the plan
    assert read(ref, 100, 200) == before


def test_a_large_parquet_file_needs_its_time(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(dataset_plan, "_HASHED", 0)
    path = write(tmp_path / "data.parquet", rows())
    ref = planned(path, tmp_path, snapshot="manifest")
    changed = path.stat().st_mtime_ns
    os.utime(path, ns=(changed, changed + 1))
    with pytest.raises(DataSourceError, match=r"data.parquet has changed"):
        read(ref, 0, 10)
    os.utime(path, ns=(changed, changed))
    assert len(read(ref, 0, 10)) == 10


def test_a_line_index_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "data.csv", rows())
    first = both(path, tmp_path)[1]
    monkeypatch.setattr(dataset_plan, "index_lines", lambda *_: pytest.fail("read again"))
    assert both(path, tmp_path)[1] == first
    for kept in (tmp_path / "snapshots").glob("*.lines"):
        kept.write_bytes(b"no index")
    monkeypatch.undo()
    assert both(path, tmp_path)[1] == first


def test_a_worker_reads_its_rows_and_little_else(tmp_path: Path) -> None:
    path = write(tmp_path / "data.jsonl", rows(TEXTS[:700] * 4))
    url = f"memory://{tmp_path}/data.jsonl"
    remote_files.write(url, path)
    ref = planned(url, tmp_path, snapshot="manifest", duplicates="off")
    asked: list[int] = []
    ranged = remote_files.read_range

    def counted(url: str, start: int, stop: int) -> bytes:
        asked.append(stop - start)
        return ranged(url, start, stop)

    listed_files._opened.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(remote_files, "read_range", counted)
        found = read(ref, 512, 1536)
    local, _ = both(path, tmp_path)
    assert found == read(local, 512, 1536)
    whole = path.stat().st_size
    assert sum(asked) <= 1.05 * whole * 1024 / 2800


def test_a_remote_file_that_changed_is_refused(tmp_path: Path) -> None:
    url = f"memory://{tmp_path}/data.parquet"
    path = write(tmp_path / "data.parquet", rows())
    remote_files.write(url, path)
    ref = planned(url, tmp_path, snapshot="manifest", duplicates="off")
    local, _ = both(path, tmp_path)
    assert items_of(ref) == items_of(local)
    remote_files.write(url, write(tmp_path / "data.parquet", rows(TEXTS[1:])))
    listed_files._opened.cache_clear()
    with pytest.raises(DataSourceError, match=r"data.parquet has changed"):
        read(ref, 0, 10)
    remote_files.delete(url)
    listed_files._opened.cache_clear()
    with pytest.raises(DataSourceError, match=r"data.parquet.*resume"):
        read(ref, 0, 10)


def test_of_many_rows_some_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_reader, "MOST", 500)
    path = write(tmp_path / "data.parquet", rows())
    _, ref = both(path, tmp_path)
    some = looked_at(ref)
    assert {one.start for one in some} == {0, 150, 300, 450, 600}
    assert labels_of(ref) == ["l0", "l1", "l2"]


def test_an_empty_file_is_passed_over(tmp_path: Path) -> None:
    write(tmp_path / "b.tsv", rows())
    (tmp_path / "a.tsv").write_text("text\tlabel\tid\tauthor\n")
    assert_same(*both(tmp_path / "*.tsv", tmp_path))
    with pytest.raises(DataSourceError, match=r"a\.tsv"):
        planned(tmp_path / "a.tsv", tmp_path, snapshot="manifest")
