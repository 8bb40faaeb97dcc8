"""Cuts a dataset into shards, and reads the items of one shard from the snapshot.

In a store a snapshot is a small Parquet file for each part of a shard: a worker reads the pieces of
its shard, each by one request, and no index and no footer of the whole. A piece names the snapshot
and the row that it begins with, and its pages have checksums, so that one of other data, or a
damaged one, is refused.
"""

import io
import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from transexplain.data import CONTENTS
from transexplain.data.image_files import with_pictures
from transexplain.data.item_clusters import MOST
from transexplain.data.item_marks import groups_in, read_annotations, read_rationale
from transexplain.data.listed_files import aligned, manifest_rows, read_manifest
from transexplain.data.picture_places import is_packed, open_picture
from transexplain.data.snapshot import FOUND
from transexplain.data.source_files import snapshot_file, verify
from transexplain.errors import ConfigurationError, DataSourceError, ItemError, RemoteFileError
from transexplain.files.paths import AnyPath, RemotePath, any_path
from transexplain.files.remote_files import is_url, read, under, write, write_all
from transexplain.settings import Settings
from transexplain.text.error_frames import traceback_of
from transexplain.types.items import Item, ItemFailure
from transexplain.types.plans import DatasetRef, Shard, ShardCut


def items_per_shard(wanted: int | Literal["auto"], rows: int) -> int:
    """What is wanted; auto: 256, in larger data so many that there are about 256 shards, to 4,096.

    A power of two, so that a card's batches of 2^n items fill a shard.
    """
    if wanted != "auto":
        return wanted
    return min(_MOST_ITEMS, max(_FEWEST_ITEMS, 1 << (rows // _SHARDS - 1).bit_length()))


_SHARDS, _FEWEST_ITEMS, _MOST_ITEMS = 256, 256, 4096
_TOGETHER = 16  #: pictures that are read from a store at the same time


def make_shards(rows: int, shard_size: int) -> ShardCut:
    """Consecutive shards of `shard_size` rows, the last one shorter; none for 0 rows.

    The cut depends on the two numbers alone, so the same dataset always has the same shards.

    Raises ConfigurationError for a shard size below 1 or a negative number of rows.
    """
    if shard_size < 1:
        raise ConfigurationError(f"shard_size is {shard_size}; it must be at least 1")
    if rows < 0:
        raise ConfigurationError(f"a dataset of {rows} rows cannot be cut into shards")
    return ShardCut(rows=rows, size=shard_size)


def read_shard(
    ref: DatasetRef, shard: Shard, unopened: Collection[str] = ()
) -> Iterator[Item | ItemFailure]:
    """The items of one shard in order, with a failure in the place of each bad one.

    Only the row groups that hold the shard are read; pictures are read one by one as the
    iterator advances, but for those of the items `unopened` (ids), which have no content.

    Raises DataSourceError where the snapshot is missing or not the one of the plan, or the shard
    lies outside it; ObjectStoreError where the store that it or a picture lies in is away.
    """
    root = folder_of(ref)

    def file_of(row: Mapping[str, Any]) -> str | None:
        """The picture file of a row; none of a failure, and of a tar or Parquet a part is read."""
        place = row["content"]
        return None if row["id"] in unopened or is_packed(place or "") else place

    pictured = with_pictures(root, read_rows(ref, shard), file_of, _TOGETHER)
    return (
        item_of(ref, row, root, opened=row["id"] not in unopened, picture=picture)
        for row, picture in pictured
    )


def folder_of(ref: DatasetRef) -> AnyPath:
    """The folder that the paths of a dataset's pictures are relative to."""
    return any_path(ref.root) if is_url(ref.root) else Path(ref.root).resolve()


def ids_of(ref: DatasetRef, rows: range) -> tuple[str, ...]:
    """The ids of some rows, in order, without reading what they hold; raises as `read_shard`."""
    some = Shard(index=0, start=rows.start, stop=rows.stop)
    return tuple(row["id"] for row in read_rows(ref, some, ["id"]))


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredPicture:
    """The picture of a row, read again when somebody asks for it."""

    ref: DatasetRef
    row: int
    size: tuple[int, int] | None = None  #: width and height, as it was when it was read

    def opened(self) -> Any:
        """The picture as `read_shard` gives it; raises ItemError where it cannot be read now."""
        (item,) = read_shard(self.ref, Shard(index=0, start=self.row, stop=self.row + 1))
        if isinstance(item, ItemFailure):
            raise ItemError(item.kind, item.message)
        return item.content


def graphs_of(ref: DatasetRef, rows: Iterable[int]) -> dict[int, dict[str, Any]]:
    """Row -> the graph there; rows that hold none, or cannot be read now, have no entry."""
    contents = {}
    try:
        for row in rows:
            some = Shard(index=0, start=row, stop=row + 1)
            for item in read_rows(ref, some, ["content"]):
                if item["content"] is not None:
                    contents[row] = CONTENTS.load("nodes")(item["content"])
    except (DataSourceError, OSError, pa.ArrowException):
        return contents
    return contents


def read_rows(
    ref: DatasetRef, shard: Shard, columns: list[str] | None = None
) -> Iterator[dict[str, Any]]:
    """The rows of one shard as the snapshot holds them, or some columns; raises as `read_shard`."""
    if not 0 <= shard.start <= shard.stop <= ref.rows:
        raise DataSourceError(
            f"shard {shard.index} is rows {shard.start} to {shard.stop}, but the dataset has "
            f"{ref.rows}; plan the audit again"
        )
    return stored_rows(ref, range(shard.start, shard.stop), columns)


#: rows of a manifest that are looked at while an audit is planned, in so many blocks; all of fewer
_BLOCKS = 50


def looked_at(ref: DatasetRef) -> list[range]:
    """The rows that planning reads: all, but of large data that are not copied blocks of them.

    They lie evenly over the data, and each begins where its file can be read from.
    """
    if not ref.manifest or ref.rows <= MOST:
        return [range(ref.rows)]
    starts = [aligned(ref, ref.rows * block // _BLOCKS) for block in range(_BLOCKS)]
    size = MOST // _BLOCKS
    return [range(start, min(start + size, ref.rows)) for start in dict.fromkeys(starts)]


def labels_of(ref: DatasetRef) -> list[str]:
    """The different labels of the rows `looked_at`, sorted.

    Raises DataSourceError where the snapshot is missing or not the one of the plan.
    """
    return sorted({row["label"] for row in _looked_at(ref, "label")} - {None})


def unread_rows(ref: DatasetRef) -> Iterator[ItemFailure]:
    """Every failure among the rows `looked_at`, without reading the others; as `labels_of`."""
    for row in _looked_at(ref, "id", "index", "error_kind", "error"):
        if row["error_kind"] is not None:
            yield _failure(row)


def _looked_at(ref: DatasetRef, *columns: str) -> Iterator[dict[str, Any]]:
    for rows in looked_at(ref):
        yield from stored_rows(ref, rows, list(columns))


def has_rationales(ref: DatasetRef) -> bool:
    """Return whether any item of the dataset has a human rationale."""
    return "evidence" in stored_schema(ref).names


def annotated_groups(ref: DatasetRef) -> list[str]:
    """The groups of the entities that are marked in the items, sorted."""
    marked = "annotations" in stored_schema(ref).names
    rows = _looked_at(ref, "annotations") if marked else ()
    return sorted({group for row in rows for group in groups_in(row["annotations"])})


def clustering_of(ref: DatasetRef) -> dict[str, int]:
    """Return how many clusters and templates a dataset has, and what was found in its texts.

    `clusters` counts an item without one by itself, `single` are templates of one item;
    `repeating`, `repeated` and `template` are those of `item_clusters.Clusters.found`. What was
    not requested or not found is not there.
    """
    schema = stored_schema(ref)
    counts: dict[str, int] = json.loads((schema.metadata or {}).get(FOUND, b"{}"))
    if "cluster" in schema.names:
        clusters = Counter(row["cluster"] for row in _looked_at(ref, "cluster"))
        alone = clusters.pop(None, 0)
        counts["clusters"] = len(clusters) + alone
    if "template" in schema.names:
        templates = Counter(row["template"] for row in _looked_at(ref, "template"))
        del templates[None]
        counts["templates"] = len(templates)
        counts["single"] = sum(count == 1 for count in templates.values())
    return counts


def value_counts(ref: DatasetRef, column: str) -> Counter[str | None]:
    """The items with each value of a metadata column; None: items without one."""
    rows = _looked_at(ref, "meta")
    return Counter(json.loads(row["meta"] or "{}").get(column) for row in rows)


def _failure(row: Mapping[str, Any]) -> ItemFailure:
    return ItemFailure(
        item_id=row["id"], index=row["index"], kind=row["error_kind"], message=row["error"]
    )


def item_of(
    ref: DatasetRef,
    row: dict[str, Any],
    root: AnyPath,
    *,
    opened: bool = True,
    picture: RemotePath | None = None,
) -> Item | ItemFailure:
    """The item of a row, or its failure; `picture`: its file, where that was read already."""
    name, index = row["id"], row["index"]
    if row["error_kind"] is not None:
        return _failure(row)
    place, image = row["content"], ref.modality == "image"
    try:
        content = None if image else place
        if opened and place is not None:
            if image:
                content = open_picture(
                    root, place, sha256=row["sha256"], resolved=True, read=picture
                )
            elif ref.modality == "nodes":
                content = CONTENTS.load("nodes")(content)
        # no such column where nobody marked anything
        evidence = read_rationale(row.get("evidence"), root)
        annotations = read_annotations(row.get("annotations"), root)
    except ItemError as fault:
        return ItemFailure(
            item_id=name,
            index=index,
            kind=fault.kind,
            message=str(fault),
            traceback=traceback_of(fault),
        )
    return Item(
        id=name,
        index=index,
        content=content,
        second_at=row.get("second_at"),
        label=row["label"],
        meta={} if (meta := row["meta"]) == "{}" else json.loads(meta),
        source=place if image else None,
        evidence=evidence,
        annotations=annotations,
        cluster=row.get("cluster") or "",
        template=row.get("template") or "",
    )


#: most rows of a piece: what is read and encoded by one call, see `explaining.reading.PART`
_LARGEST, _SMALLEST = 256, 64
_NAME = b"piece"


def rows_of_piece(shard_size: int) -> int:
    """Rows of each piece, so that no piece has rows of two shards: a divisor of the shard's."""
    divisors = (size for size in range(min(_LARGEST, shard_size), 0, -1) if shard_size % size == 0)
    best = next(divisors)
    return best if best >= min(_SMALLEST, shard_size) else shard_size


def put_pieces(ref: DatasetRef, shard_size: int, url: str) -> str:
    """Write the snapshot of `ref`, a file, as pieces below `url`; returns the URL of their folder.

    Pieces that are there already are left; a second call after an error goes on where the first one
    ended. Raises RemoteFileError, ObjectStoreError.
    """
    size = rows_of_piece(shard_size)
    folder = f"{url.rstrip('/')}/{ref.fingerprint}-{size}"
    known = {file.url for file in under(folder)}
    with pq.ParquetFile(ref.snapshot, pre_buffer=False) as file:
        batches = enumerate(file.iter_batches(size, use_threads=False))
        write_all(
            (url, _piece(ref, number * size, batch, file.schema_arrow))
            for number, batch in batches
            if (url := _address(folder, number * size)) not in known
        )
    return folder


def published(ref: DatasetRef, shard_size: int, settings: Settings) -> DatasetRef:
    """The dataset with its snapshot where workers read it: in the store that settings name, if any.

    A manifest is one file there, which each machine copies.
    Raises RemoteFileError, ObjectStoreError.
    """
    if not settings.snapshot_url or is_url(ref.snapshot):
        return ref
    if ref.manifest:
        url = f"{settings.snapshot_url.rstrip('/')}/{ref.fingerprint}.parquet"
        return replace(ref, snapshot=write(url, Path(ref.snapshot)).url)
    return replace(ref, snapshot=put_pieces(ref, shard_size, settings.snapshot_url))


def _address(folder: str, start: int) -> str:
    return f"{folder}/{start:012}.parquet"


def _piece(ref: DatasetRef, start: int, batch: pa.RecordBatch, schema: pa.Schema) -> bytes:
    sink = io.BytesIO()
    with pq.ParquetWriter(
        sink,
        schema,
        compression="zstd",
        write_statistics=False,
        write_page_checksum=True,
        # small footers and pages: most cells differ, and numbers of rows follow each other
        store_schema=False,
        use_dictionary=["label"],
        column_encoding={"index": "DELTA_BINARY_PACKED"},
    ) as writer:
        writer.write_batch(batch)
        writer.add_key_value_metadata({**(schema.metadata or {}), _NAME: _named(ref, start)})
    return sink.getvalue()


def _named(ref: DatasetRef, start: int) -> bytes:
    """The snapshot, by so much of its digest as is needed, and the first row."""
    return f"{ref.fingerprint[:32]}-{start}".encode()


_AGAIN = "submit the audit again, which writes what is missing, or restore it"


@lru_cache(maxsize=4)  # parts of pictures and graphs are smaller than a piece
def piece_at(url: str, name: bytes, rows: int) -> pa.Table:
    """The rows of a piece, which has this name and so many.

    Raises DataSourceError where it is missing, damaged or another one; ObjectStoreError.
    """
    try:
        content = read(url)
        with pq.ParquetFile(io.BytesIO(content), page_checksum_verification=True) as file:
            table = file.read(use_threads=False)
            table = table.replace_schema_metadata(file.metadata.metadata)
    except RemoteFileError as error:
        raise DataSourceError(f"the data's snapshot is not whole: {error}; {_AGAIN}") from None
    except (OSError, pa.ArrowException) as error:
        raise DataSourceError(f"{url} is damaged ({error}); delete it and {_AGAIN}") from error
    if ((table.schema.metadata or {}).get(_NAME), len(table)) != (name, rows):
        raise DataSourceError(
            f"{url} holds other rows than the snapshot that the audit was planned with; delete it "
            f"and {_AGAIN}"
        )
    return table


def stored_schema(ref: DatasetRef) -> pa.Schema:
    """The names of a dataset's columns, and under `snapshot.FOUND` what was found in the texts.

    Raises as `stored_rows`.
    """
    verify(ref)
    if ref.manifest:
        manifest = read_manifest(snapshot_file(ref))
        columns = [(name, pa.string()) for name in manifest.columns]
        return pa.schema(columns, metadata={FOUND: json.dumps(dict(manifest.found))})
    return _piece_of(ref, 0).schema if is_url(ref.snapshot) else pq.read_schema(ref.snapshot)


def stored_rows(
    ref: DatasetRef, rows: range, columns: list[str] | None = None
) -> Iterator[dict[str, Any]]:
    """Some consecutive rows, in order; all columns, or at least these.

    The snapshot or manifest is checked at once as far as it can be before rows are read.

    Raises DataSourceError where it is missing or not the one of the plan, ObjectStoreError where
    the store that it lies in is away.
    """
    verify(ref)
    if ref.manifest:  # read whole from the files that it lists
        return manifest_rows(ref, rows.start, rows.stop)
    tables = _pieces if is_url(ref.snapshot) else _groups
    return chain.from_iterable(
        table[max(rows.start - start, 0) : rows.stop - start].to_pylist()
        for start, table in tables(ref, rows, columns)
    )


def _pieces(
    ref: DatasetRef, rows: range, columns: list[str] | None
) -> Iterator[tuple[int, pa.Table]]:
    """The pieces with some rows, in an object store, each with its first row."""
    size = _rows_of(ref)
    for start in range(rows.start - rows.start % size, rows.stop, size):
        table = _piece_of(ref, start)
        yield start, table if columns is None else table.select(columns)


def _rows_of(ref: DatasetRef) -> int:
    return int(ref.snapshot.rpartition("-")[2])


def _piece_of(ref: DatasetRef, start: int) -> pa.Table:
    rows = min(_rows_of(ref), ref.rows - start)
    return piece_at(_address(ref.snapshot, start), _named(ref, start), rows)


def _groups(
    ref: DatasetRef, rows: range, columns: list[str] | None
) -> Iterator[tuple[int, pa.Table]]:
    """The row groups with some rows, of a file of this machine, each with its first row."""
    start = 0
    with pq.ParquetFile(ref.snapshot, pre_buffer=False) as file:
        for group in range(file.num_row_groups):
            size = file.metadata.row_group(group).num_rows
            if max(rows.start, start) < min(rows.stop, start + size):
                yield (
                    start,
                    _whole_group(file, Path(ref.snapshot), group)
                    if columns is None
                    else file.read_row_group(group, columns, use_threads=False),
                )
            start += size


#: the row group read last, by the state of its file: the next part is mostly in it, too
_latest: tuple[tuple[str, int, int, int], pa.Table] | None = None


def _whole_group(file: pq.ParquetFile, snapshot: Path, group: int) -> pa.Table:
    """All columns of a row group."""
    global _latest  # noqa: PLW0603 - two threads may read it twice, which costs time only
    state, latest = snapshot.stat(), _latest
    key = (str(snapshot), state.st_mtime_ns, state.st_size, group)
    if latest is None or latest[0] != key:
        latest = _latest = (key, file.read_row_group(group, use_threads=False))
    return latest[1]
