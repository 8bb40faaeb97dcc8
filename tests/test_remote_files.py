"""Files by URL: at a local S3 server that fails on request, in memory and on the disk."""

import io
import multiprocessing
import os
import re
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import s3fs
from faulty_s3 import BUCKET, FaultyS3
from gcp_storage_emulator.server import create_server

from transexplain.errors import ConfigurationError, ObjectStoreError, RemoteFileError
from transexplain.files.remote_files import (
    RangeReader,
    check_url,
    delete,
    info,
    is_url,
    matching,
    read,
    read_range,
    under,
    write,
    write_all,
)


@pytest.fixture(scope="module")
def gcs() -> Iterator[None]:
    """An emulator of Google Cloud Storage, which knows no credentials."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with mock.patch.dict(os.environ, GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT="false"):
        import gcsfs  # which asks for credentials otherwise, to learn the kind of the bucket
    emulator = create_server("127.0.0.1", port, in_memory=True, default_bucket=BUCKET)
    emulator.start()
    try:
        with mock.patch.dict(os.environ, STORAGE_EMULATOR_HOST=f"http://127.0.0.1:{port}"):
            yield
    finally:
        gcsfs.GCSFileSystem.clear_instance_cache()
        emulator.stop()


@pytest.fixture(params=["s3", "gs", "memory", "file"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty folder, for each kind of store."""
    if request.param == "s3":
        request.getfixturevalue("s3")
        yield f"s3://{BUCKET}/t"
    elif request.param == "gs":
        request.getfixturevalue("gcs")
        yield f"gs://{BUCKET}/t"
        for one in under(f"gs://{BUCKET}/t"):
            delete(one.url)
    elif request.param == "file":
        yield (tmp_path / "a b").as_uri()
    else:
        yield "memory://t"
        fsspec.filesystem("memory").store.clear()


def test_what_is_written_is_read_listed_and_deleted(folder: str, tmp_path: Path) -> None:
    local = tmp_path / "local"
    local.write_bytes(b"from a file")
    first = write(f"{folder}/a/one.csv", b"0123456789")
    second = write(f"{folder}/two.csv", local)
    assert (first.size, second.size) == (10, 11)
    assert info(first.url) == first and first.state
    assert read(second.url) == b"from a file"
    assert read_range(first.url, 3, 6) == b"345" and read_range(first.url, 3, 3) == b""
    assert under(folder) == [first, second]
    assert matching(f"{folder}/*.csv") == [second]
    assert matching(f"{folder}/**/*.csv") == [first, second]
    assert matching(first.url) == [first]
    delete(first.url)
    delete(first.url)
    assert under(folder) == [second]
    assert under(second.url) == []


def test_a_file_that_is_not_there_is_named(folder: str) -> None:
    write(f"{folder}/a/one.csv", b"1")
    for request in (info, read, RangeReader, matching):
        with pytest.raises(RemoteFileError, match=r"/no\.csv does"):
            request(f"{folder}/no.csv")
    for request, name in ((info, "a"), (matching, "*.parquet")):
        with pytest.raises(RemoteFileError, match=re.escape(f"/{name}")):
            request(f"{folder}/{name}")
    assert under(f"{folder}/nothing") == []
    write(f"{folder}/run-10/part", b"1")
    assert under(f"{folder}/run-1") == []


def test_a_change_is_seen(folder: str) -> None:
    before = write(f"{folder}/one", b"0123456789")
    reader = RangeReader(before.url, before)
    after = write(before.url, b"9876543210")
    assert after.state != before.state
    with pytest.raises(RemoteFileError, match="/one was changed"):
        RangeReader(before.url, before)
    write(before.url, b"01")
    for place in (1, 4):
        reader.seek(place)
        with pytest.raises(RemoteFileError, match=r"/one (was cut|holds)"):
            reader.read(4)


def test_a_reader_behaves_as_a_file(folder: str) -> None:
    content = bytes(range(256)) * 3
    reader = RangeReader(write(f"{folder}/one", content).url)
    assert reader.readable() and reader.seekable()
    assert reader.seek(-8, io.SEEK_END) == 760 and reader.read() == content[-8:]
    assert reader.read(5) == b"" and reader.tell() == 768
    assert reader.seek(10) == 10 and reader.seek(5, io.SEEK_CUR) == 15
    assert reader.read(4) == content[15:19]
    with pytest.raises(ValueError, match="negative"):
        reader.seek(-1)
    assert reader.seek(1_000) == 1_000 and reader.read(4) == b""
    lines = io.BufferedReader(RangeReader(write(f"{folder}/lines", b"a\nb\nc").url))
    assert list(lines) == [b"a\n", b"b\n", b"c"]


def test_a_row_group_is_read_and_nothing_beside_it(s3: FaultyS3) -> None:
    sink = io.BytesIO()
    table = pa.table({"text": [os.urandom(500).hex() for _ in range(4_000)]})
    pq.write_table(table, sink, row_group_size=500)
    url = write(f"s3://{BUCKET}/t/one.parquet", sink.getvalue()).url
    footer = pq.ParquetFile(sink).metadata
    size = footer.row_group(3).column(0).total_compressed_size
    reader = RangeReader(url)
    before = s3.given
    with pq.ParquetFile(reader, metadata=footer, pre_buffer=False) as file:
        assert file.read_row_group(3).equals(table.slice(1_500, 500))
    assert size <= s3.given - before <= 1.05 * size


@pytest.mark.parametrize(
    ("rate", "files"), [(0.3, 10), pytest.param(0.05, 300, marks=pytest.mark.exhaustive)]
)
def test_nothing_is_lost_where_requests_fail(s3: FaultyS3, rate: float, files: int) -> None:
    s3.rate = rate
    contents = {f"s3://{BUCKET}/t/{number:03}": os.urandom(5_000) for number in range(files)}
    for url, content in contents.items():
        write(url, content)
    for url, content in contents.items():
        assert read(url) == content
        assert read_range(url, 100, 4_100) == content[100:4_100]
    assert [one.url for one in under(f"s3://{BUCKET}/t")] == list(contents)
    assert {"slow down", "reset", "torn"} <= set(s3.failed)


def test_a_store_that_is_away_for_good_is_named_with_the_remedy(s3: FaultyS3) -> None:
    url = write(f"s3://{BUCKET}/t/one", b"1").url
    for way in ("slow down", "reset"):
        s3.rate, s3.ways = 1.0, (way,)
        with pytest.raises(ObjectStoreError, match=r"after 3 attempts[\s\S]*AWS_ENDPOINT_URL"):
            read(url)
    s3.rate, s3.ways = 0.0, ("slow down", "reset", "torn")
    assert read(url) == b"1"


def test_refused_credentials_are_told_at_once_and_never_shown(s3: FaultyS3) -> None:
    url = write(f"s3://{BUCKET}/t/one", b"1").url
    s3.refusal = "ExpiredToken"
    named = r"/one: access[\s\S]*AWS_SESSION_TOKEN"
    for request in (info, lambda one: write(one, b"2"), under):
        before = len(s3.requests)
        with pytest.raises(ObjectStoreError, match=named) as refusal:
            request(url)
        assert len(s3.requests) - before == 1
        assert refusal.value.__cause__ is None and refusal.value.__suppress_context__
    s3.refusal = ""
    assert read(url) == b"1"


@pytest.mark.exhaustive
def test_credentials_that_are_renewed_in_their_file_are_taken(s3, tmp_path, monkeypatch) -> None:
    url = write(f"s3://{BUCKET}/t/one", b"1").url
    credentials = tmp_path / "credentials"
    known = "[default]\naws_access_key_id = AKIAOTHER\naws_secret_access_key = other\n"
    with monkeypatch.context() as environment:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            environment.delenv(name)
        environment.setenv("AWS_SHARED_CREDENTIALS_FILE", str(credentials))
        environment.setenv("AWS_CONFIG_FILE", os.devnull)
        s3fs.S3FileSystem.clear_instance_cache()
        with pytest.raises(ObjectStoreError, match="access is refused"):
            read(url)
        credentials.write_text(known, encoding="utf-8")
        assert read(url) == b"1"
    s3fs.S3FileSystem.clear_instance_cache()


def test_a_message_of_a_library_loses_its_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    message = "no host for http://h/k?X-Amz-Signature=abc with key hidden-in-here"
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hidden-in-here")
    memory = "fsspec.implementations.memory.MemoryFileSystem.cat_file"
    with (
        mock.patch(memory, side_effect=OSError(22, message)),
        pytest.raises(ObjectStoreError, match="no host for") as refusal,
    ):
        read("memory://one")
    assert "abc" not in str(refusal.value) and "hidden-in-here" not in str(refusal.value)


@pytest.mark.parametrize(
    ("remedy", "urls"),
    {
        "s3://BUCKET/KEY": (
            *(
                "s3://AKIA:se/cr@et@b/a.csv",
                "s3://secret@b/a.csv",
                "s3://AKIA:secret@reviews/a.csv",
            ),
            *("s3://reviews/a.csv?X-Amz-Signature=secret", "s3://reviews", "s3:///a.csv"),
        ),
        "file://, memory://, s3://": ("ftp://host/a.csv", "a.csv"),
        "file:///PATH": ("file://host/a.csv",),
        "memory://PATH": ("memory://",),
        "gs://BUCKET/KEY": ("gs://key:secret@reviews/a.csv",),
        "az://CONTAINER/KEY": ("az://reviews/a.csv?sv=2024&sig=secret",),
        "hf://datasets": ("hf://secret@datasets/org/a", "hf://u:secret@o/n"),
    }.items(),
)
def test_a_wrong_url_is_refused_and_its_secrets_are_not_shown(
    remedy: str, urls: tuple[str, ...]
) -> None:
    for url in urls:
        with pytest.raises(RemoteFileError, match=remedy) as refusal:
            read(url)
        secrets = ("secret", "se/cr", "et@", "AKIA")
        assert not any(secret in str(refusal.value) for secret in secrets)


def test_urls_and_paths_and_a_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_url("s3://b/k") and is_url("ftp://h/x")
    assert not any(map(is_url, ("a.csv", "/a/b", "C:\\a", "c:/a", "hf:org/name", "files:a://b")))
    check_url("s3://reviews/dt=2026/part-?.parquet")
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(ConfigurationError, match=r"pip install '\.\[s3\]'"):
        check_url("s3://reviews/a.csv")


def test_a_local_file_is_there_whole_or_not_at_all(tmp_path, monkeypatch) -> None:
    url = write((tmp_path / "one").as_uri(), b"old").url

    def pipe_file(_: object, path: str, content: bytes) -> None:
        Path(path).write_bytes(content[:1])
        raise OSError(28, "no space left")

    monkeypatch.setattr("fsspec.implementations.local.LocalFileSystem.pipe_file", pipe_file)
    with pytest.raises(ObjectStoreError, match="space left"):
        write(url, b"new")
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"old"]


def _read_elsewhere(url: str, answer: "multiprocessing.SimpleQueue[bytes]") -> None:
    answer.put(read(url))


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
@pytest.mark.parametrize("way", ["fork", pytest.param("spawn", marks=pytest.mark.exhaustive)])
def test_a_process_that_is_made_afterwards_reads_too(s3: FaultyS3, way: str) -> None:
    url = write(f"s3://{BUCKET}/t/one", b"0123").url
    context = multiprocessing.get_context(way)
    answer = context.SimpleQueue()
    process = context.Process(target=_read_elsewhere, args=(url, answer))
    process.start()
    process.join(60)
    assert process.exitcode == 0
    assert answer.get() == b"0123"
    assert read(url) == b"0123"


def test_files_are_made_no_further_ahead_than_a_few_are_written(monkeypatch) -> None:
    written: list[str] = []
    ahead = []

    def write(url: str, content: bytes) -> None:
        time.sleep(0.02)
        written.append(url)

    def files() -> Iterator[tuple[str, bytes]]:
        for number in range(200):
            ahead.append(number - len(written))
            yield f"memory://{number}", b""

    monkeypatch.setattr("transexplain.files.remote_files.write", write)
    write_all(files())
    assert len(written) == 200
    assert max(ahead) < 50
