"""Reads and writes files by URL: `s3://bucket/key`, `gs://`, `az://`, `hf://`, `file:///path`.

Credentials come from the environment, as each library reads it (AWS_ACCESS_KEY_ID, HF_TOKEN,
AWS_ENDPOINT_URL, ...), and never from a URL. Every function takes whole URLs, and every error of
a library becomes one of this package that names the URL and the remedy. The libraries retry what
is transient; what they give up is tried again here. Processes may be forked or spawned at any
time: each has file systems of its own.
"""

import errno
import io
import os
import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from transexplain.atomic_write import atomic_file
from transexplain.errors import ObjectStoreError, RemoteFileError, TransExplainError
from transexplain.remote_stores import (
    check_address,
    exact,
    file_system,
    hub_file,
    is_url,
    path_of,
    require_package,
    scheme_of,
    state_of,
    store_of,
    url_of,
    without_secrets,
)

__all__ = [
    "FileInfo",
    "RangeReader",
    "check_url",
    "copy_to",
    "delete",
    "info",
    "is_url",
    "matching",
    "pinned",
    "read",
    "read_range",
    "under",
    "write",
]

_T = TypeVar("_T")
_WAITS = (0.5, 2.0)  #: seconds before each further attempt
_MAGIC = re.compile(r"[*?[]")
#: classes and codes that are no PermissionError though the credentials are at fault
_REFUSED = {
    *("NoCredentialsError", "PartialCredentialsError", "InvalidToken", "TokenRefreshRequired"),
    *("ClientAuthenticationError", "DefaultCredentialsError", "RefreshError", "GatedRepoError"),
}
#: classes of connections that broke and of bodies that were torn, in the libraries below
_TORN = {
    *("HTTPClientError", "ClientConnectionError", "ClientPayloadError", "IncompleteReadError"),
    *("ServiceRequestError", "ServiceResponseError", "RemoteProtocolError", "NetworkError"),
}
#: codes of stores that have no such bucket or container; Google's says it in its message alone
_NO_BUCKET = {"NoSuchBucket", "ContainerNotFound"}
#: what s3fs makes of SlowDown, ServiceUnavailable and InternalError
_TRANSIENT = {errno.EBUSY, getattr(errno, "EREMOTEIO", errno.EIO)}
#: answers by HTTP that say the same
_REFUSALS, _AWAY = {401, 403}, {408, 429, 500, 502, 503, 504}


@dataclass(frozen=True, kw_only=True, slots=True)
class FileInfo:
    """What a store says about a file without a byte of it being read."""

    url: str
    size: int  #: bytes
    state: str  #: another one after each change: the ETag, or the time of change in nanoseconds


def check_url(url: str) -> None:
    """Refuse a URL before anything is asked of it.

    Raises RemoteFileError: another scheme, no bucket, credentials or a signature in it (neither is
    shown); ConfigurationError: the package for its scheme is not installed.
    """
    check_address(url)
    require_package(url)


def pinned(url: str) -> str:
    """The URL at the commit that its revision names now, of `hf://`; any other URL as it is.

    Raises RemoteFileError where there is no such repository or revision; ObjectStoreError.
    """
    if scheme_of(url) != "hf" or hub_file(url).pinned:
        return url
    there = hub_file(url)

    def commit(*_: Any) -> str:
        from huggingface_hub import HfApi

        found = HfApi().repo_info(
            there.repository, revision=there.revision, repo_type=there.kind, timeout=30
        )
        return str(found.sha)

    return there.at(_asked(url, commit))


def info(url: str) -> FileInfo:
    """Size and state of a file. Raises RemoteFileError where it is none; ObjectStoreError."""
    return _asked(url, lambda files, path: _described(url, files.info(path)))


def matching(pattern: str) -> list[FileInfo]:
    """The files that a URL with `*`, `?`, `[...]` or `**` matches, by URL; that of one without.

    Raises RemoteFileError where there is none; ObjectStoreError.
    """
    if not _MAGIC.search(pattern):
        return [info(pattern)]
    found = _asked(pattern, lambda files, path: _listed(pattern, files.glob(path, detail=True)))
    if not found:
        raise RemoteFileError(f"no file matches {pattern}")
    return found


def under(prefix: str) -> list[FileInfo]:
    """All files below a folder, by URL; empty where there is none. Raises ObjectStoreError."""

    def listed(files: Any, path: str) -> list[FileInfo]:
        found = files.find(path.rstrip("/"), detail=True)
        # a file of that very name is no folder
        return [one for one in _listed(prefix, found) if not same_file(one, path)]

    def same_file(one: FileInfo, path: str) -> bool:
        return path_of(one.url).strip("/") == path.strip("/")

    return _asked(prefix, listed, missing=list)


def read(url: str, most: int | None = None) -> bytes:
    """All bytes of a file, or the first `most`. Raises RemoteFileError, ObjectStoreError."""
    part = {} if most is None else {"start": 0, "end": most, **exact(url)}
    return _asked(url, lambda files, path: bytes(files.cat_file(path, **part)))


def copy_to(url: str, path: Path) -> None:
    """Copy a whole file to the local `path`, whose folder is there.

    Raises RemoteFileError, ObjectStoreError, OSError where `path` cannot be written.
    """
    with atomic_file(path) as temporary:

        def get(files: Any, name: str) -> None:
            temporary.unlink(missing_ok=True)  # what an attempt before has left
            files.get_file(name, str(temporary))

        _asked(url, get)


def read_range(url: str, start: int, stop: int) -> bytes:
    """Bytes `start` to `stop` of a file in one request for these and no others.

    Raises RemoteFileError where the file has fewer bytes; ObjectStoreError.
    """
    if stop <= start:
        return b""
    content = _asked(
        url, lambda files, path: bytes(files.cat_file(path, start=start, end=stop, **exact(url)))
    )
    if len(content) != stop - start:
        raise RemoteFileError(
            f"{url} holds {len(content):,} of the {stop - start:,} bytes at {start:,}: it was "
            "changed or cut; put the file back or plan again"
        )
    return content


def write(url: str, content: bytes | Path) -> FileInfo:
    """Write a whole file, given as bytes or as a local file; nobody sees a part of it.

    An older file of that name is replaced. Raises RemoteFileError, ObjectStoreError.
    """

    if scheme_of(url) == "hf":
        raise RemoteFileError(f"{url}: hf:// is read and not written; write to another store")

    def put(files: Any, path: str) -> FileInfo:
        if scheme_of(url) == "file":
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            with atomic_file(Path(path)) as temporary:
                _copy(content, files, str(temporary))
        else:
            _copy(content, files, path)
        return _described(url, files.info(path))

    return _asked(url, put)


def delete(url: str) -> None:
    """Delete a file; nothing happens where there is none. Raises ObjectStoreError."""
    _asked(url, lambda files, path: files.rm_file(path), missing=lambda: None)


class RangeReader(io.RawIOBase):
    """A file by its URL, open at any byte: each read is one request for the bytes asked for.

    There is no read-ahead: wrap it in `io.BufferedReader` to read lines, or in `pyarrow.PythonFile`
    for row groups. Raises RemoteFileError: no such file, or another state than the `expected`.
    """

    def __init__(self, url: str, expected: FileInfo | None = None) -> None:
        self.info = info(url)
        self.bytes_read = 0
        self._place = 0
        if expected is not None:
            _check_same(self.info, expected)

    def check(self) -> None:
        """Raise RemoteFileError if the file changed since it was opened: what was read is mixed."""
        _check_same(info(self.info.url), self.info)

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def tell(self) -> int:
        """The byte that the next read begins at."""
        return self._place

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to a byte, also beyond the end; nothing is asked of the store."""
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._place, os.SEEK_END: self.info.size}[whence]
        if start + offset < 0:
            raise ValueError("negative seek position")
        self._place = start + offset
        return self._place

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer as far as the file goes. Raises RemoteFileError, ObjectStoreError."""
        view = memoryview(buffer).cast("B")
        stop = min(self._place + len(view), self.info.size)
        content = read_range(self.info.url, self._place, stop)
        view[: len(content)] = content
        self._place += len(content)
        self.bytes_read += len(content)
        return len(content)


def _check_same(now: FileInfo, before: FileInfo) -> None:
    if (now.size, now.state) != (before.size, before.state):
        raise RemoteFileError(
            f"{now.url} was changed: {before.size:,} bytes ({before.state}) before, {now.size:,} "
            f"({now.state}) now; put the file back or plan again"
        )


def _asked(
    url: str, request: Callable[[Any, str], _T], missing: Callable[[], _T] | None = None
) -> _T:
    """The answer of a file system to a request; `missing` is that for no such file in a bucket."""
    check_url(url)
    for wait in (*_WAITS, None):
        files = file_system(url)
        try:
            return request(files, path_of(url))
        except TransExplainError:
            raise
        except Exception as error:  # noqa: BLE001 - each library has a tree of its own
            if missing and isinstance(error, FileNotFoundError) and not _no_bucket(error):
                return missing()
            if _refused(error):
                # a client keeps the credentials that it began with; the next one reads them again
                files.clear_instance_cache()
            if wait is None or not _transient(error):
                # the error itself may hold headers and signatures: it is not chained
                raise _explained(url, error) from None
        time.sleep(wait)
    raise AssertionError("the last attempt returns or raises")


def _leave_loop_behind() -> None:
    """The thread that runs fsspec's loop is not in a forked process: another one is begun."""
    if asyn := sys.modules.get("fsspec.asyn"):
        asyn.loop[0] = asyn.iothread[0] = None


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_leave_loop_behind)


def _listed(url: str, found: dict[str, dict[str, Any]]) -> list[FileInfo]:
    scheme = scheme_of(url)
    files = [
        _described(url_of(scheme, name), one)
        for name, one in found.items()
        if one["type"] == "file"
    ]
    return sorted(files, key=lambda one: one.url)


def _described(url: str, found: dict[str, Any]) -> FileInfo:
    if found["type"] != "file":
        raise FileNotFoundError(errno.ENOENT, "a folder, no file")
    return FileInfo(url=url, size=int(found["size"]), state=state_of(scheme_of(url), found))


def _copy(content: bytes | Path, files: Any, path: str) -> None:
    if isinstance(content, Path):
        files.put_file(str(content), path)
    else:
        files.pipe_file(path, content)


def _causes(error: BaseException | None) -> list[BaseException]:
    found: list[BaseException] = []
    while error is not None and error not in found:
        found.append(error)
        error = error.__cause__ or error.__context__
    return found


def _names(error: Exception) -> set[str]:
    """Classes and codes of an error and its causes: the libraries may not be installed."""
    causes = _causes(error)
    classes = {kind.__name__ for one in causes for kind in type(one).__mro__}
    return classes | {_code(one) for one in causes}


def _status(error: Exception) -> set[int]:
    """Statuses by HTTP that an error and its causes tell of."""
    found = set()
    for one in _causes(error):
        response = getattr(one, "response", None)
        for status in (getattr(response, "status_code", None), getattr(one, "code", None)):
            if isinstance(status, int):
                found.add(status)
    return found


def _refused(error: Exception) -> bool:
    if isinstance(error, PermissionError) or _names(error) & _REFUSED:
        return True
    return not isinstance(error, FileNotFoundError) and bool(_status(error) & _REFUSALS)


def _no_bucket(error: Exception) -> bool:
    """Whether a store has not even the bucket or container: it is the wrong one, or away."""
    said = " ".join(map(str, _causes(error))).lower()
    return bool(_names(error) & _NO_BUCKET) or "bucket does not exist" in said


def _transient(error: Exception) -> bool:
    if isinstance(error, FileNotFoundError | PermissionError | IsADirectoryError):
        return False
    if isinstance(error, TimeoutError | ConnectionError) or _names(error) & _TORN:
        return True
    if _status(error) & _AWAY:
        return True
    return isinstance(error, OSError) and error.errno in _TRANSIENT


def _explained(url: str, error: Exception) -> TransExplainError:
    reason = " ".join(without_secrets(str(error)).split()) or type(error).__name__
    store = store_of(url)
    if _no_bucket(error):
        bucket = url.partition("://")[2].partition("/")[0]
        what = f"{url}: there is no bucket {bucket!r}"
        return ObjectStoreError(f"{what}; check its name and {store.place}, or make it")
    if isinstance(error, FileNotFoundError | IsADirectoryError) or 404 in _status(error):
        private = f"; if it is private, {store.credentials}" if scheme_of(url) == "hf" else ""
        return RemoteFileError(
            f"{url} does not exist or is no file; check the name, put it back{private}"
        )
    if "InvalidRange" in _names(error):
        return RemoteFileError(f"{url} was cut since it was listed; put it back or plan again")
    if _refused(error) and store.credentials:
        return ObjectStoreError(
            f"{url}: access is refused ({reason}); the credentials are missing, have expired or do "
            f"not allow this: {store.credentials}, then resume"
        )
    tried = f" after {len(_WAITS) + 1} attempts" if _transient(error) else ""
    resume = ", then resume" if store.credentials else ""
    return ObjectStoreError(f"{url} cannot be used{tried} ({reason}); check {store.place}{resume}")


def _code(error: BaseException) -> str:
    response = getattr(error, "response", None)
    code = response.get("Error", {}).get("Code") if isinstance(response, dict) else None
    return str(code or "")
