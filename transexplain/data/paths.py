"""Keeping a dataset's paths under its root."""

from pathlib import Path

from transexplain.data.fingerprint import file_digest
from transexplain.data.records import printable
from transexplain.errors import ItemError


def inside(root: Path, name: str) -> Path:
    """The file `name` of the folder `root`, with every link followed.

    Raises ItemError path-outside-root where `..`, a link or an absolute path leads elsewhere,
    missing-image where there is no such regular file.
    """
    base = root.resolve()
    try:
        path = (base / name).resolve()
        outside = not path.is_relative_to(base)
        regular = not outside and path.is_file()
    except (OSError, ValueError, RuntimeError) as error:  # too long, NUL, circle of links
        raise ItemError("missing-image", f"{printable(name)!r} is not a file name") from error
    if outside:
        raise ItemError("path-outside-root", f"{printable(name)!r} leads outside the dataset")
    if not regular:
        raise ItemError("missing-image", f"there is no picture file {printable(name)!r}")
    return path


def picture_digest(path: Path, name: str) -> str:
    """Sha256 of the bytes of the picture at `path`, which the snapshot will call `name`.

    Raises ItemError missing-image where it cannot be read, invalid-utf8 for a name of odd bytes.
    """
    if printable(name) != name:
        raise ItemError("invalid-utf8", f"the file name {printable(name)!r} is not UTF-8")
    try:
        return file_digest(path)
    except OSError as error:
        raise ItemError("missing-image", f"cannot read {name}: {error.strerror}") from error
