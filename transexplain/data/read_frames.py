"""The frames that data are read in: a file that breaks is refused, a row that breaks is an error.

What a parser raises of hostile bytes can be anything at all, so no reader lists it by itself.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from transexplain.errors import DataSourceError, InfrastructureError, ItemError, TransExplainError
from transexplain.files.paths import AnyPath, state_of

T = TypeVar("T")

#: bytes that any file may unpack to, and how many times its own size a larger one may
_UNPACKED, RATIO = 1 << 30, 100
#: what says by itself what is wrong with a file; other errors are of use with their names
_SPEAKING = (OSError, EOFError)


@contextmanager
def reading(path: AnyPath | str) -> Iterator[None]:
    """A block that reads a file; whatever is raised there becomes a DataSourceError naming it.

    Errors of this package go through as they are.
    """
    try:
        yield
    except TransExplainError:
        raise
    except Exception as error:
        raise unreadable(path, error) from error


def read(rows: Iterator[T], path: AnyPath | str) -> Iterator[T]:
    """Rows of a file, read as in the block `reading`."""
    with reading(path):
        yield from rows


@contextmanager
def reading_row() -> Iterator[None]:
    """A block that reads one row; whatever is wrong there becomes an ItemError.

    A server that is away and a lack of memory say nothing of the row, and go through.
    """
    try:
        yield
    except (ItemError, InfrastructureError, MemoryError):
        raise
    except TransExplainError as error:
        raise ItemError("malformed-row", str(error)) from error
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        raise ItemError("malformed-row", f"the row cannot be read: {why}") from error


def unreadable(path: AnyPath | str, error: Exception) -> DataSourceError:
    """The error for a file that cannot be read, or whose bytes end or break in the middle."""
    name, text = type(error).__name__, str(error)
    plain = text and (isinstance(error, _SPEAKING) or type(error).__module__ != "builtins")
    reason = getattr(error, "strerror", None) or (text if plain else f"{name}: {text}".rstrip(": "))
    packed = str(path).lower().endswith(".gz")
    remedy = "is the download complete?" if packed else "check the file"
    return DataSourceError(f"cannot read {path}: {reason}; {remedy}")


def unpacking(path: AnyPath) -> Callable[[int], None]:
    """Counts the bytes that a file was unpacked to; call it with each further number.

    It raises DataSourceError where they are more than files of that size hold.
    """
    most, total = max(_UNPACKED, RATIO * state_of(path)[1]), 0

    def count(further: int) -> None:
        nonlocal total
        total += further
        if total > most:
            raise DataSourceError(
                f"{path} unpacks to more than {most:,} bytes, far more than such files hold; if "
                "they are data, write them unpacked"
            )

    return count
