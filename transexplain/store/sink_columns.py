"""The rows of items as one Parquet schema, under the names that they have in SQL.

A row is an attribution with its item; an item without attributions has one row, with nothing in
the columns of attributions. Mentions and scores stand in the first row of their item.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from sqlalchemy import BigInteger, Boolean, Column, Double, Integer, Table

from transexplain.store.array_columns import Columns, Ints, Numbers, Ragged, taken
from transexplain.store.columns import AnyText, escaped, unescaped
from transexplain.store.schema import attribution, item, mention, score

VERSION = 1  #: of the columns; rises when one changes its meaning or goes
GROUP_ITEMS = 1024  #: of a row group
_KEY = ("run_id", "shard", "idx", "ordinal")
_NUMBERS = {"float4": pa.float32(), "float8": pa.float64(), "int4": pa.int32()}


def _type(column: Column[Any]) -> pa.DataType:
    kind = column.type
    if isinstance(kind, Numbers):  # lists as Parquet names them, so that what is read has this type
        return pa.list_(pa.field("element", _NUMBERS[kind.kind]))
    if isinstance(kind, Double):
        return pa.float64()
    if isinstance(kind, Boolean):
        return pa.bool_()
    if isinstance(kind, Integer):
        return pa.int64() if isinstance(kind, BigInteger) else pa.int32()
    return pa.string()


def _own(table: Table) -> list[Column[Any]]:
    return [column for column in table.c if column.name not in _KEY]


def _nested(table: Table) -> pa.DataType:
    fields = [(column.name, _type(column)) for column in _own(table)]
    return pa.list_(pa.field("element", pa.struct(fields)))


_OF_ITEM = [item.c.idx, *_own(item)]
_OF_ATTRIBUTION = [attribution.c.ordinal, *_own(attribution)]
SCHEMA = pa.schema(
    [
        *((column.name, _type(column)) for column in (*_OF_ITEM, *_OF_ATTRIBUTION)),
        ("mentions", _nested(mention)),
        ("scores", _nested(score)),
    ],
    metadata={"transexplain.columns": str(VERSION)},
)


def parquet_of(rows: Mapping[str, Columns]) -> bytes:
    """A Parquet file of a shard's `shard_rows`; the same rows give the same bytes."""
    import pyarrow.parquet as pq  # takes 14 MB, as in `sink_files`

    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink,
        SCHEMA,
        compression="zstd",
        use_dictionary=_FEW_VALUES,
        use_byte_stream_split=["relevance.list.element"],
    ) as writer:
        idx = np.array(rows["item"]["idx"], dtype=np.int64)
        for start in range(0, len(idx), GROUP_ITEMS):
            table = _table(rows, idx[start : start + GROUP_ITEMS])
            writer.write_table(table, row_group_size=len(table))
    return bytes(sink.getvalue().to_pybytes())


_FEW_VALUES = [
    *("label", "raw_label", "predicted", "meta", "source", "method", "target", "class_name"),
    *("unit", "at", "pieces", "notes", "grid_rows", "grid_columns", "pixel_height"),
    *("pixel_width", "prefix", "box.list.element"),
    *(f"mentions.list.element.{name}" for name in ("target", "class_name", "group_name", "entity")),
    *(f"scores.list.element.{name}" for name in ("method", "target", "metric", "reason")),
]


def _table(rows: Mapping[str, Columns], idx: Ints) -> pa.Table:
    """The rows of the items in these neighbouring rows of the dataset."""
    some = {name: _between(rows[name], idx) for name in ("item", "attribution", "mention", "score")}
    of = np.searchsorted(idx, some["attribution"]["idx"])
    counts = np.bincount(of, minlength=len(idx))
    items = np.repeat(np.arange(len(idx)), np.maximum(counts, 1))
    without = np.repeat(counts == 0, np.maximum(counts, 1))
    later = np.append(False, items[1:] == items[:-1])
    each = pa.array(np.cumsum(~without) - 1, mask=without)
    columns = {
        **{c.name: _arrow(c, some["item"][c.name]).take(pa.array(items)) for c in _OF_ITEM},
        **{c.name: _arrow(c, some["attribution"][c.name]).take(each) for c in _OF_ATTRIBUTION},
    }
    for name, table in (("mentions", mention), ("scores", score)):
        lists = _lists(table, some[table.name], idx)
        columns[name] = lists.take(pa.array(items, mask=later))
    return pa.table([columns[name] for name in SCHEMA.names], schema=SCHEMA)


def _between(columns: Columns, idx: Ints) -> Columns:
    low, high = np.searchsorted(columns["idx"], [idx[0], idx[-1] + 1]).tolist()
    return taken(columns, np.arange(low, high))


def _lists(table: Table, columns: Columns, idx: Ints) -> pa.Array:
    """For each item the rows of a table that belong to it."""
    of = np.searchsorted(idx, columns["idx"])
    offsets = np.searchsorted(of, np.arange(len(idx) + 1)).astype(np.int32)
    fields = [_arrow(column, columns[column.name]) for column in _own(table)]
    records = pa.StructArray.from_arrays(fields, names=[column.name for column in _own(table)])
    return pa.ListArray.from_arrays(pa.array(offsets), records).cast(_nested(table))


def _arrow(column: Column[Any], values: Any) -> pa.Array:
    kind = _type(column)
    if isinstance(values, Ragged):
        offsets = np.append(0, np.cumsum(values.counts)).astype(np.int32)
        return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values.values)).cast(kind)
    if isinstance(values, np.ndarray):
        return pa.array(values, mask=np.isnan(values), type=kind)
    if isinstance(column.type, AnyText):
        values = [None if text is None else escaped(text) for text in values]
    return pa.array(values, type=kind)


def attributions_of(table: pa.Table) -> Columns:
    """The columns of the table `attribution` in rows of this schema, as they were written.

    Raises ValueError and its like where they are none.
    """
    kept = table.filter(table.column("ordinal").is_valid()).combine_chunks()
    columns = [item.c.idx, *_OF_ATTRIBUTION]
    return {column.name: _read(column, _whole(kept, column)) for column in columns}


def _whole(table: pa.Table, column: Column[Any]) -> pa.Array:
    """A column in one piece."""
    pieces: Sequence[pa.Array] = table.column(column.name).chunks
    kind = _type(column)
    return pa.concat_arrays(pieces).cast(kind) if pieces else pa.array([], type=kind)


def _read(column: Column[Any], values: pa.Array) -> Any:
    if isinstance(column.type, Numbers):
        counts = values.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
        numbers = values.flatten().to_numpy(zero_copy_only=False)
        return Ragged(numbers, counts.astype(np.int64))
    if isinstance(column.type, Double):
        return values.to_numpy(zero_copy_only=False)
    plain = values.to_pylist()
    if isinstance(column.type, AnyText):
        return [None if text is None else unescaped(text) for text in plain]
    return plain
