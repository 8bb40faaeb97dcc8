"""The mentions and the scores of the items of a part as columns of lists, one list an item."""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from transexplain.store import part_columns as col
from transexplain.store.part_columns import Ints
from transexplain.store.rows import refuse_no_number
from transexplain.types.items import Mention
from transexplain.types.scores import MetricScore

_WORDS = ("target", "class_name", "group", "entity")


def mention_columns(some: Sequence[Mention], of: Ints, texts: Sequence[str | None]) -> pa.Array:
    """N mentions in the order of the items, whose stored texts are `texts`.

    `of` (N,) is the place of the item of each. Raises ItemError where a number is NaN or infinite.
    """
    relevance = np.array([one.relevance for one in some], dtype=np.float64)
    refuse_no_number(
        relevance, lambda place: (some[place].item_id, f"mention {some[place].surface!r}")
    )
    start = np.array([int(one.start) for one in some], dtype=np.int64)
    end = np.array([int(one.end) for one in some], dtype=np.int64)
    surfaces = [
        None if one.surface == _written(texts[item], one.start, one.end) else one.surface
        for one, item in zip(some, of.tolist(), strict=True)
    ]
    columns = {
        **{name: col.names([getattr(one, name) for one in some]) for name in _WORDS},
        "rank": col.ints([int(one.rank) for one in some]),
        "surface": col.names(surfaces),
        "start": col.ints(start),
        "length": col.ints(end - start),
        "relevance": col.floats(relevance),
    }
    return col.lists(col.struct(**columns), np.bincount(of, minlength=len(texts)))


def _written(text: str | None, start: int, end: int) -> str | None:
    return None if text is None else text[start:end]


def mentions_of(
    column: pa.Array, ids: Sequence[str], texts: Sequence[str | None]
) -> Iterator[tuple[int, Mention]]:
    """(place of its item, mention) of every mention, in order."""
    flat, counts = column.values, col.counts_of(column)
    words = {name: col.text_list(flat.field(name)) for name in _WORDS}
    numbers = [col.wide_ints(flat.field(name)).tolist() for name in ("rank", "start", "length")]
    surfaces = col.text_list(flat.field("surface"))
    relevance = col.wide_floats(flat.field("relevance")).tolist()
    items = np.repeat(np.arange(len(counts)), counts).tolist()
    for place, (item, rank, start, length) in enumerate(zip(items, *numbers, strict=True)):
        surface = surfaces[place]
        yield (
            item,
            Mention(
                item_id=ids[item],
                **{name: column[place] for name, column in words.items()},
                rank=rank,
                surface=_written(texts[item], start, start + length) or ""
                if surface is None
                else surface,
                start=start,
                end=start + length,
                relevance=relevance[place],
            ),
        )


def score_columns(some: Sequence[MetricScore], of: Ints, items: int) -> pa.Array:
    """N scores in the order of the part's items; as `mention_columns`."""
    values = np.array([0.0 if one.value is None else one.value for one in some], dtype=np.float64)
    lengths = np.array([len(one.curve) for one in some], dtype=np.int64)
    curves = np.array([value for one in some for value in one.curve], dtype=np.float64)
    refuse_no_number(values, lambda place: _named(some[place]))
    of_each = np.repeat(np.arange(len(some)), lengths)
    refuse_no_number(curves, lambda place: _named(some[int(of_each[place])]))
    columns = {
        **{name: col.names([getattr(one, name) for one in some]) for name in _OF_SCORE},
        "measured": pa.array(np.array([one.value is not None for one in some], dtype=bool)),
        "value": col.floats(values),
        "curve": col.lists(col.floats(curves), lengths),
        "detail": col.names([json_text(one.detail) for one in some]),
    }
    return col.lists(col.struct(**columns), np.bincount(of, minlength=items))


_OF_SCORE = ("method", "target", "metric", "reason")


def _named(one: MetricScore) -> tuple[str, str]:
    return one.item_id, f"metric {one.metric!r} of {one.method!r}"


def scores_of(column: pa.Array, ids: Sequence[str]) -> Iterator[tuple[int, MetricScore]]:
    """(place of its item, score) of every score, in order."""
    flat, counts = column.values, col.counts_of(column)
    words = {name: col.text_list(flat.field(name)) for name in _OF_SCORE}
    measured = flat.field("measured").to_pylist()
    values = col.wide_floats(flat.field("value")).tolist()
    curves = flat.field("curve")
    numbers = col.wide_floats(curves.values).tolist()
    bounds = list(pairwise(np.asarray(curves.offsets).tolist()))
    details = [read_text(text) for text in col.text_list(flat.field("detail"))]
    for place, item in enumerate(np.repeat(np.arange(len(counts)), counts).tolist()):
        low, high = bounds[place]
        yield (
            item,
            MetricScore(
                item_id=ids[item],
                **{name: column[place] for name, column in words.items()},
                value=values[place] if measured[place] else None,
                curve=tuple(numbers[low:high]),
                detail=details[place],
            ),
        )


def json_text(document: Mapping[str, Any]) -> str | None:
    """A document as text; None: there is nothing in it."""
    if not document:
        return None
    return json.dumps(dict(document), separators=(",", ":"), allow_nan=False)


def read_text(text: str | None) -> dict[str, Any]:
    """The document that `json_text` was given."""
    return {} if text is None else json.loads(text)
