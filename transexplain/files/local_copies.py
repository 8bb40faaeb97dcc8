"""Copies on this machine of files and folders in object stores, for what has to be a local file.

A copy is found by the state of what it was made from, so a file that changed is copied again.
"""

import hashlib
import json
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

from filelock import FileLock

from transexplain.errors import ConfigurationError, DataSourceError, RemoteFileError
from transexplain.files.atomic_write import atomic_folder
from transexplain.files.paths import AnyPath, RemotePath, local_path
from transexplain.files.remote_files import FileInfo, copy_to, info, is_url, pinned, under

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FolderCopy:
    """A folder of this machine, or the copy here of one in a store."""

    folder: Path
    url: str = ""  #: of the folder in the store; "": it lies here
    files: Mapping[str, FileInfo] = field(default_factory=dict)  #: there, by name within it

    def original(self, path: Path) -> AnyPath:
        """The file that a path within the copy is of."""
        if not self.url:
            return path
        digest = self.files[path.relative_to(self.folder).as_posix()]
        return RemotePath(digest.url, digest)


def folder_here(location: str) -> FolderCopy:
    """The folder at a path, or a copy of the one at a URL.

    Raises DataSourceError where there is none; as `local_folder`.
    """
    if is_url(location):
        return _folder_copy(location)
    folder = local_path(location)
    if not folder.is_dir():
        raise DataSourceError(f"{location!r} is not a folder (in {Path.cwd()})")
    return FolderCopy(folder.resolve())


def local_folder(url: str, wanted: Sequence[str] = ()) -> Path:
    """A local folder with all files below a URL, under the names that they have there.

    `wanted`: patterns, such as `*.json`, of the files directly in it that are copied and no others.
    Raises RemoteFileError where there are none, ObjectStoreError, ConfigurationError where no copy
    can be written.
    """
    return _folder_copy(url, wanted).folder


def _folder_copy(url: str, wanted: Sequence[str] = ()) -> FolderCopy:
    place = pinned(url).rstrip("/")
    files = under(f"{place}/")
    if wanted:
        direct = [file for file in files if "/" not in file.url.removeprefix(f"{place}/")]
        files = [file for file in direct if any(fnmatch(file.url, kind) for kind in wanted)]
    if not files:
        kinds = f" ({', '.join(wanted)})" if wanted else ""
        raise RemoteFileError(f"there are no files{kinds} below {url}; check the name")
    named = {file.url.removeprefix(f"{place}/"): file for file in files}
    return FolderCopy(_copied(place, files), place, named)


def local_file(url: str) -> Path:
    """A local copy of one file, under its own name; raises as `local_folder`."""
    place = pinned(url)
    folder, _, name = place.rpartition("/")
    return _copied(folder, [info(place)]) / name


def _copied(folder: str, files: list[FileInfo]) -> Path:
    named = [(file.url.removeprefix(f"{folder}/"), file.size, file.state) for file in files]
    if odd := [name for name, *_ in named if ".." in name.split("/") or name.startswith("/")]:
        raise RemoteFileError(f"{folder} holds {odd[0]!r}, which is no name of a file; rename it")
    key = hashlib.sha256(json.dumps([folder, named]).encode()).hexdigest()
    copy = cache_dir() / "copies" / key
    if copy.is_dir():
        return copy
    try:
        copy.parent.mkdir(parents=True, exist_ok=True)
        # one process copies, the others of this machine wait for it
        with FileLock(copy.with_suffix(".lock")):
            if not copy.is_dir():
                _copy(folder, dict(zip((name for name, *_ in named), files, strict=True)), copy)
    except OSError as error:
        raise ConfigurationError(
            f"cannot copy {folder} to {copy}: {error.strerror or error}; name a folder with room "
            "in TRANSEXPLAIN_CACHE_DIR"
        ) from error
    return copy


def _copy(folder: str, files: dict[str, FileInfo], copy: Path) -> None:
    log.info("copying %s (%s bytes)", folder, f"{sum(file.size for file in files.values()):,}")
    with atomic_folder(copy) as temporary:
        for name, file in files.items():
            path = temporary / name
            path.parent.mkdir(parents=True, exist_ok=True)
            copy_to(file.url, path)
            if info(file.url) != file:
                raise RemoteFileError(f"{file.url} was changed while it was copied; try again")


def cache_dir() -> Path:
    """Folder of this machine for what can be fetched or made again: `TRANSEXPLAIN_CACHE_DIR`."""
    usual = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "transexplain"
    return local_path(os.environ.get("TRANSEXPLAIN_CACHE_DIR") or usual)
