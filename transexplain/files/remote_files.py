"""The kinds of store that URLs name: how an address is written, and what a library says of a file.

Credentials come from the environment, as each library reads it, and never from a URL.
"""

import errno
import io
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, unquote

from transexplain.errors import (
    ConfigurationError,
    ObjectStoreError,
    RemoteFileError,
    TransExplainError,
    installing,
)
from transexplain.files.atomic_write import atomic_file
from transexplain.text.addresses import HIDDEN

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
_BUCKET = re.compile(r"[A-Za-z0-9._-]+")
#: what a signed URL ends with; a lone `?` is a pattern's
_QUERY = re.compile(r"\?[A-Za-z0-9_.~-]+=")
_HUB = re.compile(
    r"(?P<repository>(?:datasets/)?[\w.-]+/[\w.-]+)"
    r"(?:@(?P<revision>refs/(?:convert|pr)/[\w.-]+|[\w.%-]+))?(?P<path>/.+)?"
)
_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Store:
    """A kind of store."""

    form: str  #: how an address is written
    package: str = ""  #: that reads it; "": fsspec alone does
    extra: str = ""  #: that brings the package
    credentials: str = ""  #: how its credentials are given; "": it has none
    place: str = "its disk and permissions"  #: what to look at where it is away
    secrets: tuple[str, ...] = ()  #: variables whose values are never shown
    #: of its file system: a listing that is kept would hide what other processes wrote since
    options: Mapping[str, Any] = field(default_factory=lambda: {"use_listings_cache": False})


_EVERYWHERE = "in the environment of every process that reads it"
STORES: Mapping[str, Store] = {
    "file": Store(form="file:///PATH"),
    "memory": Store(form="memory://PATH"),
    "s3": Store(
        form="s3://BUCKET/KEY",
        package="s3fs",
        extra="s3",
        credentials="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and AWS_SESSION_TOKEN) or "
        f"AWS_PROFILE {_EVERYWHERE}",
        place="the store, AWS_ENDPOINT_URL and AWS_DEFAULT_REGION",
        secrets=("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"),
    ),
    "gs": Store(
        form="gs://BUCKET/KEY",
        package="gcsfs",
        extra="gcs",
        credentials=f"set GOOGLE_APPLICATION_CREDENTIALS {_EVERYWHERE}",
        place="the store and the project",
    ),
    "az": Store(
        form="az://CONTAINER/KEY",
        package="adlfs",
        extra="azure",
        credentials="set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY (or "
        f"AZURE_STORAGE_SAS_TOKEN, or AZURE_STORAGE_CONNECTION_STRING) {_EVERYWHERE}",
        place="the store and AZURE_STORAGE_ACCOUNT_NAME",
        secrets=(
            "AZURE_STORAGE_ACCOUNT_KEY",
            "AZURE_STORAGE_SAS_TOKEN",
            "AZURE_STORAGE_CONNECTION_STRING",
        ),
    ),
    "hf": Store(
        form="hf://datasets/ORG/NAME@REVISION/PATH",
        package="huggingface_hub",
        extra="hf",
        credentials=f"set HF_TOKEN {_EVERYWHERE}",
        place="the hub and HF_ENDPOINT",
        secrets=("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"),
        options={},  # its files are of a commit, which does not change
    ),
}
_BUCKETS = ("s3", "gs", "az")


def is_url(text: str) -> bool:
    """Return whether `text` is written as a URL; a path of a file system is none."""
    return _URL.match(text) is not None


def scheme_of(url: str) -> str:
    """Return what stands before `://`."""
    return url.partition("://")[0]


def check_address(url: str) -> None:
    """Refuse a URL by the way it is written; nothing is asked of the store.

    Raises RemoteFileError: another scheme, no bucket, credentials or a signature in it (neither is
    shown).
    """
    match = _URL.match(url)
    scheme = match[1] if match else ""
    if scheme not in STORES:
        raise RemoteFileError(
            f"{scheme or 'this'}:// is no address that files are read from; write one of "
            f"{', '.join(f'{store}://' for store in STORES)}, or download it first"
        )
    rest = url[len(scheme) + 3 :]
    if scheme in _BUCKETS:
        _check_bucket(url, scheme, rest)
    elif scheme == "hf" and not _HUB.fullmatch(rest):
        raise RemoteFileError(
            f"hf://{HIDDEN} names no file of a repository; write {STORES[scheme].form}, without "
            f"credentials: {STORES[scheme].credentials}"
        )
    elif scheme == "file" and not rest.startswith("/"):
        raise RemoteFileError(f"{url} names no path of this machine; write file:///PATH")
    if not rest.strip("/"):
        raise RemoteFileError(f"{url} names no file; write {scheme}://PATH")


def _check_bucket(url: str, scheme: str, rest: str) -> None:
    store = STORES[scheme]
    place, _, key = rest.partition("/")
    if "@" in place or ":" in place:
        raise RemoteFileError(
            f"{scheme}://{HIDDEN}: a URL holds no credentials; write {store.form} and "
            f"{store.credentials}"
        )
    if _QUERY.search(rest):
        raise RemoteFileError(
            f"{url.partition('?')[0]}?{HIDDEN}: a URL holds no signature; write {store.form} and "
            f"{store.credentials}"
        )
    if not (_BUCKET.fullmatch(place) and key):
        raise RemoteFileError(f"{url} names no bucket and key; write {store.form}")


def path_of(url: str) -> str:
    """Return what the file system calls the file at a URL."""
    scheme, _, rest = url.partition("://")
    return {"file": unquote(rest), "memory": "/" + rest.lstrip("/")}.get(scheme, rest)


def state_of(scheme: str, details: Mapping[str, Any]) -> str:
    """Return what changes with a file, from what the file system says of it."""
    if scheme == "file":
        return str(Path(details["name"]).stat().st_mtime_ns)
    if scheme == "memory":
        made = details["created"]  # a listing tells it in seconds
        return str(made if isinstance(made, float) else made.timestamp())
    if scheme == "hf":
        lfs = details.get("lfs")
        return str(lfs["sha256"] if lfs else details["blob_id"])
    return str(details["ETag" if scheme == "s3" else "etag"]).strip('"')


def exact(url: str) -> dict[str, Any]:
    """Options of a request for a range, so that no byte beside it is fetched."""
    return {"cache_type": "none"} if scheme_of(url) == "hf" else {}


@dataclass(frozen=True, kw_only=True, slots=True)
class HubFile:
    """The parts of an `hf://` URL."""

    repository: str  #: `org/name`
    kind: str  #: dataset, model
    revision: str | None
    path: str  #: within the repository; "": all of it

    @property
    def pinned(self) -> bool:
        """Return whether the revision is a commit, which names the same files for ever."""
        return self.revision is not None and _COMMIT.fullmatch(self.revision) is not None

    def at(self, commit: str) -> str:
        """The URL of the same file at a commit."""
        kind = "datasets/" if self.kind == "dataset" else ""
        path = f"/{self.path}" if self.path else ""
        return f"hf://{kind}{self.repository}@{quote(commit, safe='')}{path}"


def hub_file(url: str) -> HubFile:
    """The parts of an `hf://` URL; RemoteFileError where it names no repository."""
    match = _HUB.fullmatch(url.partition("://")[2])
    if match is None:
        raise RemoteFileError(f"{url!r:.80} names no repository; write hf://datasets/ORG/NAME/FILE")
    repository, revision = match["repository"], match["revision"]
    dataset = repository.startswith("datasets/")
    return HubFile(
        repository=repository.removeprefix("datasets/") if dataset else repository,
        kind="dataset" if dataset else "model",
        revision=None if revision is None else unquote(revision),
        path=(match["path"] or "").strip("/"),
    )


def without_secrets(text: str) -> str:
    """A message of a library without queries (they hold signatures) and credentials."""
    text = re.sub(r"\?[^\s'\")]+", f"?{HIDDEN}", text)
    for name in (name for store in STORES.values() for name in store.secrets):
        secret = os.environ.get(name, "")
        if len(secret) >= 4:  # a shorter one stands in many words
            text = text.replace(secret, HIDDEN)
    return text


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
    """What is known of a file without a byte of it being read."""

    url: str  #: or the path of a file of this machine
    size: int  #: bytes
    state: str  #: another one after each change: the ETag, or the time of change in nanoseconds


def check_url(url: str) -> None:
    """Refuse a URL before anything is asked of it.

    Raises RemoteFileError: another scheme, no bucket, credentials or a signature in it (neither is
    shown); ConfigurationError: the package for its scheme is not installed.
    """
    check_address(url)
    store = STORES[scheme_of(url)]
    try:
        __import__(store.package or "fsspec")
    except ImportError:
        raise ConfigurationError(
            f"{store.package} is not installed, which {scheme_of(url)}:// needs: "
            f"{installing(store.extra)}"
        ) from None


def pinned(url: str) -> str:
    """The URL at the commit that its revision names now, of `hf://`; any other URL as it is.

    Raises RemoteFileError where there is no such repository or revision; ObjectStoreError.
    """
    if scheme_of(url) != "hf" or hub_file(url).pinned:
        return url
    there = hub_file(url)

    def commit(*_: Any) -> str:
        from huggingface_hub import HfApi

        repository = HfApi().repo_info(
            there.repository, revision=there.revision, repo_type=there.kind, timeout=30
        )
        return str(repository.sha)

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
    files_ = _asked(pattern, lambda files, path: _listed(pattern, files.glob(path, detail=True)))
    if not files_:
        raise RemoteFileError(f"no file matches {pattern}")
    return files_


def under(prefix: str) -> list[FileInfo]:
    """All files below a folder, by URL; empty where there is none. Raises ObjectStoreError."""

    def listed(files: Any, path: str) -> list[FileInfo]:
        details = files.find(path.rstrip("/"), detail=True)
        # a file of that very name is no folder
        return [file for file in _listed(prefix, details) if not same_file(file, path)]

    def same_file(file_info: FileInfo, path: str) -> bool:
        return path_of(file_info.url).strip("/") == path.strip("/")

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

    There is no read-ahead: wrap it in `io.BufferedReader` to read lines, or in pyarrow's
    `PythonFile` for row groups. Raises RemoteFileError: no such file, or another state than
    the `expected`.
    """

    def __init__(self, url: str, expected: FileInfo | None = None) -> None:
        self.info = info(url)
        self._place = 0
        now, before = self.info, expected or self.info
        if (now.size, now.state) != (before.size, before.state):
            raise RemoteFileError(
                f"{url} was changed: {before.size:,} bytes ({before.state}) before, {now.size:,} "
                f"({now.state}) now; put the file back or plan again"
            )

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
        return len(content)


def _asked(
    url: str, request: Callable[[Any, str], _T], missing: Callable[[], _T] | None = None
) -> _T:
    """The answer of a file system to a request; `missing` is that for no such file in a bucket."""
    check_url(url)
    import fsspec

    for wait in (*_WAITS, None):
        files = fsspec.filesystem(scheme_of(url), **STORES[scheme_of(url)].options)
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


def _listed(url: str, details: dict[str, dict[str, Any]]) -> list[FileInfo]:
    scheme, files = scheme_of(url), []
    for name, detail in details.items():
        if detail["type"] == "file":
            place = Path(name).as_uri() if scheme == "file" else f"{scheme}://{name.lstrip('/')}"
            files.append(_described(place, detail))
    return sorted(files, key=lambda file: file.url)


def _described(url: str, details: dict[str, Any]) -> FileInfo:
    if details["type"] != "file":
        raise FileNotFoundError(errno.ENOENT, "a folder, no file")
    return FileInfo(url=url, size=int(details["size"]), state=state_of(scheme_of(url), details))


def _copy(content: bytes | Path, files: Any, path: str) -> None:
    if isinstance(content, Path):
        files.put_file(str(content), path)
    else:
        files.pipe_file(path, content)


def _causes(error: BaseException | None) -> list[BaseException]:
    causes: list[BaseException] = []
    while error is not None and error not in causes:
        causes.append(error)
        error = error.__cause__ or error.__context__
    return causes


def _names(error: Exception) -> set[str]:
    """Classes and codes of an error and its causes: the libraries may not be installed."""
    names = set[str]()
    for cause in _causes(error):
        names.update(kind.__name__ for kind in type(cause).__mro__)
        response = getattr(cause, "response", None)
        if isinstance(response, dict):
            names.add(str(response.get("Error", {}).get("Code") or ""))
    return names


def _status(error: Exception) -> set[int]:
    """Statuses by HTTP that an error and its causes tell of."""
    stores = set()
    for cause in _causes(error):
        response = getattr(cause, "response", None)
        for status in (getattr(response, "status_code", None), getattr(cause, "code", None)):
            if isinstance(status, int):
                stores.add(status)
    return stores


def _refused(error: Exception) -> bool:
    if isinstance(error, PermissionError) or _names(error) & _REFUSED:
        return True
    return not isinstance(error, FileNotFoundError) and bool(_status(error) & _REFUSALS)


def _no_bucket(error: Exception) -> bool:
    """Return whether a store has not even the bucket or container: it is the wrong one, or away."""
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
    store = STORES[scheme_of(url)]
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
    waiting = iter(files)
    with ThreadPoolExecutor(_TOGETHER, "remote-files") as threads:
        while some := list(islice(waiting, 2 * _TOGETHER)):
            list(threads.map(lambda file: write(*file), some))
