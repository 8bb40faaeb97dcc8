"""Reads and writes files by URL: `s3://bucket/key`, `file:///path` and `memory://path`.

Credentials come from the environment, as botocore reads it (AWS_ACCESS_KEY_ID, AWS_PROFILE,
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
from urllib.parse import unquote

from transexplain.addresses import HIDDEN
from transexplain.atomic_write import atomic_file
from transexplain.errors import (
    ConfigurationError,
    ObjectStoreError,
    RemoteFileError,
    TransExplainError,
)

_T = TypeVar("_T")
_WAITS = (0.5, 2.0)  #: seconds before each further attempt
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
_BUCKET = re.compile(r"[A-Za-z0-9._-]+")
_MAGIC = re.compile(r"[*?[]")
#: scheme -> package and extra that it needs
_SCHEMES: dict[str, tuple[str, str] | None] = {"file": None, "memory": None, "s3": ("s3fs", "s3")}
#: what a signed URL ends with; a lone `?` is a pattern's
_QUERY = re.compile(r"\?[A-Za-z0-9_.~-]+=")
_SECRETS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
_CREDENTIALS = (
    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and AWS_SESSION_TOKEN) or AWS_PROFILE in the "
    "environment of every process that reads it"
)
#: classes and codes that are no PermissionError though the credentials are at fault
_REFUSED = {"NoCredentialsError", "PartialCredentialsError", "InvalidToken", "TokenRefreshRequired"}
#: classes of connections that broke and of bodies that were torn, in the libraries below
_TORN = {"HTTPClientError", "ClientConnectionError", "ClientPayloadError", "IncompleteReadError"}
#: what s3fs makes of SlowDown, ServiceUnavailable and InternalError
_TRANSIENT = {errno.EBUSY, getattr(errno, "EREMOTEIO", errno.EIO)}


@dataclass(frozen=True, kw_only=True, slots=True)
class FileInfo:
    """What a store says about a file without a byte of it being read."""

    url: str
    size: int  #: bytes
    state: str  #: another one after each change: the ETag, or the time of change in nanoseconds


def is_url(text: str) -> bool:
    """Whether `text` is written as a URL; a path of a file system is none."""
    return _URL.match(text) is not None


def check_url(url: str) -> None:
    """Refuse a URL before anything is asked of it.

    Raises RemoteFileError: another scheme, no bucket, credentials or a signature in it (neither is
    shown); ConfigurationError: the package for its scheme is not installed.
    """
    found = _URL.match(url)
    scheme = found[1] if found else ""
    if scheme not in _SCHEMES:
        raise RemoteFileError(
            f"{scheme or 'this'}:// is no address that files are read from; write one of "
            f"{', '.join(f'{one}://' for one in _SCHEMES)}"
        )
    rest = url[len(scheme) + 3 :]
    place, _, key = rest.partition("/")
    if scheme == "s3" and ("@" in place or ":" in place):
        raise RemoteFileError(
            f"s3://{HIDDEN}: a URL holds no credentials; write s3://BUCKET/KEY and {_CREDENTIALS}"
        )
    if scheme == "s3" and _QUERY.search(rest):
        raise RemoteFileError(
            f"{url.partition('?')[0]}?{HIDDEN}: a URL holds no signature; write s3://BUCKET/KEY "
            f"and {_CREDENTIALS}"
        )
    if scheme == "s3" and not (_BUCKET.fullmatch(place) and key):
        raise RemoteFileError(f"{url} names no bucket and key; write s3://BUCKET/KEY")
    if scheme == "file" and (place or not key):
        raise RemoteFileError(f"{url} names no path of this machine; write file:///PATH")
    if not rest.strip("/"):
        raise RemoteFileError(f"{url} names no file; write {scheme}://PATH")
    _require(_SCHEMES[scheme])


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
        try:
            found = files.find(path.rstrip("/"), detail=True)
        except FileNotFoundError:
            return []
        # a file of that very name is no folder
        return [one for one in _listed(prefix, found) if not same_file(one, path)]

    def same_file(one: FileInfo, path: str) -> bool:
        return _path(one.url).strip("/") == path.strip("/")

    return _asked(prefix, listed)


def read(url: str) -> bytes:
    """All bytes of a file. Raises RemoteFileError, ObjectStoreError."""
    return _asked(url, lambda files, path: bytes(files.cat_file(path)))


def read_range(url: str, start: int, stop: int) -> bytes:
    """Bytes `start` to `stop` of a file in one request for these and no others.

    Raises RemoteFileError where the file has fewer bytes; ObjectStoreError.
    """
    if stop <= start:
        return b""
    content = _asked(url, lambda files, path: bytes(files.cat_file(path, start=start, end=stop)))
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

    def put(files: Any, path: str) -> FileInfo:
        if _scheme(url) == "file":
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            with atomic_file(Path(path)) as temporary:
                _copy(content, files, str(temporary))
        else:
            _copy(content, files, path)
        return _described(url, files.info(path))

    return _asked(url, put)


def delete(url: str) -> None:
    """Delete a file; nothing happens where there is none. Raises ObjectStoreError."""

    def remove(files: Any, path: str) -> None:
        try:
            files.rm_file(path)
        except FileNotFoundError:
            return

    _asked(url, remove)


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


def _asked(url: str, request: Callable[[Any, str], _T]) -> _T:
    """The answer of a file system to a request about a path of its own."""
    check_url(url)
    for wait in (*_WAITS, None):
        files = _file_system(url)
        try:
            return request(files, _path(url))
        except TransExplainError:
            raise
        except Exception as error:  # noqa: BLE001 - each library has a tree of its own
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


def _file_system(url: str) -> Any:
    import fsspec

    # a listing that is kept would hide what other processes wrote since
    return fsspec.filesystem(_scheme(url), use_listings_cache=False)


def _require(needed: tuple[str, str] | None) -> None:
    if needed is None:
        return
    package, extra = needed
    try:
        __import__(package)
    except ImportError:
        raise ConfigurationError(
            f"{package} is not installed, which {extra}:// needs: "
            f"pip install 'transexplain[{extra}]'"
        ) from None


def _scheme(url: str) -> str:
    return url.partition("://")[0]


def _path(url: str) -> str:
    scheme, _, rest = url.partition("://")
    return {"file": unquote(rest), "memory": "/" + rest.lstrip("/")}.get(scheme, rest)


def _listed(url: str, found: dict[str, dict[str, Any]]) -> list[FileInfo]:
    scheme = _scheme(url)
    files = [
        _described(_url(scheme, name), one) for name, one in found.items() if one["type"] == "file"
    ]
    return sorted(files, key=lambda one: one.url)


def _url(scheme: str, name: str) -> str:
    """The URL of what a file system calls `name`."""
    return Path(name).as_uri() if scheme == "file" else f"{scheme}://{name.lstrip('/')}"


def _described(url: str, found: dict[str, Any]) -> FileInfo:
    if found["type"] != "file":
        raise FileNotFoundError(errno.ENOENT, "a folder, no file")
    if _scheme(url) == "file":
        state = str(Path(found["name"]).stat().st_mtime_ns)
    elif _scheme(url) == "memory":
        made = found["created"]  # a listing tells it in seconds
        state = str(made if isinstance(made, float) else made.timestamp())
    else:
        state = found["ETag"].strip('"')
    return FileInfo(url=url, size=int(found["size"]), state=state)


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


def _refused(error: Exception) -> bool:
    return isinstance(error, PermissionError) or bool(_names(error) & _REFUSED)


def _transient(error: Exception) -> bool:
    if isinstance(error, FileNotFoundError | PermissionError | IsADirectoryError):
        return False
    if isinstance(error, TimeoutError | ConnectionError) or _names(error) & _TORN:
        return True
    return isinstance(error, OSError) and error.errno in _TRANSIENT


def _explained(url: str, error: Exception) -> TransExplainError:
    reason = _reason(error)
    if isinstance(error, FileNotFoundError | IsADirectoryError):
        return RemoteFileError(f"{url} does not exist or is no file; check the name, put it back")
    if "InvalidRange" in _names(error):
        return RemoteFileError(f"{url} was cut since it was listed; put it back or plan again")
    if _scheme(url) != "s3":
        return ObjectStoreError(f"{url} cannot be used ({reason}); check its disk and permissions")
    if _refused(error):
        return ObjectStoreError(
            f"{url}: access is refused ({reason}); the credentials are missing, have expired or do "
            f"not allow this: {_CREDENTIALS}, then resume"
        )
    tried = f" after {len(_WAITS) + 1} attempts" if _transient(error) else ""
    return ObjectStoreError(
        f"{url} cannot be used{tried} ({reason}); check the store, AWS_ENDPOINT_URL and "
        "AWS_DEFAULT_REGION, then resume"
    )


def _code(error: BaseException) -> str:
    response = getattr(error, "response", None)
    code = response.get("Error", {}).get("Code") if isinstance(response, dict) else None
    return str(code or "")


def _reason(error: Exception) -> str:
    """What the library says, without queries (they hold signatures) and credentials."""
    text = re.sub(r"\?[^\s'\")]+", f"?{HIDDEN}", str(error)) or type(error).__name__
    for name in _SECRETS:
        secret = os.environ.get(name, "")
        if len(secret) >= 4:  # a shorter one stands in many words
            text = text.replace(secret, HIDDEN)
    return text
