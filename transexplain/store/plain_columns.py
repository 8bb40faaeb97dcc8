"""A part in plain Parquet columns that every program reads: a row for each attribution.

An item without attributions has one row, with nothing in the columns of attributions.
`plain_reading` makes the same part of them again, bit for bit.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import pyarrow as pa

from transexplain.store import part_columns as col
from transexplain.store.columns import escaped
from transexplain.store.part_fields import json_text
from transexplain.store.part_reading import Part
from transexplain.store.rows import LEDGER_ENTRIES
from transexplain.types.items import Mention, PatchGrid
from transexplain.types.scores import MetricScore
from transexplain.types.tokens import Tokens

VERSION = 1  #: of the columns; rises when one changes its meaning or goes


def _list_of(kind: pa.DataType) -> pa.DataType:
    """Lists as Parquet names them, so that what is read has the types of `SCHEMA`."""
    return pa.list_(pa.field("element", kind))


_TEXTS = _list_of(pa.string())
_NUMBERS = _list_of(pa.float64())
_KINDS = _list_of(pa.struct([("kind", pa.string()), ("value", pa.float64())]))
MENTION = pa.struct(
    [
        *((name, pa.string()) for name in ("target", "class", "group", "entity", "surface")),
        *((name, pa.int32()) for name in ("rank", "start", "end")),
        ("relevance", pa.float64()),
    ]
)
SCORE = pa.struct(
    [
        *((name, pa.string()) for name in ("method", "target", "metric", "reason")),
        ("value", pa.float64()),
        ("curve", _NUMBERS),
        ("detail", pa.string()),
    ]
)
#: the same in every row of an item
ITEM = (
    ("id", pa.string()),
    ("idx", pa.int64()),
    ("label", pa.string()),
    ("raw_label", pa.string()),
    ("prediction", pa.string()),
    ("predictions", _NUMBERS),
    ("truncated", pa.bool_()),
    ("positions", pa.int32()),
    ("text", pa.string()),
    ("second_at", pa.int32()),
    ("source", pa.string()),
    ("meta", pa.string()),
    ("tokens", _TEXTS),
    ("offsets", _list_of(_list_of(pa.int32()))),
    ("special", _list_of(pa.bool_())),
    ("words", _list_of(pa.int32())),
    *((name, pa.int32()) for name in ("rows", "cols", "height", "width", "prefix")),
    ("box", _NUMBERS),
)
#: NULL where an item has no attribution
ATTRIBUTION = (
    ("target", pa.string()),
    ("rank", pa.int32()),
    ("class", pa.string()),
    ("class_index", pa.int32()),
    ("logit", pa.float64()),
    ("attributions", _list_of(pa.float32())),
    ("special_attributions", _NUMBERS),
    ("method", pa.string()),
    ("unit", pa.string()),
    ("at", pa.string()),
    ("notes", _TEXTS),
    *((f"ledger_{name}", pa.float64()) for name in LEDGER_ENTRIES),
    ("ledger_biases_by_kind", _KINDS),
    ("ledger_rules_by_kind", _KINDS),
)
#: in the first row of an item, NULL in the others
ONCE = (("mentions", _list_of(MENTION)), ("metrics", _list_of(SCORE)))
SCHEMA = pa.schema([*ITEM, *ATTRIBUTION, *ONCE], metadata={"transexplain.columns": str(VERSION)})
GRID = ("rows", "cols", "height", "width", "prefix")


def parquet_of(parts: Iterable[Part]) -> bytes:
    """A Parquet file with a row group for each part; the same parts give the same bytes."""
    import pyarrow.parquet as pq  # takes 14 MB, as in `sink_files`

    sink = pa.BufferOutputStream()
    numbers = ["attributions.list.element"]
    with pq.ParquetWriter(
        sink, SCHEMA, compression="zstd", use_dictionary=_NAMES, use_byte_stream_split=numbers
    ) as writer:
        for part in parts:
            table = plain_table(part)
            writer.write_table(table, row_group_size=max(1, len(table)))
    return bytes(sink.getvalue().to_pybytes())


#: columns with few different values
_NAMES = [
    *("label", "raw_label", "prediction", "meta", "source", "target", "class", "method", "unit"),
    *("at", "notes.list.element", "tokens.list.element", *GRID, "box.list.element"),
    *(f"ledger_{name}_by_kind.list.element.kind" for name in ("biases", "rules")),
    *(f"mentions.list.element.{name}" for name in ("target", "class", "group", "entity")),
    *(
        f"metrics.list.element.{name}"
        for name in ("method", "target", "metric", "reason", "detail")
    ),
]


def plain_table(part: Part) -> pa.Table:
    """The rows of a part, in the order of its items and of their attributions."""
    counts = part.explained.counts
    of = np.repeat(np.arange(len(part)), np.maximum(counts, 1))
    missing = np.repeat(counts == 0, np.maximum(counts, 1))
    later = np.append(False, of[1:] == of[:-1])
    placed = {
        **_placed(ITEM, {**_items(part), **_positions(part)}, pa.array(of)),
        **_placed(
            ATTRIBUTION, _attributions(part), pa.array(np.cumsum(~missing) - 1, mask=missing)
        ),
        **_placed(ONCE, _once(part), pa.array(of, mask=later)),
    }
    return pa.table([placed[name] for name in SCHEMA.names], schema=SCHEMA)


def _placed(
    wanted: Sequence[tuple[str, pa.DataType]], columns: dict[str, Any], places: pa.Array
) -> dict[str, pa.Array]:
    """The columns with their types, a value for each of `places`."""
    found = {}
    for name, kind in wanted:
        given = columns[name]
        array = given.cast(kind) if isinstance(given, pa.Array) else pa.array(given, type=kind)
        found[name] = array.take(places)
    return found


def _clean(values: Iterable[str | None]) -> list[str | None]:
    return [None if one is None else escaped(one) for one in values]


def _items(part: Part) -> dict[str, Any]:
    outcomes = part.outcomes
    return {
        "id": _clean(part.ids),
        "idx": part.rows,
        "label": _clean(one.label for one in outcomes),
        "raw_label": _clean(one.raw_label for one in outcomes),
        "prediction": _clean(one.predicted for one in outcomes),
        "predictions": [one.logits for one in outcomes],
        "truncated": [one.truncated for one in outcomes],
        "positions": [one.positions for one in outcomes],
        "text": _clean(part.texts),
        "second_at": part.seconds,
        "source": _clean(one.source for one in outcomes),
        "meta": [json_text(one.meta) or "{}" for one in outcomes],
    }


def _positions(part: Part) -> dict[str, Any]:
    """Tokens of texts, no token and a grid of pictures."""
    tokens = [one if isinstance(one, Tokens) else Tokens.of(()) for one in part.features]
    grids = [one if isinstance(one, PatchGrid) else None for one in part.features]
    counts = [len(one) for one in tokens]
    spans = np.concatenate(
        [np.stack([one.starts, one.ends], axis=1).ravel() for one in tokens]
    ).astype(np.int32)
    pieces = _clean(piece for one in tokens for piece in one.texts)
    return {
        "tokens": col.lists(pa.array(pieces, type=pa.string()), counts),
        "offsets": col.lists(col.lists(pa.array(spans), np.full(len(spans) // 2, 2)), counts),
        "special": col.lists(pa.array(np.concatenate([one.special for one in tokens])), counts),
        "words": col.lists(pa.array(np.concatenate([one.words for one in tokens])), counts),
        **{name: [getattr(one, name, None) for one in grids] for name in GRID},
        "box": [None if one is None else one.box for one in grids],
    }


def _attributions(part: Part) -> dict[str, Any]:
    explained = part.explained
    flat, offsets = explained.joined_relevance()
    index, missing = explained.class_indices, ~explained.ledgered
    ledger = explained.ledger_entries()
    return {
        **{name: _clean(explained.words(name)) for name in ("target", "method", "unit", "at")},
        "class": _clean(explained.words("class_name")),
        "rank": explained.ranks,
        "class_index": pa.array(index, mask=index < 0),
        "logit": explained.logit,
        "attributions": col.lists(pa.array(flat), np.diff(offsets)),
        "special_attributions": explained.prefixes(),
        "notes": [_clean(one) for one in explained.notes()],
        **{f"ledger_{name}": pa.array(one, mask=missing) for name, one in ledger.items()},
        **{
            f"ledger_{name}_by_kind": _kinds(*explained.kinds(name)) for name in ("biases", "rules")
        },
    }


def _kinds(names: Sequence[Sequence[str]], numbers: Sequence[Sequence[float]]) -> pa.Array:
    kinds = pa.array(_clean(name for one in names for name in one), type=pa.string())
    values = pa.array([value for one in numbers for value in one], type=pa.float64())
    return col.lists(col.struct(kind=kinds, value=values), [len(one) for one in names])


def _once(part: Part) -> dict[str, Any]:
    return {
        "mentions": _listed(part.mentions(), len(part), _mention),
        "metrics": _listed(part.scores(), len(part), _score),
    }


def _listed(
    records: Iterator[tuple[int, Any]], items: int, work: Callable[[Any], dict[str, Any]]
) -> list[list[dict[str, Any]]]:
    found: list[list[dict[str, Any]]] = [[] for _ in range(items)]
    for item, one in records:
        found[item].append(work(one))
    return found


def _mention(one: Mention) -> dict[str, Any]:
    return _escaped_values({**asdict(one), "class": one.class_name})


def _score(one: MetricScore) -> dict[str, Any]:
    detail = json_text(one.detail)
    return _escaped_values({**asdict(one), "detail": detail, "curve": one.curve})


def _escaped_values(values: dict[str, Any]) -> dict[str, Any]:
    return {name: escaped(one) if isinstance(one, str) else one for name, one in values.items()}
