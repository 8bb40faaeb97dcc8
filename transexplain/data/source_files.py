"""The files of a dataset: their digests, and paths that stay under its root."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from transexplain.data.source_records import printable
from transexplain.errors import DataSourceError, ItemError
from transexplain.types.plans import DatasetRef, DatasetSpec, SourceFile

#: raised when the same source and options would give another snapshot
SNAPSHOT_VERSION = 1
#: options that a specification need not name, and what they are then
_LATER = {
    "evidence": None,
    "spans": None,
    "sample": None,
    "seed": 0,
    "cluster": None,
    "template": None,
    "duplicates": "off",
}

#: digests already computed by this process, by (path, mtime in ns, bytes)
_known: dict[tuple[str, int, int], str] = {}


def file_digest(path: Path) -> str:
    """Sha256 of the file's bytes, in hexadecimal, read in pieces."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def source_files(files: Sequence[Path]) -> tuple[SourceFile, ...]:
    """Digests of the files, in order; raises DataSourceError where one cannot be read."""
    try:
        return tuple(
            SourceFile(path=printable(str(path.absolute())), sha256=file_digest(path))
            for path in files
        )
    except OSError as error:
        raise DataSourceError(f"cannot read {error.filename}: {error.strerror}") from error


def source_digest(
    spec: DatasetSpec, files: Sequence[Path], digests: Sequence[SourceFile], *, named: bool = False
) -> str:
    """Sha256 over the digests and suffixes of the files, in order, and the reading options.

    Where the source is `named`, whole file names take the place of the suffixes.
    """
    options = asdict(spec)
    del options["source"]  # the same bytes from elsewhere are the same dataset
    for name, usual in _LATER.items():  # a digest stays what it was before there was such an option
        if options[name] == usual:
            del options[name]
    parts = [
        [path.name if named else "".join(path.suffixes).lower(), one.sha256]
        for path, one in zip(files, digests, strict=True)
    ]
    text = json.dumps([SNAPSHOT_VERSION, options, parts], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def verify(ref: DatasetRef) -> None:
    """Check that the snapshot is the one of the plan; hashed once per process and file state.

    Raises DataSourceError where it is missing or its bytes have changed.
    """
    path = Path(ref.snapshot)
    try:
        stat = path.stat()
        key = (str(path), stat.st_mtime_ns, stat.st_size)
        digest = _known.get(key) or _known.setdefault(key, file_digest(path))
    except OSError as error:
        raise DataSourceError(
            f"cannot read the dataset snapshot {path}: {error.strerror}; every worker needs the "
            "folder that TRANSEXPLAIN_SNAPSHOT_DIR named when the audit was planned"
        ) from error
    if digest != ref.fingerprint:
        raise DataSourceError(
            f"the dataset snapshot {path} has changed since the audit was planned "
            f"(sha256 {digest[:12]}, planned {ref.fingerprint[:12]}); plan the audit again"
        )


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
