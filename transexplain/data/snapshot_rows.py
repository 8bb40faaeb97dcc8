"""Finding two items of the same id in eight bytes an id."""

import hashlib
import json
from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from transexplain.data.item_clusters import Clustering, Clusters
from transexplain.data.source_records import Record
from transexplain.errors import DataSourceError


class DuplicateIds:
    """Eight bytes per id: equal digests are suspects, looked up again in the snapshot."""

    def __init__(self) -> None:
        self._digests = array("Q")

    def add(self, ids: Iterable[str]) -> None:
        """Remember the ids of some rows, in order."""
        self._digests.extend(map(_digest, ids))

    def check(self, snapshot: Path) -> None:
        """Raise DataSourceError naming the first id that `snapshot` holds a second time."""
        ordered = np.sort(np.frombuffer(self._digests, dtype=np.uint64))
        suspects = set(ordered[1:][ordered[1:] == ordered[:-1]].tolist())
        if not suspects:
            return
        seen: dict[str, int] = {}
        with pq.ParquetFile(snapshot) as file:
            for batch in file.iter_batches(columns=["id", "index"]):
                ids, rows = (column.to_pylist() for column in batch.columns)
                for name, row in zip(ids, rows, strict=True):
                    if name in seen:
                        raise DataSourceError(
                            f"the id {name!r} stands in row {seen[name]} and again in row {row} "
                            "(counted from 0); ids must differ, or leave `id` away to number "
                            "the rows"
                        )
                    if _digest(name) in suspects:
                        seen[name] = row


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
#: of a source with the rationales that people marked
_EVIDENCE = pa.field("evidence", pa.string())
#: of a source that names the entities in its items
_ANNOTATIONS = pa.field("annotations", pa.string())
#: of a source whose rows name the template that they were made from
_TEMPLATE = pa.field("template", pa.string())
#: of rows that belong together: the number of the first of them
_CLUSTER = pa.field("cluster", pa.string())
#: what was found in the texts, as JSON beside the columns
FOUND = b"near_duplicates"
#: of attributions made elsewhere
_ATTRIBUTIONS = pa.field("attributions", pa.string())


def write_rows(
    records: Iterable[Record],
    path: Path,
    ids: DuplicateIds | None,
    clusters: Clusters | None = None,
    *,
    marked: bool = False,
    annotated: bool = False,
    attributed: bool = False,
    templates: bool = False,
) -> int:
    """Write the records to `path`, tell `ids` and `clusters` of them, return how many there were.

    Their evidence is written where the source is `marked`, their annotations where `annotated`,
    their attributions where `attributed`, their templates where `templates`.

    The same records always give the same bytes (with one version of pyarrow). Raises OSError
    where they cannot be written.
    """
    rows = 0
    schema = SCHEMA.append(_EVIDENCE) if marked else SCHEMA
    schema = schema.append(_ANNOTATIONS) if annotated else schema
    schema = schema.append(_ATTRIBUTIONS) if attributed else schema
    schema = schema.append(_TEMPLATE) if templates else schema
    # Statistics serve searches by value, which nobody makes, and would repeat long texts.
    with pq.ParquetWriter(path, schema, compression="zstd", write_statistics=False) as writer:
        for group in _groups(records):
            if ids is not None:
                ids.add(record.id for record in group)
            if clusters is not None:
                clusters.add(group)
            columns = {name: [getattr(record, name) for record in group] for name in schema.names}
            writer.write_table(pa.table(columns, schema=schema), row_group_size=len(group))
            rows += len(group)
    return rows


def write_clusters(before: Path, after: Path, found: Clustering) -> None:
    """Write the snapshot at `before` to `after` with the cluster of every row.

    As `write_rows`: the same bytes for the same input; raises OSError.
    """
    names = [None if first is None else str(first) for first in found.first]
    with pq.ParquetFile(before, pre_buffer=False) as file:
        schema = file.schema_arrow.append(_CLUSTER)
        schema = schema.with_metadata({FOUND: json.dumps(found.facts).encode()})
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
        characters += len(record.content or "") + len(record.meta)
        characters += len(record.evidence or "") + len(record.annotations or "")
        characters += len(record.attributions or "")
        if len(group) == GROUP_ROWS or characters >= GROUP_CHARACTERS:
            yield group
            group, characters = [], 0
    if group:
        yield group
