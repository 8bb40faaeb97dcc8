"""The positions of the items of a part as columns: tokens of texts, grids of pictures."""

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from transexplain.store import part_columns as col
from transexplain.store.codec import Features, grid_of
from transexplain.store.part_columns import Ints
from transexplain.types.items import PatchGrid
from transexplain.types.tokens import Tokens, spellings_beside

_NO_TOKENS = Tokens.of(())


def position_columns(
    features: Sequence[Features | None], stored: Sequence[str | None]
) -> dict[str, pa.Array]:
    """The positions of N items with their stored texts; None: an item has none."""
    grids = [one if isinstance(one, PatchGrid) else None for one in features]
    tokens = [
        _NO_TOKENS if one is None or isinstance(one, PatchGrid) else Tokens.of(one)
        for one in features
    ]
    return {
        "grid": col.names([None if one is None else _grid_text(one) for one in grids]),
        **_token_columns(tokens, stored),
    }


def positions_of(
    columns: Mapping[str, pa.Array], stored: Sequence[str | None]
) -> list[Tokens | PatchGrid]:
    """The positions of N items; `stored` are their texts."""
    grids: dict[str, PatchGrid] = {}
    found: list[Tokens | PatchGrid] = list(_tokens(columns, stored))
    for place, text in enumerate(col.text_list(columns["grid"])):
        if text is not None:
            if text not in grids:
                grids[text] = grid_of(json.loads(text))
            found[place] = grids[text]
    return found


def _grid_text(one: PatchGrid) -> str:
    numbers = [one.rows, one.cols, one.height, one.width, one.prefix]
    return json.dumps([*map(int, numbers), *map(float, one.box)], separators=(",", ":"))


def _token_columns(features: Sequence[Tokens], stored: Sequence[str | None]) -> dict[str, pa.Array]:
    """Offsets and words as differences; spellings where the text has others."""
    counts = np.array([len(one) for one in features], dtype=np.int64)
    starts, ends, words = (
        _joined([getattr(one, name) for one in features]) for name in ("starts", "ends", "words")
    )
    special = _joined([one.special for one in features]).astype(bool)
    firsts = _firsts(counts)
    odd = spellings_beside(features, stored)
    tokens = col.struct(
        gap=col.ints(starts - _before(ends, firsts, 0)),
        length=col.ints(ends - starts),
        word=col.ints(words - _before(words, firsts, -1)),
        special=pa.array(special != (words < 0)),
    )
    spelled = col.struct(
        at=col.ints([place for one in odd for place in one]),
        piece=col.names([piece for one in odd for piece in one.values()]),
    )
    return {
        "tokens": col.lists(tokens, counts),
        "spelled": col.lists(spelled, [len(one) for one in odd]),
    }


def _tokens(columns: Mapping[str, pa.Array], stored: Sequence[str | None]) -> list[Tokens]:
    lists = columns["tokens"]
    counts, flat = col.counts_of(lists), lists.values
    firsts = _firsts(counts)
    lengths = col.wide_ints(flat.field("length"))
    ends = _run_sums(col.wide_ints(flat.field("gap")) + lengths, firsts, counts)
    words = _run_sums(col.wide_ints(flat.field("word")), firsts, counts) - 1
    special = np.asarray(flat.field("special").to_numpy(zero_copy_only=False), dtype=bool)
    arrays = {
        "starts": (ends - lengths).astype(np.int32),
        "ends": ends.astype(np.int32),
        "words": words.astype(np.int32),
        "special": special != (words < 0),
    }
    bounds = pairwise(np.concatenate([[0], np.cumsum(counts)]).tolist())
    return [
        Tokens.with_text(text, odd, **{name: one[low:high] for name, one in arrays.items()})
        for (low, high), odd, text in zip(bounds, _odd(columns["spelled"]), stored, strict=True)
    ]


def _odd(spelled: pa.Array) -> list[dict[int, str]]:
    places = col.wide_ints(spelled.values.field("at")).tolist()
    pieces = col.text_list(spelled.values.field("piece"))
    return [
        dict(zip(places[low:high], pieces[low:high], strict=True))
        for low, high in pairwise(np.asarray(spelled.offsets).tolist())
    ]


def _joined(arrays: Sequence[NDArray[Any]]) -> Ints:
    return np.concatenate(arrays).astype(np.int64) if arrays else np.zeros(0, dtype=np.int64)


def _firsts(counts: Ints) -> Ints:
    """Where the first value stands of each list that has any."""
    begins = np.cumsum(counts) - counts
    return begins[counts > 0]


def _before(values: Ints, firsts: Ints, start: int) -> Ints:
    """The value before each, `start` before the first of a list."""
    found = np.roll(values, 1)
    found[firsts] = start
    return found


def _run_sums(values: Ints, firsts: Ints, counts: Ints) -> Ints:
    """Running sums that begin again with every list."""
    summed = np.cumsum(values)
    before = summed[firsts] - values[firsts]
    return summed - np.repeat(before, counts[counts > 0])
