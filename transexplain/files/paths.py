"""Paths of this machine, as a person writes them."""

import io
import os
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TypeAlias

from transexplain.errors import ConfigurationError, TransExplainError
from transexplain.files import remote_files
from transexplain.files.atomic_write import atomic_file
from transexplain.files.remote_files import (
    FileInfo,
    RangeReader,
    check_address,
    is_url,
)

_LONGEST = 255  #: bytes of one name, on every file system in use


def local_path(text: str | Path) -> Path:
    """The path, with `~` as the home folder.

    Raises ConfigurationError for a name that no file can have: a text in the place of a path.
    """
    path = Path(text)
    with suppress(RuntimeError):  # no such user: a folder may be called so
        path = path.expanduser()
    try:
        names = [os.fsencode(part) for part in path.parts]
    except UnicodeEncodeError:
        names = [b"\0"]
    if any(b"\0" in name or len(name) > _LONGEST for name in names):
        raise ConfigurationError(
            f"{str(path)[:80]!r} is no path: a name in it is longer than {_LONGEST} bytes, or "
            "holds a character that no name of a file has"
        )
    return path


_AHEAD = 4 << 20  #: bytes that a request of a reader asks for


@dataclass(frozen=True, slots=True)
class RemotePath:
    """A file or folder at a URL. Every method raises RemoteFileError or ObjectStoreError."""

    url: str
    #: what the store said of it; a reader refuses another state
    info: FileInfo | None = None
    #: its bytes where they were read already, or why they were not
    content: bytes | TransExplainError | None = field(default=None, repr=False, compare=False)

    def __str__(self) -> str:
        return self.url

    def __truediv__(self, name: str) -> "RemotePath":
        return RemotePath(f"{self.url.rstrip('/')}/{name}")

    @property
    def _key(self) -> PurePosixPath:
        return PurePosixPath(self.url.partition("://")[2])

    @property
    def name(self) -> str:
        """The last part."""
        return self._key.name

    @property
    def stem(self) -> str:
        """The last part without its suffix."""
        return self._key.stem

    @property
    def suffix(self) -> str:
        """The last suffix, with its point."""
        return self._key.suffix

    @property
    def suffixes(self) -> list[str]:
        """All suffixes."""
        return self._key.suffixes

    @property
    def parent(self) -> "RemotePath":
        """The folder that it lies in."""
        return RemotePath(self.url.rstrip("/").rpartition("/")[0])

    def with_name(self, name: str) -> "RemotePath":
        """Another file of the same folder."""
        return self.parent / name

    def absolute(self) -> "RemotePath":
        """The same: a URL is found from everywhere."""
        return self

    def relative_to(self, root: str) -> PurePosixPath:
        """Return what follows the URL of a folder that it lies in."""
        return PurePosixPath(self.url).relative_to(PurePosixPath(root))

    def open(self, mode: str = "rb") -> io.BufferedReader:
        """The bytes, read in ranges; a file that changed since `info` was told is refused."""
        assert mode == "rb"
        return io.BufferedReader(self.ranges(), _AHEAD)

    def ranges(self) -> RangeReader:
        """The bytes, where each read is one request for those asked for; as `open`."""
        return RangeReader(self.url, self.info)

    def read_bytes(self, most: int | None = None) -> bytes:
        """All bytes, or the first `most`."""
        if isinstance(self.content, TransExplainError):
            raise self.content
        return remote_files.read(self.url, most) if self.content is None else self.content

    def write_bytes(self, content: bytes) -> None:
        """Write the whole file; nobody sees a part of it."""
        remote_files.write(self.url, content)


AnyPath: TypeAlias = Path | RemotePath


def any_path(text: str | AnyPath) -> AnyPath:
    """Return what a person named: a URL, or a path of this machine.

    Raises RemoteFileError for a URL that no store has, or that holds credentials.
    """
    if isinstance(text, Path | RemotePath):
        return text
    if not is_url(text):
        return local_path(text)
    check_address(text)
    return RemotePath(text)


def info_of(path: AnyPath) -> FileInfo:
    """Size and state of a file: of one in a store those that were told before, or those of now.

    Raises OSError, RemoteFileError, ObjectStoreError.
    """
    if isinstance(path, RemotePath):
        return path.info or remote_files.info(path.url)
    stat = path.stat()
    return FileInfo(url=str(path), size=stat.st_size, state=str(stat.st_mtime_ns))


def part_of(path: AnyPath, start: int, stop: int) -> bytes:
    """The bytes from `start` to `stop`, and no others; fewer where a file here ends before.

    Raises OSError; RemoteFileError, ObjectStoreError.
    """
    if isinstance(path, RemotePath):
        return remote_files.read_range(path.url, start, stop)
    with path.open("rb") as stream:
        stream.seek(start)
        return stream.read(stop - start)


def write_whole(path: AnyPath, content: bytes) -> None:
    """Write a file completely or not at all; its folder is made where it is not there.

    Raises OSError; RemoteFileError, ObjectStoreError.
    """
    if isinstance(path, RemotePath):
        path.write_bytes(content)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as partial:
        partial.write_bytes(content)
