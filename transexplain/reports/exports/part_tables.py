"""The rows of an export as columns, straight from the columns of a part."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from transexplain.reports.phrasing import encodable
from transexplain.store.attribution_columns import AttributionColumns
from transexplain.store.part_reading import Part
from transexplain.types.items import ItemOutcome, PatchGrid
from transexplain.types.tokens import Tokens

_LEDGER = "ledger_"


def table_of(
    part: Part, schema: pa.Schema, kept: Sequence[str], *, redacted: bool = False
) -> pa.Table:
    """Every attribution of a part with what is known of its item, in columns of `schema`.

    The same as `attribution_export.iter_rows` gives row by row; `kept` are the columns of metadata
    that it adds.
    """
    of = pa.array(part.explained.of)
    items = {**_items(part), **_positions(part)}
    own = {
        name: [None if redacted else _clean(one.meta.get(name)) for one in part.outcomes]
        for name in kept
        if name not in items and name in schema.names
    }
    items = {**own, **(_without_content(items, len(part)) if redacted else items)}
    columns: dict[str, pa.Array] = {
        name: pa.array(values, type=schema.field(name).type).take(of)
        for name, values in items.items()
    }
    columns |= _attributions(part, schema)
    return pa.table([columns[name] for name in schema.names], schema=schema)


def _items(part: Part) -> dict[str, Sequence[Any]]:
    outcomes = part.outcomes
    return {
        "id": [encodable(one.item_id) for one in outcomes],
        "idx": [one.index for one in outcomes],
        "prediction": [one.predicted for one in outcomes],
        "label": [_clean(one.label) for one in outcomes],
        "raw_label": [_clean(one.raw_label) for one in outcomes],
        "predictions": [one.logits for one in outcomes],
        "truncated": [one.truncated for one in outcomes],
        "meta": [json.dumps(dict(one.meta)) for one in outcomes],
    }


def _positions(part: Part) -> dict[str, Sequence[Any]]:
    pictures = [one for one in part.features if isinstance(one, PatchGrid)]
    if pictures:
        return _pictures(part.outcomes, part.features)
    tokens = [one for one in part.features if isinstance(one, Tokens)]
    return {
        "text": [_clean(text) for text in part.texts],
        "second_at": part.seconds,
        "tokens": [[encodable(piece) for piece in one.texts] for one in tokens],
        "offsets": [np.stack([one.starts, one.ends], axis=1).tolist() for one in tokens],
        "special": [one.special.tolist() for one in tokens],
    }


def _pictures(
    outcomes: Sequence[ItemOutcome], features: Sequence[Tokens | PatchGrid]
) -> dict[str, Sequence[Any]]:
    grids = [one if isinstance(one, PatchGrid) else None for one in features]
    names = ("rows", "cols", "height", "width", "box")
    return {
        "source": [_clean(one.source) for one in outcomes],
        **{name: [getattr(grid, name, None) for grid in grids] for name in names},
    }


def _without_content(items: Mapping[str, Sequence[Any]], count: int) -> dict[str, Sequence[Any]]:
    """The columns without content; without offsets, too, which reveal the lengths of words."""
    nothing = [None] * count
    found = dict(items)
    names = ("text", "second_at", "offsets", "source")
    found |= {name: nothing for name in names if name in found}
    if "tokens" in found:
        found["tokens"] = [[str(n) for n in range(len(one))] for one in found["tokens"]]
    return {**found, "id": [str(row) for row in found["idx"]], "meta": ["{}"] * count}


def _attributions(part: Part, schema: pa.Schema) -> dict[str, pa.Array]:
    explained = part.explained
    found: dict[str, Any] = {
        "target": explained.words("target"),
        "rank": explained.ranks,
        "class": explained.words("class_name"),
        "logit": explained.logit,
        "unit": explained.words("unit"),
        "method": explained.words("method"),
        "at": explained.words("at"),
        "notes": [[encodable(note) for note in notes] for notes in explained.notes()],
    }
    if "special_attributions" in schema.names:
        found["special_attributions"] = explained.prefixes()
    columns = {
        name: pa.array(values, type=schema.field(name).type) for name, values in found.items()
    }
    missing = ~explained.ledgered
    for name, values in explained.ledger_entries().items():
        columns[f"{_LEDGER}{name}"] = pa.array(values, mask=missing)
    columns["attributions"] = _relevance(explained, part.features)
    return columns


def _relevance(explained: AttributionColumns, features: Sequence[Tokens | PatchGrid]) -> pa.Array:
    """A list for each text, a list of rows for each picture."""
    flat, offsets = explained.joined_relevance()
    values = pa.array(flat)
    grids = [features[item] for item in explained.of.tolist()]
    if not any(isinstance(one, PatchGrid) for one in grids):
        return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), values)
    sides = [(one.rows, one.cols) if isinstance(one, PatchGrid) else (0, 1) for one in grids]
    inner = np.cumsum([0, *(cols for rows, cols in sides for _ in range(rows))])
    outer = np.cumsum([0, *(rows for rows, _ in sides)])
    rows_of = pa.ListArray.from_arrays(pa.array(inner.astype(np.int32)), values)
    return pa.ListArray.from_arrays(pa.array(outer.astype(np.int32)), rows_of)


def _clean(text: str | None) -> str | None:
    return None if text is None else encodable(text)
