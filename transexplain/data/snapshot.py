"""Writes a source once as a Parquet snapshot that is read from any row and named by its content."""

import hashlib
import heapq
import json
import re
from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, replace
from itertools import islice
from operator import itemgetter
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from transexplain.data import SOURCES
from transexplain.data.item_clusters import Clusters
from transexplain.data.source_files import (
    NO_FACTS,
    FileFacts,
    Record,
    Source,
    file_digest,
    grouped,
    source_digest,
    source_files,
)
from transexplain.errors import DataSourceError
from transexplain.files.atomic_write import atomic_file, put_in_place, temporary_file
from transexplain.files.paths import AnyPath, RemotePath, info_of
from transexplain.files.remote_files import FileInfo, check_url, delete, info_all, is_url, under
from transexplain.randomness import row_number
from transexplain.settings import Settings
from transexplain.types.plans import DatasetRef, DatasetSpec, SourceFile


def check_ids(snapshot: Path) -> None:
    """Raise DataSourceError naming the first id that `snapshot` holds a second time.

    Memory holds eight bytes per id: equal digests are suspects, looked up again.
    """
    digests = array("Q")
    with pq.ParquetFile(snapshot) as file:
        for batch in file.iter_batches(columns=["id"]):
            digests.extend(map(_digest, batch.column(0).to_pylist()))
    ordered = np.sort(np.frombuffer(digests, dtype=np.uint64))
    suspects = set(ordered[1:][ordered[1:] == ordered[:-1]].tolist())
    if not suspects:
        return
    seen: dict[str, int] = {}
    with pq.ParquetFile(snapshot) as file:
        for batch in file.iter_batches(columns=["id", "index"]):
            for name, row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                if name in seen:
                    raise same_id(name, seen[name], row)
                if _digest(name) in suspects:
                    seen[name] = row


def same_id(name: str, first: int, second: int) -> DataSourceError:
    """The error for two rows of one id."""
    return DataSourceError(
        f"the id {name!r} stands in row {first} and again in row {second} (counted from 0); ids "
        "must differ, or leave `id` away to number the rows"
    )


def _digest(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")


GROUP_ROWS = 1024  #: most rows of a row group
GROUP_CHARACTERS = 8 * 1024 * 1024  #: a row group ends early when its contents reach this
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
#: of a source with pairs, with rationales or entities that people marked, with attributions that
#: were made elsewhere, or whose rows name the template that they were made from
_FURTHER = {
    "evidence": pa.string(),
    "annotations": pa.string(),
    "attributions": pa.string(),
    "template": pa.string(),
    "second_at": pa.int64(),
}
#: of rows that belong together: the number of the first of them
_CLUSTER = pa.field("cluster", pa.string())
#: what was found in the texts, as JSON beside the columns
FOUND = b"near_duplicates"


def write_rows(
    records: Iterable[Record], path: Path, clusters: Clusters | None, further: Collection[str]
) -> int:
    """Write the records to `path`, pass them to `clusters`, return how many there were.

    `further` names the columns beside those that every snapshot has.

    The same records always give the same bytes (with one version of pyarrow). Raises OSError
    where they cannot be written.
    """
    rows = 0
    schema = SCHEMA
    for name in (column for column in _FURTHER if column in further):
        schema = schema.append(pa.field(name, _FURTHER[name]))
    # No statistics: no search by value is made, and they would repeat long texts.
    with pq.ParquetWriter(path, schema, compression="zstd", write_statistics=False) as writer:
        for group in _groups(records):
            if clusters is not None:
                clusters.add(group)
            columns = {name: [getattr(record, name) for record in group] for name in schema.names}
            writer.write_table(pa.table(columns, schema=schema), row_group_size=len(group))
            rows += len(group)
    return rows


def write_clusters(
    before: Path, after: Path, firsts: Sequence[int | None], facts: Mapping[str, int]
) -> None:
    """Write the snapshot at `before` to `after` with the cluster of every row.

    As `write_rows`: the same bytes for the same input; raises OSError.
    """
    names = [None if first is None else str(first) for first in firsts]
    with pq.ParquetFile(before, pre_buffer=False) as file:
        schema = file.schema_arrow.append(_CLUSTER)
        schema = schema.with_metadata({FOUND: json.dumps(facts).encode()})
        with pq.ParquetWriter(after, schema, compression="zstd", write_statistics=False) as writer:
            start = 0
            for number in range(file.num_row_groups):
                table = file.read_row_group(number, use_threads=False)
                own = pa.array(names[start : start + len(table)], type=pa.string())
                table = table.append_column(_CLUSTER, own).cast(schema)
                writer.write_table(table, row_group_size=len(table))
                start += len(table)


def _groups(records: Iterable[Record]) -> Iterator[list[Record]]:
    group: list[Record] = []
    characters = 0
    for record in records:
        group.append(record)
        long = (record.content, record.evidence, record.annotations, record.attributions)
        characters += len(record.meta) + sum(len(text or "") for text in long)
        if len(group) == GROUP_ROWS or characters >= GROUP_CHARACTERS:
            yield group
            group, characters = [], 0
    if group:
        yield group


def sample(records: Iterable[Record], count: int, seed: int) -> list[Record]:
    """`count` of the records in their order, numbered again; all where there are fewer.

    Only so many are held at a time.
    """

    def place(numbered: tuple[int, Record]) -> tuple[int, int]:
        return row_number(numbered[0], seed), numbered[0]

    kept = heapq.nsmallest(count, enumerate(records), key=place)
    in_order = sorted(kept, key=itemgetter(0))
    return [replace(record, index=index) for index, (_, record) in enumerate(in_order)]


#: a plan lists the files of its data up to so many; by the snapshot a change in any is found
_LISTED = 100


def prepare(spec: DatasetSpec, snapshot_dir: Path) -> DatasetRef:
    """Read the source into its snapshot, or find the snapshot written before.

    The file is named by its own sha256; for texts and graphs a small `.source` file beside it
    remembers which snapshot the bytes of the source and the reading options gave. Pictures are
    hashed every time, because a snapshot is only as good as the pictures it names.

    Raises DataSourceError: no such file, folder, column or format, a damaged file, two items of
    the same id, no rows, or a snapshot folder that cannot be written. What is wrong with one
    item only becomes its `error_kind` and `error`.
    """
    for name, count in (("limit", spec.limit), ("sample", spec.sample)):
        if count is not None and count < 1:
            raise DataSourceError(f"{name} is {count}; it must be at least 1")
    source = _open_source(spec)
    folder = snapshot_folder(snapshot_dir)
    try:
        if source.modality != "image":
            snapshot, files, facts = _remember(source, spec, folder)
        else:
            snapshot, files, facts = write_snapshot(source, spec, folder), (), _facts(source)
    except OSError as error:  # the readers have turned their own into DataSourceError
        raise unwritable(folder, error) from error
    return snapshot_ref(source, spec, snapshot, files, facts)


def snapshot_ref(
    source: Source,
    spec: DatasetSpec,
    snapshot: Path,
    files: tuple[SourceFile, ...],
    facts: FileFacts,
) -> DatasetRef:
    """The record of a source's snapshot in a plan."""
    names = (path.name for path in source.files())
    dialects = zip(names, _detected(source), strict=False)
    return DatasetRef(
        source=spec.source,
        modality=source.modality,
        snapshot=str(snapshot),
        fingerprint=snapshot.stem,
        rows=pq.read_metadata(snapshot).num_rows,
        root=source.root,
        files=files if len(files) <= _LISTED else (),
        read_as=grouped((*dialects, *facts.notes)),
        label_names=facts.label_names,
    )


def _facts(source: Source) -> FileFacts:
    """`facts` of a source, as `_detected`."""
    return getattr(source, "facts", NO_FACTS)


def _detected(source: Source) -> Sequence[str]:
    """`detected` of a source; empty where a source has no such attribute."""
    return getattr(source, "detected", ())


def _open_source(spec: DatasetSpec) -> Source:
    prefix, colon, location = spec.source.partition(":")
    if not spec.source.strip():
        raise DataSourceError("the dataset's source is empty; name a file, a glob or a folder")
    name = prefix if colon and prefix in SOURCES and prefix != "files" else "files"
    named = spec.source if name == "files" else location
    if is_url(named):
        check_url(named)
    elif prefix == "hf" and colon:
        raise DataSourceError(
            f"{spec.source!r}: files of a hub are named by hf://datasets/ORG/NAME@REVISION/FILES"
        )
    source: Source = SOURCES.load(name)(spec, named)
    return source


def snapshot_folder(snapshot_dir: Path) -> Path:
    """The folder, made where it is not there; raises DataSourceError where it cannot be."""
    try:
        snapshot_dir.mkdir(parents=True, exist_ok=True)
        return snapshot_dir.resolve()
    except OSError as error:
        raise unwritable(snapshot_dir, error) from error


def unwritable(path: Path, error: OSError) -> DataSourceError:
    """The error for a snapshot that cannot be written."""
    return DataSourceError(
        f"cannot write the dataset snapshot in {path}: {error.strerror or error}; set "
        "TRANSEXPLAIN_SNAPSHOT_DIR to a folder with room that can be written"
    )


def _remember(
    source: Source, spec: DatasetSpec, folder: Path
) -> tuple[Path, tuple[SourceFile, ...], FileFacts]:
    """The snapshot of texts or graphs, found by the digest of their bytes or written.

    With it the files, and what is known of them.
    """
    files = source.files()
    before = _states(files)
    digests = source_files(files)
    name = source_digest(spec, files, digests, named=source.named, detected=_detected(source))
    pointer = folder / f"{name}.source"
    with suppress(OSError, ValueError):  # none, or it is not whole
        kept = pointer.read_text(encoding="ascii")
        digest, facts = msgspec.json.decode(kept, type=tuple[str, FileFacts])
        snapshot = pointer.with_name(f"{digest}.parquet")
        if file_digest(snapshot) == digest:
            return snapshot, digests, facts
    snapshot = write_snapshot(source, spec, folder)
    if _states(files) != before:
        raise DataSourceError(f"{spec.source!r} was changed while it was read; try again")
    with atomic_file(pointer) as path:
        path.write_text(json.dumps([snapshot.stem, asdict(_facts(source))]), encoding="ascii")
    return snapshot, digests, _facts(source)


def _states(files: Sequence[AnyPath]) -> list[FileInfo]:
    remote = iter(info_all([path.url for path in files if isinstance(path, RemotePath)]))
    return [next(remote) if isinstance(path, RemotePath) else info_of(path) for path in files]


FROM_MEMORY = "from-memory"  #: folder beside snapshots, of data that a caller had in memory
_SNAPSHOT = re.compile(r"[0-9a-f]{64}\.parquet")
_HELD = re.compile(r"[0-9a-f]{16}\.(parquet|jsonl)")


def delete_data(place: str, settings: Settings) -> bool:
    """Delete a snapshot or data from memory; False: it is no such file in the folder of settings.

    A plan that somebody changed could name any file, so nothing else is deleted.

    Raises ObjectStoreError, OSError.
    """
    if is_url(place):
        home = settings.snapshot_url.rstrip("/")
        if not home or not place.startswith(f"{home}/") or ".." in place.split("/"):
            return False
        check_url(place)
        files = [place, *(file.url for file in under(place))]
        for url in files:
            delete(url)
        return True
    path, folder = Path(place), settings.snapshot_dir.resolve()
    names = {folder: _SNAPSHOT, folder / FROM_MEMORY: _HELD}.get(path.parent)
    if names is None or not names.fullmatch(path.name) or not path.is_file():
        return False
    for pointer in folder.glob("*.source"):
        if path.stem in pointer.read_text(encoding="ascii", errors="replace"):
            pointer.unlink(missing_ok=True)
    path.unlink(missing_ok=True)
    return True


def further_columns(spec: DatasetSpec) -> list[str]:
    """The columns that a snapshot has beside those of every one, by the reading options."""
    given = {
        "evidence": spec.evidence is not None,
        "annotations": bool(spec.spans),
        "template": spec.template is not None,
        "second_at": isinstance(spec.text, tuple),
    }
    return [name for name, there in given.items() if there]


def write_snapshot(
    source: Source, spec: DatasetSpec, folder: Path, more: Sequence[str] = ()
) -> Path:
    """Write every record into a file in `folder` that is named by its own sha256.

    `more` are columns beside those that the reading options give.

    Raises DataSourceError for no rows or two of one id, OSError where it cannot be written.
    """
    clusters = Clusters.of(spec, source.modality)
    with temporary_file(folder) as temporary:
        with closing(source.records()) as records:
            kept: Iterable[Record] = islice(records, spec.limit)
            if spec.sample is not None:
                kept = sample(kept, spec.sample, spec.seed)
            marked = ["evidence"] if source.marked else []
            further = {*further_columns(spec), *marked, *more}
            rows = write_rows(kept, temporary, clusters, further)
        if not rows:
            raise DataSourceError(f"{spec.source!r} holds no rows")
        if not source.numbered:
            check_ids(temporary)
        clustering = clusters.found() if clusters is not None else None
        if clustering is None:
            return named_by_digest(temporary, folder)
        with temporary_file(folder) as clustered:
            write_clusters(temporary, clustered, *clustering)
            return named_by_digest(clustered, folder)


def named_by_digest(temporary: Path, folder: Path) -> Path:
    """The snapshot that `temporary` becomes, unless it is there already."""
    digest = file_digest(temporary)
    snapshot = folder / f"{digest}.parquet"
    if not (snapshot.is_file() and file_digest(snapshot) == digest):
        put_in_place(temporary, snapshot)
    return snapshot
