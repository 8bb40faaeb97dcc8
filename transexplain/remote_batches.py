"""Reads and writes many files by URL, several at the same time."""

from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from transexplain.errors import TransExplainError
from transexplain.remote_files import FileInfo, info, read, write

_TOGETHER = 16


def read_all(urls: Sequence[str]) -> list[bytes | TransExplainError]:
    """All bytes of each file; in the place of one that fails its error.

    All of them are in memory at once.
    """

    def one(url: str) -> bytes | TransExplainError:
        try:
            return read(url)
        except TransExplainError as error:
            return error

    with ThreadPoolExecutor(_TOGETHER, "remote-files") as threads:
        return list(threads.map(one, urls))


def info_all(urls: Sequence[str]) -> list[FileInfo]:
    """Size and state of each file. Raises RemoteFileError, ObjectStoreError."""
    with ThreadPoolExecutor(_TOGETHER, "remote-files") as threads:
        return list(threads.map(info, urls))


def write_all(files: Iterable[tuple[str, bytes]]) -> None:
    """Write (URL, content) after (URL, content); a few of them are in memory at once.

    Ends at the first that fails: raises RemoteFileError, ObjectStoreError. Others may be written.
    """
    under_way: deque[Future[FileInfo]] = deque()
    with ThreadPoolExecutor(_TOGETHER, "remote-files") as threads:
        try:
            for url, content in files:
                under_way.append(threads.submit(write, url, content))
                if len(under_way) > _TOGETHER:
                    under_way.popleft().result()
            while under_way:
                under_way.popleft().result()
        finally:
            for one in under_way:
                one.cancel()
