"""Files and folders that are there whole or not at all."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from transexplain.atomic_write import atomic_file, atomic_folder
from transexplain.errors import ConfigurationError


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path beside `path` to write a file to, which takes the place of `path` at the end.

    After an error `path` is as it was. Raises ConfigurationError where it is a folder or cannot be
    written.
    """
    if path.is_dir():
        raise ConfigurationError(f"{path} is a folder; name a file")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(path) as partial:
            yield partial
    except OSError as error:
        raise unwritable(path, error) from error


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A folder to write into, which is called `path` at the end and gone after an error.

    Raises ConfigurationError where `path` is a file, holds something, or cannot be written.
    """
    if path.exists() and not path.is_dir():
        raise ConfigurationError(f"{path} is a file; this format writes a folder of files")
    try:
        if path.is_dir() and any(path.iterdir()):
            raise ConfigurationError(f"the folder {path} is not empty; name a new one")
        with atomic_folder(path) as partial:
            yield partial
            if path.is_dir():
                path.rmdir()  # refused where somebody has written into it since
    except OSError as error:
        raise unwritable(path, error) from error


def unwritable(path: Path, error: OSError) -> ConfigurationError:
    """The error for an export that cannot be written."""
    return ConfigurationError(
        f"cannot write {path}: {error.strerror or error}. Choose another path with -o"
    )


def write_text(path: Path, text: str) -> None:
    """Write a text in UTF-8; raises ConfigurationError as `replacing` does."""
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8")
