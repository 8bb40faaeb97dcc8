"""The files of a dataset: their digests, and paths that stay under its root."""

import hashlib
import json
import os
import posixpath
import stat
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol, TypeVar
from urllib.parse import unquote

from transexplain.errors import (
    DataSourceError,
    InfrastructureError,
    ItemError,
    RemoteFileError,
    TransExplainError,
)
from transexplain.files.local_copies import local_file
from transexplain.files.paths import AnyPath, RemotePath, info_of
from transexplain.files.remote_files import is_url
from transexplain.types.dataset_labels import folded
from transexplain.types.plans import DatasetRef, DatasetSpec, Modality, SourceFile

T = TypeVar("T")

#: raised when the same source and options would give another snapshot
SNAPSHOT_VERSION = 2


def file_digest(path: AnyPath) -> str:
    """Sha256 of the file's bytes, in hexadecimal, read in pieces."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def source_files(files: Sequence[AnyPath]) -> tuple[SourceFile, ...]:
    """The files, in order, with their digests; of one in a store what the store tells of it.

    Raises DataSourceError where one cannot be read.
    """
    try:
        return tuple(map(_source_file, files))
    except OSError as error:
        raise DataSourceError(f"cannot read {error.filename}: {error.strerror}") from error


def _source_file(path: AnyPath) -> SourceFile:
    if isinstance(path, RemotePath):
        info = info_of(path)
        return SourceFile(path=info.url, sha256="", size=info.size, state=info.state)
    return SourceFile(path=printable(str(path.absolute())), sha256=file_digest(path))


def source_digest(
    spec: DatasetSpec,
    files: Sequence[AnyPath],
    digests: Sequence[SourceFile],
    *,
    named: bool = False,
    detected: Sequence[str] = (),
) -> str:
    """Sha256 over the digests and suffixes of the files, in order, and the reading options.

    The state that a store tells of a file stands for its digest.

    Where the source is `named`, whole file names take the place of the suffixes. What was detected
    is a part of it: other software may detect something else in the same bytes.
    """
    options = asdict(spec)
    del options["source"]  # the same bytes from elsewhere are the same dataset
    del options["snapshot"]  # it is one
    parts = [
        [
            path.name if named else "".join(path.suffixes).lower(),
            digest.sha256 or [digest.path, digest.state],
            partitions(path),
        ]
        for path, digest in zip(files, digests, strict=True)
    ]
    text = json.dumps([SNAPSHOT_VERSION, options, parts, list(detected)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def snapshot_file(ref: DatasetRef) -> Path:
    """The file of a snapshot or manifest here; of a manifest in a store a copy.

    Raises RemoteFileError, ObjectStoreError.
    """
    return _copy_of(ref.snapshot) if is_url(ref.snapshot) else Path(ref.snapshot)


@lru_cache(maxsize=16)
def _copy_of(url: str) -> Path:
    return local_file(url)  # it is named by its content, so it never changes


@lru_cache(maxsize=1024)
def _digest_of(path: Path, changed: int, size: int) -> str:
    del changed, size  # a file in another state is read again
    return file_digest(path)


def verify(ref: DatasetRef) -> None:
    """Check that the snapshot is the one of the plan; hashed once per process and file state.

    Raises DataSourceError where it is missing or its bytes have changed.
    """
    if is_url(ref.snapshot) and not ref.manifest:
        return  # its pieces are checked when they are read
    path = snapshot_file(ref)
    try:
        stat = path.stat()
        digest = _digest_of(path, stat.st_mtime_ns, stat.st_size)
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


def inside(root: AnyPath, name: str, *, resolved: bool = False) -> AnyPath:
    """The file `name` of the folder `root`, with every link followed; `resolved`: root's are.

    Raises ItemError path-outside-root where `..`, a link or an absolute path leads elsewhere,
    missing-image where there is no such regular file.
    """
    if isinstance(root, RemotePath):
        if name.startswith("/") or is_url(name) or ".." in name.split("/"):
            raise ItemError("path-outside-root", f"{printable(name)!r} leads outside the dataset")
        return root / posixpath.normpath(name)
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


def picture_digest(path: AnyPath, name: str) -> str:
    """Sha256 of the bytes of the picture at `path`, which the snapshot will call `name`.

    Raises ItemError missing-image where it cannot be read, invalid-utf8 for a name of odd bytes;
    ObjectStoreError where the store that it lies in is away.
    """
    if printable(name) != name:
        raise ItemError("invalid-utf8", f"the file name {printable(name)!r} is not UTF-8")
    try:
        if isinstance(path, RemotePath):
            return hashlib.sha256(path.read_bytes()).hexdigest()
        return file_digest(path)
    except OSError as error:
        raise ItemError("missing-image", f"cannot read {name}: {error.strerror}") from error
    except RemoteFileError as error:
        raise ItemError("missing-image", str(error)) from None


#: characters (or bytes of a line) in one row; a longer row is a malformed one, not a full memory
MAX_ROW = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
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
class OpenTable:
    """One open file: its column names, and its rows for the columns that are wanted."""

    columns: tuple[str, ...]
    rows: Callable[[Sequence[str]], Iterator[RawRow]]
    sparse: bool = False  #: True where a row may lack a column (JSON lines)
    #: columns that hold the `content`, `label` and `id` where the specification names no others
    usual: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()  #: what it holds that is not read
    metadata: Mapping[bytes, bytes] | None = None  #: of its schema, where it has one


@dataclass(frozen=True, slots=True)
class Record:
    """One row of the snapshot, in the order of its columns."""

    id: str
    index: int
    content: str | None = None  #: the text, or the picture's path relative to the dataset's root
    label: str | None = None
    meta: str = "{}"  #: JSON object of strings
    sha256: str | None = None  #: of the picture's bytes
    error_kind: str | None = None
    error: str | None = None
    evidence: str | None = None  #: JSON, see `item_marks.py`
    annotations: str | None = None  #: JSON, see `item_marks.py`
    attributions: str | None = None  #: JSON, see `attribution_files.py`
    cluster: str | None = None  #: as the file has it, see `item_clusters.py`
    template: str | None = None
    second_at: int | None = None  #: see `types.pairs`


@dataclass(frozen=True, kw_only=True, slots=True)
class FileFacts:
    """What is known of the files of a source when their rows have been read."""

    notes: tuple["Note", ...] = ()
    label_names: tuple[str, ...] = ()  #: of the numbers of labels, see `class_names`


NO_FACTS = FileFacts()
#: name of a file, "" for all of them, and what a reader should know of it
Note = tuple[str, str]


def grouped(notes: Iterable[Note]) -> tuple[str, ...]:
    """A line for each different note, with its files."""
    ways: dict[str, list[str]] = {}
    for name, note in notes:
        ways.setdefault(note, []).append(printable(name))
    return tuple(f"{_files(names)}{note}" for note, names in ways.items() if note)


def _files(names: Sequence[str]) -> str:
    more = f" and {len(names) - 1:,} more" if len(names) > 1 else ""
    return f"{names[0]}{more}: " if names[0] else ""


_MISSING = "__HIVE_DEFAULT_PARTITION__"


def partitions(path: object) -> dict[str, str | None]:
    """Column -> its value in a file, by the folders of its path or URL; None: it is missing.

    Hive, Spark and pyarrow write `label=positive/part-0.parquet`, with odd letters as in URLs.
    """
    split = (folder.partition("=") for folder in str(path).split("/")[:-1])
    return {
        _decoded(name): None if value == _MISSING else _decoded(value)
        for name, _, value in split
        if name and value
    }


def _decoded(text: str) -> str:
    return unquote(text, errors="surrogateescape")


def with_partitions(table: OpenTable, path: object) -> OpenTable:
    """A table with the columns that the folders of its file name."""
    fixed = partitions(path)
    if not fixed:
        return table

    def rows(wanted: Sequence[str]) -> Iterator[RawRow]:
        own = [
            column
            for column in wanted
            if column not in fixed or column in table.columns or table.sparse
        ]
        values = {name: value for name, value in fixed.items() if name in wanted}
        for row in table.rows(own):
            yield row if isinstance(row, Problem) else _joined(row, values)

    added = (name for name in fixed if name not in table.columns)
    return replace(table, columns=(*table.columns, *added), rows=rows)


def _joined(row: Mapping[str, Any], fixed: Mapping[str, str | None]) -> RawRow:
    for name, value in fixed.items():
        cell = row.get(name)
        text = cell.decode("utf-8", "surrogateescape") if isinstance(cell, bytes) else str(cell)
        if cell not in (None, b"", "") and (value is None or folded(text) != folded(value)):
            message = f"column {name!r} holds {text[:80]!r}, and the folder says {value!r}"
            return Problem("malformed-row", printable(message))
    return {**row, **fixed}


class Source(Protocol):
    """Where records come from; `data.SOURCES` holds the classes that have this shape.

    One that looks at how its files are written says in `detected: tuple[str, ...]` what it found
    in each of them, as `file_formats.Dialect` does, and then what else its rows depend on; in
    `facts: FileFacts` what a reader should know when its records have been read.
    """

    modality: Modality
    root: str  #: absolute folder that picture paths are relative to; "" for texts
    numbered: bool  #: True where ids are row numbers, hence unique
    named: bool  #: True where the names of its files decide the snapshot, not their bytes alone
    marked: bool  #: True where its records hold human rationales

    def __init__(self, spec: DatasetSpec, location: str) -> None: ...

    def files(self) -> Sequence[AnyPath]:
        """The files whose bytes decide the snapshot together with the options."""

    def records(self) -> Generator[Record]:
        """Every row in order, bad ones included; a generator, to be closed by the caller."""


def printable(text: str) -> str:
    """`text` with what UTF-8 cannot hold (undecodable bytes) written as escapes."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


# ---- frames that data are read in: a file that breaks is refused, a row that breaks is an error.
# What a parser raises of hostile bytes can be anything at all, so no reader lists it by itself.

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
    most, total = max(_UNPACKED, RATIO * info_of(path).size), 0

    def count(further: int) -> None:
        nonlocal total
        total += further
        if total > most:
            raise DataSourceError(
                f"{path} unpacks to more than {most:,} bytes, far more than such files hold; if "
                "they are data, write them unpacked"
            )

    return count
