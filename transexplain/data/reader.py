"""Reading one shard from a snapshot without touching the rows before it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq

from transexplain.data.fingerprint import verify
from transexplain.data.images import load_image
from transexplain.data.paths import inside
from transexplain.errors import DataSourceError, ItemError
from transexplain.plans import DatasetRef, Shard
from transexplain.types import Item, ItemFailure


def read_shard(ref: DatasetRef, shard: Shard) -> Iterator[Item | ItemFailure]:
    """The items of rows `shard.start` to `shard.stop`, in order; bad ones as failures.

    Only the row groups that hold these rows are read. Pictures are opened here, and have the
    bytes of plan time or are failures.

    Raises DataSourceError where the snapshot is missing, has changed, or ends before the shard.
    """
    verify(ref)
    with pq.ParquetFile(ref.snapshot) as file:
        if shard.stop > file.metadata.num_rows:
            raise DataSourceError(
                f"shard {shard.index} ends at row {shard.stop} but {ref.snapshot} has "
                f"{file.metadata.num_rows} rows"
            )
        for group, first, last in _pieces(file, shard):
            rows = file.read_row_group(group).slice(first, last - first).to_pylist()
            yield from (_entry(ref, row) for row in rows)


def labels_of(ref: DatasetRef) -> list[str]:
    """The different labels of a dataset, sorted; reads that column only."""
    verify(ref)
    column = pq.read_table(ref.snapshot, columns=["label"]).column("label")
    return sorted(label for label in pc.unique(column).to_pylist() if label is not None)


def _pieces(file: pq.ParquetFile, shard: Shard) -> Iterator[tuple[int, int, int]]:
    """(row group, first, last) for the parts of the shard, rows counted within the group."""
    begin = 0
    for group in range(file.num_row_groups):
        end = begin + file.metadata.row_group(group).num_rows
        if begin < shard.stop and shard.start < end:
            yield group, max(shard.start, begin) - begin, min(shard.stop, end) - begin
        begin = end


def _entry(ref: DatasetRef, row: dict[str, Any]) -> Item | ItemFailure:
    if row["error_kind"] is not None:
        return ItemFailure(
            item_id=row["id"], index=row["index"], kind=row["error_kind"], message=row["error"]
        )
    try:
        content = row["content"] if ref.modality == "text" else _picture(ref, row)
    except ItemError as error:
        return ItemFailure(
            item_id=row["id"], index=row["index"], kind=error.kind, message=str(error)
        )
    return Item(
        id=row["id"],
        index=row["index"],
        content=content,
        label=row["label"],
        meta=json.loads(row["meta"]),
        source=row["content"] if ref.modality == "image" else None,
    )


def _picture(ref: DatasetRef, row: dict[str, Any]) -> Any:
    name = row["content"]
    return load_image(inside(Path(ref.root), name), name=name, sha256=row["sha256"])
