"""Physical lines of a plain or gzipped text file, in bounded memory."""

import gzip
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, TypeVar

from transexplain.data.records import MAX_ROW, Problem
from transexplain.errors import DataSourceError

_UTF8_MARK = b"\xef\xbb\xbf"
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_TOO_LONG = Problem(kind="malformed-row", message=f"the line is longer than {MAX_ROW:,} bytes")

_Bytes = IO[bytes] | gzip.GzipFile
T = TypeVar("T")


@contextmanager
def open_lines(path: Path) -> Iterator[Iterator[bytes | Problem]]:
    """The lines of `path` with their terminators, without a UTF-8 byte-order mark.

    Only a line feed ends a line; a line beyond `MAX_ROW` bytes is a Problem and is skipped.

    Raises DataSourceError where the file cannot be opened or decompressed, or is UTF-16.
    """
    with ExitStack() as stack:
        try:
            stream: _Bytes = stack.enter_context(path.open("rb"))
            if path.suffix.lower() == ".gz":
                stream = stack.enter_context(gzip.open(stream))
        except OSError as error:
            raise unreadable(path, error) from error
        yield _lines(stream, path)


def _lines(stream: _Bytes, path: Path) -> Iterator[bytes | Problem]:
    first = True
    while line := _read_line(stream, path):
        if first:
            first = False
            if line.startswith(_UTF16_MARKS):
                raise DataSourceError(f"{path} is UTF-16; save it as UTF-8")
            line = line.removeprefix(_UTF8_MARK)
        if len(line) <= MAX_ROW or line.endswith(b"\n"):
            yield line
        else:
            while (rest := _read_line(stream, path)) and not rest.endswith(b"\n"):
                pass
            yield _TOO_LONG


def _read_line(stream: _Bytes, path: Path) -> bytes:
    try:
        return stream.readline(MAX_ROW + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise unreadable(path, error) from error


def unreadable(path: Path, error: Exception) -> DataSourceError:
    """The error for a file that cannot be opened, or whose bytes end or break in the middle."""
    reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
    remedy = "is the download complete?" if path.suffix.lower() == ".gz" else "check the file"
    return DataSourceError(f"cannot read {path}: {reason}; {remedy}")


def without_trailing(rows: Iterator[T], blank: Callable[[T], bool]) -> Iterator[T]:
    """`rows` without the blank ones at the end; blank ones before others are kept."""
    waiting: list[T] = []
    for row in rows:
        if blank(row):
            waiting.append(row)
        else:
            yield from waiting
            waiting.clear()
            yield row
