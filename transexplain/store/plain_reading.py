"""Makes a part of its plain Parquet columns again, bit for bit; see `plain_columns`."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from transexplain.store import part_columns as col
from transexplain.store.columns import unescaped
from transexplain.store.part_columns import Ints
from transexplain.store.part_fields import (
    WORDS,
    Attributed,
    Features,
    attribution_columns,
    grid_of,
    mention_columns,
    position_columns,
    read_text,
    score_columns,
    second_column,
)
from transexplain.store.part_reading import Key, Part
from transexplain.store.plain_columns import GRID, SCHEMA
from transexplain.store.rows import LEDGER_ENTRIES
from transexplain.types.items import Mention
from transexplain.types.scores import MetricScore
from transexplain.types.tokens import Tokens

Columns = Mapping[str, pa.Array]


def part_of(key: Key, table: pa.Table) -> Part:
    """The part whose `plain_table` this is.

    Raises ValueError and its like where it is none.
    """
    rows = _columns(table.select(SCHEMA.names))
    index = rows["idx"].to_numpy(zero_copy_only=False)
    if not len(index):
        raise ValueError("it has no rows")
    begins = np.flatnonzero(np.append(True, index[1:] != index[:-1]))
    there = np.asarray(rows["target"].is_valid())
    items = {name: one.take(pa.array(begins)) for name, one in rows.items()}
    each = {name: one.filter(pa.array(there)) for name, one in rows.items()}
    of = np.repeat(np.arange(len(begins)), np.add.reduceat(there.astype(np.int64), begins))
    texts = _texts(items["text"])
    columns = _items(items, index[begins], texts)
    columns |= position_columns(_features(items), texts)
    columns["attributions"] = attribution_columns(
        _attributed(each, of), len(begins), columns["logits"]
    )
    columns |= _beside(items, texts)
    return Part.of_batch(key, pa.record_batch(columns))


def _columns(table: pa.Table) -> dict[str, pa.Array]:
    """The columns of a table, each in one piece."""
    whole = table.combine_chunks()
    return {
        name: pa.concat_arrays(whole.column(name).chunks).cast(SCHEMA.field(name).type)
        for name in SCHEMA.names
    }


def _texts(column: pa.Array) -> list[Any]:
    return [None if one is None else unescaped(one) for one in column.to_pylist()]


def _items(items: Columns, rows: Ints, texts: Sequence[str | None]) -> dict[str, pa.Array]:
    logits = _number_lists(items["predictions"])
    meta = [None if one == "{}" else one for one in items["meta"].to_pylist()]
    return {
        "id": col.texts(_texts(items["id"])),
        "step": col.ints(np.diff(rows, prepend=0)),
        "label": col.names(_texts(items["label"])),
        "predicted": col.names(_texts(items["prediction"])),
        "raw_label": col.names(_texts(items["raw_label"])),
        "logits": logits,
        "truncated": items["truncated"],
        "positions": col.ints(items["positions"].to_numpy(zero_copy_only=False)),
        "text": col.texts(texts),
        "source": col.texts(_texts(items["source"])),
        "meta": col.names(meta),
        **second_column(items["second_at"].to_pylist()),
    }


def _counts(column: pa.Array) -> Ints:
    """How many values each list has; 0 where there is none."""
    lengths = column.value_lengths().fill_null(0)
    return np.asarray(lengths.to_numpy(zero_copy_only=False), dtype=np.int64)


def _number_lists(column: pa.Array) -> pa.Array:
    """The lists of float64, an empty one in the place of NULL."""
    values = column.flatten().to_numpy(zero_copy_only=False)
    return col.lists(col.floats(values), _counts(column))


def _features(items: Columns) -> list[Features | None]:
    """Grid or tokens of each item; no tokens where it has neither."""
    arrays = _token_arrays(items)
    pieces = _texts(items["tokens"].flatten())
    bounds = np.concatenate([[0], np.cumsum(_counts(items["tokens"]))]).tolist()
    grids = [items[name].to_pylist() for name in GRID]
    found: list[Features | None] = []
    for place, (low, high) in enumerate(pairwise(bounds)):
        if grids[0][place] is not None:
            found.append(grid_of([*(one[place] for one in grids), *items["box"][place].as_py()]))
            continue
        starts, ends, words, special = (one[low:high] for one in arrays)
        found.append(
            Tokens(starts=starts, ends=ends, words=words, special=special, pieces=pieces[low:high])
        )
    return found


def _token_arrays(items: Columns) -> list[NDArray[Any]]:
    """Starts, ends, words and which are special, of the tokens of all items."""
    spans = items["offsets"].flatten()
    pairs = spans.flatten().to_numpy(zero_copy_only=False).reshape(-1, 2)
    if len(pairs) != len(spans):
        raise ValueError("an offset is no pair")
    others = [items[name].flatten().to_numpy(zero_copy_only=False) for name in ("words", "special")]
    found = [pairs[:, 0].astype(np.int32), pairs[:, 1].astype(np.int32), *others]
    if any(len(one) != len(items["tokens"].flatten()) for one in found):
        raise ValueError("tokens, offsets, words and special differ in their lengths")
    return found


def _attributed(each: Columns, of: Ints) -> Attributed:
    ledger = [each[f"ledger_{name}"].fill_null(0.0) for name in LEDGER_ENTRIES]
    index = each["class_index"].fill_null(-1)
    names = {name: "class" if name == "class_name" else name for name in WORDS}
    return Attributed(
        of=of,
        words={word: _texts(each[name]) for word, name in names.items()},
        rank=each["rank"].to_pylist(),
        class_index=index.to_numpy(zero_copy_only=False).astype(np.int64),
        logit=each["logit"].to_numpy(zero_copy_only=False),
        relevance=col.lists(each["attributions"].flatten(), _counts(each["attributions"])),
        scale=np.ones(len(of)),
        prefix=_number_lists(each["special_attributions"]),
        notes=[[unescaped(note) for note in one] for one in each["notes"].to_pylist()],
        ledgered=np.asarray(each["ledger_total"].is_valid()),
        ledger=np.stack([one.to_numpy(zero_copy_only=False) for one in ledger], axis=1),
        kinds={name: _kinds(each[f"ledger_{name}_by_kind"]) for name in ("biases", "rules")},
    )


def _kinds(column: pa.Array) -> tuple[list[list[str]], pa.Array]:
    counts, flat = _counts(column), column.flatten()
    names = _texts(flat.field("kind"))
    bounds = np.concatenate([[0], np.cumsum(counts)]).tolist()
    values = col.floats(flat.field("value").to_numpy(zero_copy_only=False))
    return [names[low:high] for low, high in pairwise(bounds)], col.lists(values, counts)


def _beside(items: Columns, texts: Sequence[str | None]) -> dict[str, pa.Array]:
    """Columns of mentions and scores, if there are any."""
    found = {}
    ids = _texts(items["id"])
    if mentions := list(_records(items["mentions"])):
        records = [_mention(ids[item], one) for item, one in mentions]
        found["mentions"] = mention_columns(records, _of(mentions), texts)
    if scores := list(_records(items["metrics"])):
        measured = [_score(ids[item], one) for item, one in scores]
        found["scores"] = score_columns(measured, _of(scores), len(ids))
    return found


def _records(column: pa.Array) -> Iterator[tuple[int, dict[str, Any]]]:
    for item, some in enumerate(column.to_pylist()):
        for one in some or ():
            yield (
                item,
                {
                    name: unescaped(value) if isinstance(value, str) else value
                    for name, value in one.items()
                },
            )


def _of(records: Sequence[tuple[int, Any]]) -> Ints:
    return np.array([item for item, _ in records], dtype=np.int64)


def _mention(item_id: str, values: dict[str, Any]) -> Mention:
    rest = {name: value for name, value in values.items() if name != "class"}
    return Mention(item_id=item_id, class_name=values["class"], **rest)


def _score(item_id: str, values: dict[str, Any]) -> MetricScore:
    detail = read_text(values["detail"])
    return MetricScore(
        item_id=item_id, **{**values, "curve": tuple(values["curve"]), "detail": detail}
    )
