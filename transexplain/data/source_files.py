"""The files of a dataset: their digests, and paths that stay under its root."""

import hashlib
import json
import os
import stat
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from transexplain.errors import DataSourceError, ItemError
from transexplain.types.plans import DatasetRef, DatasetSpec, Modality, SourceFile

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
    "encoding": None,
    "delimiter": None,
    "sheet": None,
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
    spec: DatasetSpec,
    files: Sequence[Path],
    digests: Sequence[SourceFile],
    *,
    named: bool = False,
    detected: Sequence[str] = (),
) -> str:
    """Sha256 over the digests and suffixes of the files, in order, and the reading options.

    Where the source is `named`, whole file names take the place of the suffixes. What was detected
    is a part of it: other software may detect something else in the same bytes.
    """
    options = asdict(spec)
    del options["source"]  # the same bytes from elsewhere are the same dataset
    del options["snapshot"]  # it is one
    for name, usual in _LATER.items():  # a digest stays what it was before there was such an option
        if options[name] == usual:
            del options[name]
    parts = [
        [path.name if named else "".join(path.suffixes).lower(), one.sha256]
        for path, one in zip(files, digests, strict=True)
    ]
    whole = [SNAPSHOT_VERSION, options, parts, *([list(detected)] if any(detected) else [])]
    text = json.dumps(whole, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def verify(ref: DatasetRef) -> None:
    """Check that the snapshot is the one of the plan; hashed once per process and file state.

    Raises DataSourceError where it is missing or its bytes have changed.
    """
    path = Path(ref.snapshot)
    try:
        found = path.stat()
        key = (str(path), found.st_mtime_ns, found.st_size)
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


def inside(root: Path, name: str, *, resolved: bool = False) -> Path:
    """The file `name` of the folder `root`, with every link followed; `resolved`: root's are.

    Raises ItemError path-outside-root where `..`, a link or an absolute path leads elsewhere,
    missing-image where there is no such regular file.
    """
    base = root if resolved else root.resolve()
    if (plain := _plain_file(base, name)) is not None:
        return plain
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


def _plain_file(base: Path, name: str) -> Path | None:
    """A regular file without any link on its way from `base`; None: that is to be looked into."""
    parts = name.split("/")
    if os.name != "posix" or not {"", ".", ".."}.isdisjoint(parts):
        return None
    path, mode = str(base).rstrip("/"), 0
    try:
        for part in parts:
            path = f"{path}/{part}"
            mode = os.lstat(path).st_mode
            if stat.S_ISLNK(mode):
                return None
    except (OSError, ValueError):
        return None
    return Path(path) if stat.S_ISREG(mode) else None


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


#: characters (or bytes of a line) in one row; a longer row is a malformed one, not a full memory
MAX_ROW = 64 * 1024 * 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """A row that could not be split into cells, with a stable kind and a readable reason."""

    kind: str
    message: str
    id: str | None = None  #: of the item, where its file has told it


#: the column of keys, which differ within a file: of the items of a tar
KEY = "__key__"


@dataclass(frozen=True, slots=True)
class PackedPicture:
    """A cell that holds a picture itself, and not its path."""

    place: str  #: what follows the name of the file, see `picture_places`
    sha256: str  #: of the picture's bytes


#: the wanted cells of one row by column name, or why there are none
RawRow = Mapping[str, Any] | Problem


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """One open file: its column names, and its rows for the columns that are wanted."""

    columns: tuple[str, ...]
    rows: Callable[[Sequence[str]], Iterator[RawRow]]
    sparse: bool = False  #: True where a row may lack a column (JSON lines)
    #: columns that hold the `content`, `label` and `id` where the specification names no others
    usual: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Record:
    """One row of the snapshot, in the order of its columns."""

    id: str
    index: int
    content: str | None  #: the text, or the picture's path relative to the dataset's root
    label: str | None
    meta: str  #: JSON object of strings
    sha256: str | None  #: of the picture's bytes
    error_kind: str | None
    error: str | None
    evidence: str | None = None  #: JSON, see `evidence.py`
    annotations: str | None = None  #: JSON, see `annotations.py`
    attributions: str | None = None  #: JSON, see `attribution_files.py`
    cluster: str | None = None  #: as the file has it; the snapshot numbers them, see `clusters.py`
    template: str | None = None


class Source(Protocol):
    """Where records come from; `data.SOURCES` holds the classes that have this shape.

    One that looks at how its files are written says in `detected: tuple[str, ...]` what it found
    in each of them, as `dialect.Dialect` does.
    """

    modality: Modality
    root: str  #: absolute folder that picture paths are relative to; "" for texts
    numbered: bool  #: True where ids are row numbers, hence unique
    named: bool  #: True where the names of its files decide the snapshot, not their bytes alone
    marked: bool  #: True where its records hold human rationales

    def __init__(self, spec: DatasetSpec, location: str) -> None: ...

    def files(self) -> Sequence[Path]:
        """The files whose bytes decide the snapshot together with the options."""

    def records(self) -> Generator[Record]:
        """Every row in order, bad ones included; a generator, to be closed by the caller."""


def unreadable(path: Path, error: Exception) -> DataSourceError:
    """The error for a file that cannot be read, or whose bytes end or break in the middle."""
    reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
    remedy = "is the download complete?" if path.suffix.lower() == ".gz" else "check the file"
    return DataSourceError(f"cannot read {path}: {reason}; {remedy}")


def printable(text: str) -> str:
    """`text` with what UTF-8 cannot hold (undecodable bytes) written as escapes."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
