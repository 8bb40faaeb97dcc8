"""Writes files and folders completely or not at all, also when the process dies."""

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """A path in the same folder to write a file to, which takes the place of `path` at the end.

    After an error `path` is as it was. Raises OSError.
    """
    with temporary_file(path.parent) as temporary:
        yield temporary
        put_in_place(temporary, path)


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """A new folder beside `path` to write into, which takes the place of `path` at the end.

    After an error `path` is as it was. Raises OSError.
    """
    temporary = _beside(path.parent)
    temporary.mkdir(parents=True)
    try:
        yield temporary
        shutil.rmtree(path, ignore_errors=True)
        temporary.replace(path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def temporary_file(folder: Path) -> Iterator[Path]:
    """A path of its own in `folder`, for a file whose name is not known yet; gone afterwards."""
    temporary = _beside(folder)
    try:
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


def put_in_place(temporary: Path, path: Path) -> None:
    """Rename a finished file to a path in the same folder, once its bytes are on the disk.

    A file system may write the new name before the bytes: without the sync a power cut could leave
    an empty file where a whole one was. Raises OSError.
    """
    with temporary.open("rb") as stream:
        os.fsync(stream.fileno())
    temporary.replace(path)


def _beside(folder: Path) -> Path:
    # a process's number is not enough: processes of several machines may share a folder
    return folder / f".{uuid.uuid4().hex}.tmp"
