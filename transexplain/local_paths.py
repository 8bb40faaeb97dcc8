"""Paths of this machine, as a person writes them."""

import os
from contextlib import suppress
from pathlib import Path

from transexplain.errors import ConfigurationError

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
