"""Data sets in Parquet: bytes of a file, or a table of odd types that is written first.

Options stand in the first line as in `tables`. An input whose second line begins with `{` is a
table as JSON: column name -> `{"type": ..., "values": [...]}`.
"""

import json
from pathlib import Path
from typing import Any

import datasketch
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.sparse.csgraph

from fuzz.guard import promise
from fuzz.ways.tables import check_records, options_of, spec_of
from transexplain.data.shard_reader import (
    annotated_groups,
    has_rationales,
    labels_of,
    read_shard,
    value_counts,
)
from transexplain.data.snapshot import prepare
from transexplain.data.table_source import FileSource
from transexplain.types.items import ItemFailure
from transexplain.types.plans import DatasetSpec, Shard

#: the last two look for texts that are nearly the same, and open files of the system as they load
__all__ = ["datasketch", "scipy", "target"]

_TYPES = {
    "string": pa.string(),
    "large": pa.large_string(),
    "view": pa.string_view(),
    "binary": pa.binary(),
    "int": pa.int64(),
    "small": pa.int8(),
    "float": pa.float64(),
    "half": pa.float16(),
    "bool": pa.bool_(),
    "null": pa.null(),
    "time": pa.timestamp("ns", tz="UTC"),
    "date": pa.date32(),
    "duration": pa.duration("s"),
    "decimal": pa.decimal128(38, 10),
    "list": pa.list_(pa.string()),
    "struct": pa.struct({"a": pa.int64()}),
    "map": pa.map_(pa.string(), pa.int64()),
    "words": pa.dictionary(pa.int32(), pa.string()),
    "numbers": pa.dictionary(pa.int8(), pa.int64()),
}


def target(data: bytes) -> None:
    """What is read is the same in the snapshot, shard by shard."""
    head, _, body = data.partition(b"\n")
    options = options_of(head)
    path = Path(f"table.{'parquet.gz' if options.get('suffix') == 'parquet.gz' else 'parquet'}")
    if not (body.startswith(b"{") and _written(body, path)):
        path.write_bytes(body)
    spec = spec_of(str(path), options)
    records = list(FileSource(spec, str(path)).records())
    check_records(records)
    _check_snapshot(spec, len(records))


def _written(body: bytes, path: Path) -> bool:
    """Whether the JSON is a table that Arrow can hold, which is then at `path`."""
    try:
        columns = json.loads(body)
        arrays = {str(name): _array(one) for name, one in columns.items()}
        pq.write_table(pa.table(arrays), path)
    except Exception:  # noqa: BLE001 - the test's own making, not the reader under test
        return False
    return True


def _array(column: dict[str, Any]) -> Any:
    kind = _TYPES[column["type"]]
    values = column["values"]
    if pa.types.is_dictionary(kind):
        return pa.array(values, kind.value_type).dictionary_encode()
    return pa.array(values, kind)


def _check_snapshot(spec: DatasetSpec, rows: int) -> None:
    ref = prepare(spec, Path("snapshots"))
    promise(ref.rows == rows, f"{ref.rows} rows in the snapshot of {rows}")
    items = list(read_shard(ref, Shard(index=0, start=0, stop=rows)))
    promise([one.index for one in items] == list(range(rows)), "rows lost or out of order")
    labels = {one.label for one in items if not isinstance(one, ItemFailure) and one.label}
    promise(labels <= set(labels_of(ref)), "a label that the dataset does not list")
    has_rationales(ref)
    annotated_groups(ref)
    for column in spec.meta:
        value_counts(ref, column)
