"""Opens files by a path or a URL, and tells whether they are still those of the plan."""

import io
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from transexplain import remote_files
from transexplain.data.source_files import file_digest
from transexplain.errors import DataSourceError, RemoteFileError
from transexplain.remote_files import FileInfo
from transexplain.remote_stores import is_url

#: bytes that are fetched of a remote file at once where it is read from its beginning
_AHEAD = 8 * 2**20
#: seconds for which a remote file is taken to be what it was
_TRUSTED = 10.0


def info_of(place: str) -> FileInfo:
    """Size and state of a file: the ETag, or when it was changed, in nanoseconds.

    Raises DataSourceError where there is none, ObjectStoreError.
    """
    try:
        if is_url(place):
            return remote_files.info(place)
        found = Path(place).stat()
    except RemoteFileError as error:
        raise DataSourceError(str(error)) from None
    except OSError as error:
        raise DataSourceError(f"cannot read {place}: {error.strerror}") from error
    return FileInfo(url=place, size=found.st_size, state=str(found.st_mtime_ns))


class LocatedFile:
    """A file of a plan, open at any byte; refused by name where it is not what it was."""

    def __init__(self, planned: FileInfo, sha256: str = "") -> None:
        """Open it; `sha256` is that of its bytes, "" where they were not read."""
        self.planned, self._sha256 = planned, sha256
        self._checked = float("-inf")
        self.check()

    def check(self) -> None:
        """Raise DataSourceError where the file was changed or is gone; ask a store now and then."""
        remote = is_url(self.planned.url)
        if remote and time.monotonic() - self._checked < _TRUSTED:
            return
        try:
            now = info_of(self.planned.url)
        except DataSourceError as error:
            raise DataSourceError(
                f"{error}; it was one of the data's files when the audit was planned: put it back "
                "and resume the run, or plan the audit again"
            ) from None
        if not self._is_same(now, remote=remote):
            raise DataSourceError(
                f"{now.url} has changed since the audit was planned: {self.planned.size:,} bytes "
                f"({self.planned.state}) then, {now.size:,} ({now.state}) now; put the file back "
                "with its time of change (cp -p, rsync -t) and resume the run, or plan again"
            )
        self._checked = time.monotonic()

    def _is_same(self, now: FileInfo, *, remote: bool) -> bool:
        if now.size != self.planned.size:
            return False
        if now.state == self.planned.state:
            return True
        # put back with another time: its bytes decide, where they are known
        same = not remote and self._sha256 != "" and file_digest(Path(now.url)) == self._sha256
        if same:
            self.planned = now
        return same

    def between(self, start: int, stop: int) -> bytes:
        """The bytes from `start` to `stop`, and no others; raises DataSourceError."""
        place = self.planned.url
        with _named(place):
            if is_url(place):
                return remote_files.read_range(place, start, stop)
            with Path(place).open("rb") as stream:
                stream.seek(start)
                return stream.read(stop - start)

    def arrow(self) -> Any:
        """The file for pyarrow, which closes it where it is forgotten."""
        place = self.planned.url
        with _named(place):
            if is_url(place):
                return pa.PythonFile(remote_files.RangeReader(place), mode="r")
            return pa.OSFile(place)


@contextmanager
def _named(place: str) -> Iterator[None]:
    """A block whose errors name the file."""
    try:
        yield
    except RemoteFileError as error:
        raise DataSourceError(str(error)) from None
    except OSError as error:
        raise DataSourceError(f"cannot read {place}: {error.strerror or error}") from error


def from_beginning(place: str) -> IO[bytes]:
    """A file to be read from its beginning, of a store in large pieces."""
    with _named(place):
        if not is_url(place):
            return Path(place).open("rb")
        return io.BufferedReader(remote_files.RangeReader(place), _AHEAD)
