"""What a model says of the items of a part as columns, one row an item."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from operator import attrgetter
from typing import Any

import numpy as np
import pyarrow as pa

from transexplain.store import part_columns as col
from transexplain.store.mention_columns import json_text, read_text
from transexplain.store.rows import refuse_no_number
from transexplain.types.items import ItemOutcome

_TEXTS = ("text", "source")
_NAMES = ("label", "predicted", "raw_label")


def item_columns(outcomes: Sequence[ItemOutcome]) -> dict[str, pa.Array]:
    """N outcomes by ascending row; raises ItemError where a logit is NaN or infinite."""
    counts = np.array([len(one.logits) for one in outcomes], dtype=np.int64)
    logits = np.array([value for one in outcomes for value in one.logits], dtype=np.float64)
    of_each = np.repeat(np.arange(len(outcomes)), counts)
    refuse_no_number(logits, lambda place: (outcomes[int(of_each[place])].item_id, "logits"))
    rows = np.array([int(one.index) for one in outcomes], dtype=np.int64)
    return {
        "id": col.texts([one.item_id for one in outcomes]),
        "step": col.ints(np.diff(rows, prepend=0)),
        **{name: col.names([*map(attrgetter(name), outcomes)]) for name in _NAMES},
        "logits": col.lists(col.floats(logits), counts),
        "truncated": pa.array(np.array([bool(one.truncated) for one in outcomes])),
        "positions": col.ints([int(one.positions) for one in outcomes]),
        **{name: col.texts([*map(attrgetter(name), outcomes)]) for name in _TEXTS},
        "meta": col.names([json_text(one.meta) for one in outcomes]),
        **second_column([one.second_at for one in outcomes]),
    }


def second_column(places: Sequence[int | None]) -> dict[str, pa.Array]:
    """Where second texts begin; no column where there is no pair."""
    missing = np.array([one is None for one in places], dtype=bool)
    if missing.all():
        return {}
    return {"second_at": col.ints([one or 0 for one in places], missing)}


def seconds_of(columns: Mapping[str, pa.Array]) -> list[int | None]:
    """The places that `second_column` was given."""
    given = columns.get("second_at")
    return [None] * len(columns["id"]) if given is None else given.to_pylist()


def rows_of(columns: Mapping[str, pa.Array]) -> col.Ints:
    """(N,) the rows of the dataset."""
    return np.cumsum(col.wide_ints(columns["step"]))


def outcomes_of(columns: Mapping[str, pa.Array], rows: col.Ints) -> list[ItemOutcome]:
    """The outcomes that `item_columns` was given; `rows` are what `rows_of` gives."""
    names = [*_TEXTS, *_NAMES]
    found: dict[str, list[Any]] = {name: col.text_list(columns[name]) for name in names}
    found["item_id"] = col.text_list(columns["id"])
    found["index"] = rows.tolist()
    found["logits"] = logits_of(columns["logits"])
    found["truncated"] = columns["truncated"].to_pylist()
    found["positions"] = col.wide_ints(columns["positions"]).tolist()
    found["meta"] = [read_text(text) for text in col.text_list(columns["meta"])]
    found["second_at"] = seconds_of(columns)
    keys = list(found)
    return [
        ItemOutcome(**dict(zip(keys, row, strict=True)))
        for row in zip(*found.values(), strict=True)
    ]


def logits_of(column: pa.Array) -> list[tuple[float, ...]]:
    """(C,) of every item."""
    values = col.wide_floats(column.values).tolist()
    return [tuple(values[a:b]) for a, b in pairwise(np.asarray(column.offsets).tolist())]
