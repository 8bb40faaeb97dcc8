"""Small files of data in every format, and what is read of them."""

import csv
import gzip
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from transexplain.data.dataset_plan import plan_dataset
from transexplain.data.shard_reader import make_shards, read_shard
from transexplain.types.items import Item, ItemFailure
from transexplain.types.plans import DatasetRef, DatasetSpec, Shard


def write(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    """The rows, which have one set of columns, in the format of the suffix, packed as it says."""
    names, suffix = list(rows[0]), path.name.removesuffix(".gz").rpartition(".")[2]
    stream = io.BytesIO()
    if suffix == "parquet":
        pq.write_table(pa.Table.from_pylist(list(rows)), stream, row_group_size=150)
    elif suffix == "jsonl":
        lines = (json.dumps(row, ensure_ascii=False, default=str) + "\n" for row in rows)
        stream.write("".join(lines).encode())
    elif suffix == "xlsx":
        import openpyxl

        book = openpyxl.Workbook()
        for row in (names, *([row[name] for name in names] for row in rows)):
            book.active.append(row)
        book.save(stream)
    elif suffix == "tsv":
        cells = (names, *([str(row[name] or "") for name in names] for row in rows))
        stream.write("".join("\t".join(row) + "\n" for row in cells).encode())
    else:
        text = io.StringIO()
        writer = csv.DictWriter(text, names, lineterminator="\r\n")
        writer.writeheader()
        writer.writerows(rows)
        stream.write(text.getvalue().encode())
    path.parent.mkdir(parents=True, exist_ok=True)
    content = stream.getvalue()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def planned(source: Path | str, folder: Path, **options: Any) -> DatasetRef:
    """The dataset, its snapshots below `folder`."""
    return plan_dataset(DatasetSpec(source=str(source), **options), folder / "snapshots")


def read(ref: DatasetRef, start: int = 0, stop: int | None = None) -> list[Item | ItemFailure]:
    """Some rows of a dataset as one shard; all of them."""
    stop = ref.rows if stop is None else stop
    return list(read_shard(ref, Shard(index=0, start=start, stop=stop)))


def items_of(ref: DatasetRef, size: int = 100) -> list[Item | ItemFailure]:
    """All rows of a dataset, shard by shard."""
    return [item for shard in make_shards(ref.rows, size) for item in read_shard(ref, shard)]


def told(items: Iterable[Item | ItemFailure]) -> list[str]:
    """The text of each item, `ok` of what is no text, the kind of each failure in brackets."""
    texts = (item.text or "ok" if isinstance(item, Item) else f"[{item.kind}]" for item in items)
    return list(texts)


def labels(items: Iterable[Item | ItemFailure]) -> list[str | None]:
    """The label of each item, the kind of each failure in brackets."""
    return [item.label if isinstance(item, Item) else f"[{item.kind}]" for item in items]


def by_id(items: Iterable[Item | ItemFailure]) -> dict[str, Item | ItemFailure]:
    """The items and failures by their ids."""
    return {item.id if isinstance(item, Item) else item.item_id: item for item in items}
