"""Writing a dataset once into a Parquet file that opens at any row."""

import os
import re
import uuid
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from transexplain.data import SOURCES
from transexplain.data.duplicates import DuplicateIds
from transexplain.data.fingerprint import file_digest, source_digest
from transexplain.data.records import Record, Source
from transexplain.errors import DataSourceError
from transexplain.plans import DatasetRef, DatasetSpec

GROUP_ROWS = 1024  #: most rows of a row group
GROUP_CHARACTERS = 8 * 1024 * 1024  #: a row group ends early when its texts reach this
SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("index", pa.int64(), nullable=False),
        pa.field("content", pa.string()),
        pa.field("label", pa.string()),
        pa.field("meta", pa.string(), nullable=False),
        pa.field("sha256", pa.string()),
        pa.field("error_kind", pa.string()),
        pa.field("error", pa.string()),
    ]
)


def prepare(spec: DatasetSpec, snapshot_dir: Path) -> DatasetRef:
    """Read the source into its snapshot, or find the snapshot written before.

    The file is named by its own sha256; for texts a small `.source` file beside it remembers
    which snapshot the bytes of the source and the reading options gave. Pictures are hashed
    every time, because a snapshot is only as good as the pictures it names.

    Raises DataSourceError: no such file, folder, column or format, a damaged file, two items of
    the same id, no rows, or a snapshot folder that cannot be written. What is wrong with one
    item only becomes its `error_kind` and `error`.
    """
    if spec.limit is not None and spec.limit < 1:
        raise DataSourceError(f"limit is {spec.limit}; it must be at least 1")
    source = _open_source(spec)
    folder = _folder(snapshot_dir)
    if source.modality == "text":
        pointer = folder / f"{source_digest(spec, source.files())}.source"
        snapshot = _remembered(pointer) or _write(source, spec, folder)
        if not pointer.is_file() or pointer.read_text(encoding="ascii") != snapshot.stem:
            with _replacing(pointer) as temporary:
                temporary.write_text(snapshot.stem, encoding="ascii")
    else:
        snapshot = _write(source, spec, folder)
    return DatasetRef(
        source=spec.source,
        modality=source.modality,
        snapshot=str(snapshot),
        fingerprint=snapshot.stem,
        rows=pq.read_metadata(snapshot).num_rows,
        root=source.root,
    )


def _open_source(spec: DatasetSpec) -> Source:
    prefix, colon, location = spec.source.partition(":")
    if not spec.source.strip():
        raise DataSourceError("the dataset's source is empty; name a file, a glob or a folder")
    if colon and prefix in SOURCES and prefix != "files":
        opened: Source = SOURCES.load(prefix)(spec, location)
        return opened
    if prefix == "hf" and colon:
        raise DataSourceError(
            f"{spec.source!r}: data sets of a hub are not read yet; save it as .parquet or .jsonl"
        )
    if re.match(r"[a-z][a-z0-9+.-]+://", spec.source, re.IGNORECASE):
        raise DataSourceError(f"{spec.source!r}: remote files are not read; download it first")
    opened = SOURCES.load("files")(spec, spec.source)
    return opened


def _folder(snapshot_dir: Path) -> Path:
    try:
        snapshot_dir.mkdir(parents=True, exist_ok=True)
        return snapshot_dir.resolve()
    except OSError as error:
        raise _unwritable(snapshot_dir, error) from error


def _unwritable(path: Path, error: OSError) -> DataSourceError:
    return DataSourceError(
        f"cannot write the dataset snapshot in {path}: {error.strerror or error}; set "
        "TRANSEXPLAIN_SNAPSHOT_DIR to a folder with room that can be written"
    )


def _remembered(pointer: Path) -> Path | None:
    """The snapshot that the pointer names, if it is there and whole."""
    try:
        digest = pointer.read_text(encoding="ascii")
        snapshot = pointer.with_name(f"{digest}.parquet")
        return snapshot if file_digest(snapshot) == digest else None
    except (OSError, ValueError):
        return None


def _write(source: Source, spec: DatasetSpec, folder: Path) -> Path:
    before = _states(source)
    ids = None if source.numbered else DuplicateIds()
    with _replacing(folder / "unnamed.parquet") as temporary:
        with closing(source.records()) as records:
            rows = _write_rows(islice(records, spec.limit), temporary, ids)
        if not rows:
            raise DataSourceError(f"{spec.source!r} holds no rows")
        if ids is not None:
            ids.check(temporary)
        if _states(source) != before:
            raise DataSourceError(f"{spec.source!r} was changed while it was read; try again")
        digest = file_digest(temporary)
        snapshot = folder / f"{digest}.parquet"
        if not (snapshot.is_file() and file_digest(snapshot) == digest):
            temporary.replace(snapshot)
    return snapshot


def _states(source: Source) -> list[tuple[int, int]]:
    """Modification time and size of every file, to notice one that changes under the reader."""
    try:
        stats = [path.stat() for path in source.files()]
    except OSError as error:
        raise DataSourceError(f"cannot read {error.filename}: {error.strerror}") from error
    return [(stat.st_mtime_ns, stat.st_size) for stat in stats]


def _write_rows(records: Iterable[Record], path: Path, ids: DuplicateIds | None) -> int:
    rows = 0
    try:
        with pq.ParquetWriter(path, SCHEMA, compression="zstd") as writer:
            for group in _groups(records):
                if ids is not None:
                    for record in group:
                        ids.add(record.id)
                columns = dict(zip(SCHEMA.names, zip(*group, strict=True), strict=True))
                writer.write_table(pa.table(columns, schema=SCHEMA), row_group_size=GROUP_ROWS)
                rows += len(group)
    except OSError as error:
        raise _unwritable(path.parent, error) from error
    return rows


def _groups(records: Iterable[Record]) -> Iterator[list[Record]]:
    """Lists of at most `GROUP_ROWS` records and about `GROUP_CHARACTERS` of content."""
    group: list[Record] = []
    size = 0
    for record in records:
        group.append(record)
        size += len(record.content or "")
        if len(group) == GROUP_ROWS or size >= GROUP_CHARACTERS:
            yield group
            group, size = [], 0
    if group:
        yield group


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """A temporary file beside `path` that takes its place at the end, unless it was moved away."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{uuid.uuid4().hex}")
    try:
        yield temporary
        if path.suffix == ".source" and temporary.exists():
            temporary.replace(path)
    except OSError as error:
        raise _unwritable(path.parent, error) from error
    finally:
        temporary.unlink(missing_ok=True)
