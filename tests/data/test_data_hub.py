"""Files of a hub: pinned to a commit, read by ranges, with a token from the environment."""

import io
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hub_here import REPOSITORY, TOKEN, HubHere, hub_here

from transexplain.data.snapshot import prepare
from transexplain.errors import ObjectStoreError, RemoteFileError
from transexplain.files import remote_files
from transexplain.files.local_copies import local_folder
from transexplain.files.remote_files import info, matching, pinned, read, read_range, under, write
from transexplain.types.plans import DatasetSpec

HERE = f"hf://datasets/{REPOSITORY}"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[HubHere]:
    from huggingface_hub import HfFileSystem

    monkeypatch.setattr(remote_files, "_WAITS", (0.0, 0.0))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    with hub_here() as found:
        HfFileSystem.clear_instance_cache()
        yield found
        HfFileSystem.clear_instance_cache()


def rows(first: int, count: int) -> bytes:
    sink = io.BytesIO()
    texts = [f"text {number} of the hub" for number in range(first, first + count)]
    pq.write_table(pa.table({"text": texts, "label": ["a"] * count}), sink)
    return sink.getvalue()


@pytest.mark.exhaustive
def test_a_revision_is_pinned_to_its_commit(hub: HubHere, tmp_path: Path) -> None:
    files = {f"data/{number}.parquet": rows(40 * number, 40 - 38 * number) for number in (0, 1)}
    first = hub.push({**files, "README.md": b"#"})
    for url in (f"{HERE}@main/data/*.parquet", f"{HERE}/data/*.parquet"):
        assert pinned(url) == f"{HERE}@{first}/data/*.parquet"
        ref = prepare(DatasetSpec(source=url), tmp_path / "snapshots")
        assert ref.rows == 42 and ref.source == url
        paths = [one.path for one in ref.files]
        assert paths == [f"{HERE}@{first}/data/{number}.parquet" for number in (0, 1)]
        assert all(one.state and one.size for one in ref.files)
    second = hub.push({"data/0.parquet": rows(7, 3)})
    at_first = prepare(DatasetSpec(source=f"{HERE}@{first}/data/*.parquet"), tmp_path / "snapshots")
    assert at_first.fingerprint == ref.fingerprint
    now = prepare(DatasetSpec(source=f"{HERE}/data/*.parquet"), tmp_path / "snapshots")
    assert now.rows == 3 and second in now.files[0].path


def test_files_are_listed_and_read_by_ranges(hub: HubHere, tmp_path, monkeypatch) -> None:
    commit = hub.push({"a/one.csv": b"0123456789", "a/b/two.csv": b"45", "three.txt": b""})
    url = f"{HERE}@{commit}/a/one.csv"
    assert info(url).size == 10 and read(url) == b"0123456789"
    before = hub.given
    assert read_range(url, 3, 6) == b"345" and hub.given - before == 3
    assert [one.url for one in matching(f"{HERE}@{commit}/**/*.csv")] == [
        f"{HERE}@{commit}/a/b/two.csv",
        url,
    ]
    assert [one.size for one in under(f"{HERE}@{commit}/a/")] == [2, 10]
    monkeypatch.setenv("TRANSEXPLAIN_CACHE_DIR", str(tmp_path))
    copy = local_folder(f"{HERE}/a")
    assert (copy / "b" / "two.csv").read_bytes() == b"45" and local_folder(f"{HERE}/a") == copy
    with pytest.raises(RemoteFileError, match="written"):
        write(url, b"1")


def test_what_is_not_there_or_private_is_named(hub: HubHere, monkeypatch) -> None:
    commit = hub.push({"a.csv": b"1"})
    for url in (
        f"{HERE}@{commit}/none.csv",
        f"{HERE}@none/a.csv",
        "hf://datasets/house/none@main/a.csv",
    ):
        with pytest.raises(RemoteFileError, match="set HF_TOKEN"):
            read(pinned(url))
    hub.private = True
    from huggingface_hub import HfFileSystem

    HfFileSystem.clear_instance_cache()
    with pytest.raises((RemoteFileError, ObjectStoreError), match="set HF_TOKEN") as told:
        read(pinned(f"{HERE}/a.csv"))
    assert TOKEN not in str(told.value)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    HfFileSystem.clear_instance_cache()
    assert read(pinned(f"{HERE}/a.csv")) == b"1"
