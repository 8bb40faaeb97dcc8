"""Fixtures for tests on an S3 server of this machine; `tests/conftest.py` makes them known."""

from collections.abc import Iterator

import pytest
from faulty_s3 import BUCKET, FaultyS3, faulty_s3

from transexplain.files import remote_files
from transexplain.files.remote_files import delete, under


@pytest.fixture(scope="module")
def s3_server() -> Iterator[FaultyS3]:
    with faulty_s3() as s3:
        yield s3


@pytest.fixture
def s3(s3_server: FaultyS3, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyS3]:
    """The server without faults and with an empty bucket; nothing waits before another attempt."""
    monkeypatch.setattr(remote_files, "_WAITS", (0.0, 0.0))
    monkeypatch.setattr("s3fs.core.asyncio.sleep", _at_once)
    yield s3_server
    s3_server.rate, s3_server.refusal = 0.0, ""
    s3_server.ways = ("slow down", "reset", "torn")
    s3_server.failed.clear()
    for one in under(f"s3://{BUCKET}/t"):
        delete(one.url)


async def _at_once(_: float) -> None:
    return None
