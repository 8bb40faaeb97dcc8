"""Cuts a dataset into shards, and reads the items of one shard from the snapshot."""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from transexplain.data import CONTENTS, listed_files
from transexplain.data.image_files import read_ahead
from transexplain.data.item_clusters import MOST
from transexplain.data.item_marks import groups_in, read_annotations, read_rationale
from transexplain.data.manifest_rows import aligned, manifest_rows
from transexplain.data.picture_places import is_packed, open_picture
from transexplain.data.snapshot import FOUND
from transexplain.data.snapshot_pieces import snapshot_rows
from transexplain.data.source_files import snapshot_file, verify
from transexplain.errors import ConfigurationError, DataSourceError, ItemError
from transexplain.files.paths import AnyPath, RemotePath, any_path
from transexplain.files.remote_files import is_url
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
    rows, root = read_rows(ref, shard), folder_of(ref)
    if isinstance(root, RemotePath):
        return _remote_items(ref, rows, root, unopened)
    return (_item(ref, row, root, opened=row["id"] not in unopened) for row in rows)


def folder_of(ref: DatasetRef) -> AnyPath:
    """The folder that the paths of a dataset's pictures are relative to."""
    return any_path(ref.root) if is_url(ref.root) else Path(ref.root).resolve()


def _remote_items(
    ref: DatasetRef, rows: Iterator[dict[str, Any]], root: RemotePath, unopened: Collection[str]
) -> Iterator[Item | ItemFailure]:
    """The items of rows of pictures in a store, some of which are read at the same time."""
    while some := list(islice(rows, _TOGETHER)):
        # rows that are failures have no content; of a tar or Parquet file a part is read
        wanted = [row["id"] not in unopened and not is_packed(row["content"] or "") for row in some]
        names = [
            row["content"] if selected else None for row, selected in zip(some, wanted, strict=True)
        ]
        for row, picture in zip(some, read_ahead(root, names), strict=True):
            yield _item(ref, row, root, opened=row["id"] not in unopened, picture=picture)


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
    if ref.manifest:
        verify(ref)
        return manifest_rows(ref, shard.start, shard.stop)
    tables = snapshot_rows(ref).tables(range(shard.start, shard.stop), columns)
    return (row for table in tables for row in table.to_pylist())


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


def _looked_at(ref: DatasetRef) -> Iterator[dict[str, Any]]:
    verify(ref)
    for rows in looked_at(ref):
        yield from manifest_rows(ref, rows.start, rows.stop)


def labels_of(ref: DatasetRef) -> list[str]:
    """The different labels of a dataset, sorted; reads that column only, a batch at a time.

    Of a manifest those of the rows `looked_at`. Raises DataSourceError where the snapshot is
    missing or not the one of the plan.
    """
    if ref.manifest:
        return sorted({label for label in _cells(ref, "label") if label is not None})
    labels: set[str | None] = set()
    for batch in snapshot_rows(ref).batches(["label"]):
        labels.update(batch.column(0).unique().to_pylist())
    return sorted(label for label in labels if label is not None)


def unread_rows(ref: DatasetRef) -> Iterator[ItemFailure]:
    """Every row of the snapshot that is a failure, without reading the others.

    Of a manifest those of the rows `looked_at`. Raises DataSourceError where the snapshot is
    missing or not the one of the plan.
    """
    if ref.manifest:
        failing = (row for row in _looked_at(ref) if row["error_kind"] is not None)
        yield from (_item(ref, row, Path()) for row in failing)  # type: ignore[misc]
        return
    root = folder_of(ref)
    for batch in snapshot_rows(ref).batches(["id", "index", "error_kind", "error"]):
        if batch.column(2).null_count < len(batch):
            for row in batch.to_pylist():
                if row["error_kind"] is not None:
                    yield _item(ref, row, root)  # type: ignore[misc]


def has_rationales(ref: DatasetRef) -> bool:
    """Return whether any item of the dataset has a human rationale."""
    return "evidence" in _columns(ref)


def annotated_groups(ref: DatasetRef) -> list[str]:
    """The groups of the entities that are marked in the items, sorted."""
    cells = _cells(ref, "annotations") if "annotations" in _columns(ref) else ()
    return sorted({group for cell in cells for group in groups_in(cell)})


def clustering_of(ref: DatasetRef) -> dict[str, int]:
    """Return how many clusters and templates a dataset has, and what was found in its texts.

    `clusters` counts an item without one by itself, `single` are templates of one item;
    `repeating`, `repeated` and `template` are as `item_clusters.Clustering` has them. What was not
    requested or not found is not there.
    """
    columns = _columns(ref)
    if ref.manifest:
        counts = dict(listed_files.read(snapshot_file(ref)).found)
    else:
        metadata = snapshot_rows(ref).schema().metadata or {}
        counts = json.loads(metadata.get(FOUND, b"{}"))
    if "cluster" in columns:
        clusters = Counter(_cells(ref, "cluster"))
        alone = clusters.pop(None, 0)
        counts["clusters"] = len(clusters) + alone
    if "template" in columns:
        templates = Counter(name for name in _cells(ref, "template") if name is not None)
        counts["templates"] = len(templates)
        counts["single"] = sum(count == 1 for count in templates.values())
    return counts


def value_counts(ref: DatasetRef, column: str) -> Counter[str | None]:
    """The items with each value of a metadata column; None: items without one."""
    return Counter(json.loads(cell or "{}").get(column) for cell in _cells(ref, "meta"))


def _columns(ref: DatasetRef) -> list[str]:
    if ref.manifest:
        verify(ref)
        return list(listed_files.read(snapshot_file(ref)).columns)
    return list(snapshot_rows(ref).schema().names)


def _cells(ref: DatasetRef, column: str) -> Iterator[str | None]:
    """One column, a batch at a time; of a manifest in the rows `looked_at`."""
    if ref.manifest:
        yield from (row[column] for row in _looked_at(ref))
        return
    for batch in snapshot_rows(ref).batches([column]):
        yield from batch.column(0).to_pylist()


def _opened(ref: DatasetRef, row: dict[str, Any], root: AnyPath, picture: RemotePath | None) -> Any:
    """Return what the content of a row stands for; raises ItemError, ObjectStoreError."""
    content = row["content"]
    if ref.modality == "image":
        return open_picture(root, content, sha256=row["sha256"], resolved=True, read=picture)
    return CONTENTS.load("nodes")(content) if ref.modality == "nodes" else content


def _item(
    ref: DatasetRef,
    row: dict[str, Any],
    root: AnyPath,
    *,
    opened: bool = True,
    picture: RemotePath | None = None,
) -> Item | ItemFailure:
    name, index = row["id"], row["index"]
    if row["error_kind"] is not None:
        return ItemFailure(item_id=name, index=index, kind=row["error_kind"], message=row["error"])
    source = row["content"] if ref.modality == "image" else None
    try:
        content = None if ref.modality == "image" else row["content"]
        if opened and row["content"] is not None:
            content = _opened(ref, row, root, picture)
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
        source=source,
        evidence=evidence,
        annotations=annotations,
        cluster=row.get("cluster") or "",
        template=row.get("template") or "",
    )
