"""Encodes relevance and positions of an item as bytes."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter
from typing import Any

import numpy as np
import pyarrow as pa
from msgspec import convert
from numpy.typing import NDArray

from transexplain.errors import ItemError
from transexplain.store import part_columns as col
from transexplain.store.part_columns import Floats, Ints
from transexplain.store.rows import LEDGER_ENTRIES, refuse_no_number
from transexplain.types.items import Attribution, ItemOutcome, Ledger, Mention, PatchGrid
from transexplain.types.plans import Payload
from transexplain.types.scores import MetricScore
from transexplain.types.tokens import Token, Tokens, spellings_beside

_LARGEST = float(np.finfo(np.float32).max)
_SMALLEST = np.nextafter(np.float32(0), np.float32(1))


@dataclass(frozen=True, kw_only=True, slots=True)
class EncodedMany:
    """The relevance of N attributions, one behind the other."""

    values: NDArray[np.float16] | NDArray[np.float32]
    scales: NDArray[np.float64]  #: (N,), each a float32; 0 where every value of one is 0


def encode_all(
    relevance: Sequence[NDArray[np.floating[Any]]], payload: Payload, item_ids: Sequence[str]
) -> EncodedMany:
    """N arrays of `relevance` (any shapes, signed), of items with these ids.

    Raises ItemError (`not-finite`) for NaN, infinity, or values beyond float32.
    """
    counts = np.array([one.size for one in relevance], dtype=np.int64)
    flat = [one.ravel() for one in relevance]
    values = np.concatenate(flat, dtype=np.float64) if flat else np.zeros(0)
    largest = _largest_of(values, counts)
    # in this form NaN, for which every comparison is false, is refused too
    unfit = np.flatnonzero(~(largest <= _LARGEST))
    if len(unfit):
        name = item_ids[int(unfit[0])]
        raise ItemError(
            "not-finite", f"item {name!r}: relevance is NaN, infinite or beyond float32"
        )
    if payload == "float32":
        return EncodedMany(values=values.astype("<f4"), scales=np.ones(len(counts)))
    scales = largest.astype(np.float32).astype(np.float64)
    scales[(scales == 0.0) & (largest > 0.0)] = float(_SMALLEST)
    of_each = np.repeat(np.where(scales == 0.0, 1.0, scales), counts)
    return EncodedMany(values=(values / of_each).astype("<f2"), scales=scales)


def decode_all(
    values: NDArray[np.floating[Any]], scales: NDArray[np.float64], counts: NDArray[np.int64]
) -> NDArray[np.float32]:
    """The relevance of all attributions one behind the other, from what `encode_all` gave.

    Args:
        values: those of `EncodedMany`, of its type.
        scales: (N,) those of `EncodedMany`.
        counts: (N,) how many values each attribution has.
    """
    wide = values.astype(np.float64)
    if values.dtype == np.float16:
        wide *= np.repeat(scales, counts)
    return wide.astype(np.float32)


def _largest_of(values: NDArray[np.float64], counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """(N,) the largest size among each run of `counts` values; 0 where there are none."""
    found = np.zeros(len(counts))
    some = counts > 0
    if some.any():
        begins = (np.cumsum(counts) - counts)[some]
        found[some] = np.maximum.reduceat(np.abs(values), begins)
    return found


Features = Sequence[Token] | PatchGrid


def count(features: Features) -> int:
    """How many values a relevance array over these positions has (prefix positions apart)."""
    return features.rows * features.cols if isinstance(features, PatchGrid) else len(features)


def grid_of(numbers: list[Any]) -> PatchGrid:
    """A grid from its rows, columns, height, width, prefix and box; ValueError: it can be none."""
    rows, cols, height, width, prefix = convert(numbers[:5], tuple[int, int, int, int, int])
    box = convert(numbers[5:], tuple[float, float, float, float])
    if min(rows, cols) < 1 or min(height, width, prefix) < 0:
        raise ValueError(f"a grid of {rows} x {cols} patches and {prefix} positions before")
    return PatchGrid(rows=rows, cols=cols, height=height, width=width, prefix=prefix, box=box)


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
    """N scores in the order of the part's items; as `part_fields`."""
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
    """The outcomes that `part_fields` was given; `rows` are what `rows_of` gives."""
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


WORDS = ("method", "target", "class_name", "unit", "at")
KINDS = (("biases", "biases_by_kind"), ("rules", "rules_by_kind"))


@dataclass(frozen=True, kw_only=True, slots=True)
class Attributed:
    """N attributions of a part, in the order of its items, as columns of their plain values."""

    of: Ints  #: (N,) place of the item of each
    words: Mapping[str, Sequence[str]]  #: `WORDS` -> (N,)
    rank: Sequence[int]
    class_index: Ints  #: (N,); -1: none
    logit: Floats
    relevance: pa.Array  #: (N,) lists
    scale: Floats  #: (N,) what relevance is multiplied by
    prefix: pa.Array  #: (N,) lists
    notes: Sequence[Sequence[str]]
    ledgered: NDArray[np.bool_]
    ledger: Floats  #: (N, 8) as of `ledger_table`
    kinds: Mapping[str, tuple[Sequence[Sequence[str]], pa.Array]]  #: `KINDS` -> names and lists

    @classmethod
    def of_records(
        cls, some: Sequence[Attribution], of: Ints, relevance: EncodedMany
    ) -> "Attributed":
        """Those of N records with their encoded relevance.

        Raises ItemError where a number is NaN or infinite.
        """
        logit, table = np.array([one.logit for one in some], dtype=np.float64), ledger_table(some)
        _refuse(some, logit)
        _refuse(some, table.ravel(), np.repeat(np.arange(len(some)), table.shape[1]))
        kinds: dict[str, list[Mapping[str, float]]] = {
            name: [{} if one.ledger is None else getattr(one.ledger, of_kind) for one in some]
            for name, of_kind in KINDS
        }
        index = [-1 if one.class_index is None else int(one.class_index) for one in some]
        return cls(
            of=of,
            words={name: list(map(attrgetter(name), some)) for name in WORDS},
            rank=[int(one.rank) for one in some],
            class_index=np.array(index, dtype=np.int64),
            logit=logit,
            relevance=col.lists(pa.array(relevance.values), [one.relevance.size for one in some]),
            scale=relevance.scales,
            prefix=_number_lists(some, [one.prefix_relevance for one in some]),
            notes=[one.notes for one in some],
            ledgered=np.array([one.ledger is not None for one in some], dtype=bool),
            ledger=table,
            kinds={
                name: (
                    [list(one) for one in each],
                    _number_lists(some, [[*one.values()] for one in each]),
                )
                for name, each in kinds.items()
            },
        )


def attribution_columns(some: Attributed, items: int, logits: pa.Array) -> pa.Array:
    """The attributions of a part with so many `items`; `logits` is the column of the items'."""
    columns = {
        **{name: col.names(some.words[name]) for name in WORDS},
        "rank": col.ints(some.rank),
        "class_index": col.ints(some.class_index),
        "logit": col.residual(some.logit, _expected(logits, some.of, some.class_index)),
        "relevance": some.relevance,
        "scale": col.floats(some.scale),
        "prefix": some.prefix,
        "notes": _name_lists(some.notes),
        **_ledger_columns(some),
    }
    return col.lists(col.struct(**columns), np.bincount(some.of, minlength=items))


def _name_lists(given: Sequence[Sequence[str]]) -> pa.Array:
    return col.lists(
        col.names([text for one in given for text in one]), [len(one) for one in given]
    )


def _expected(logits: pa.Array, of: Ints, index: Ints) -> Floats:
    return col.picked(col.wide_floats(logits.values), col.counts_of(logits), of, index)


def _refuse(some: Sequence[Attribution], values: NDArray[Any], each: Ints | None = None) -> None:
    """Refuse numbers of which number n belongs to attribution n, or `each[n]`."""

    def name(place: int) -> tuple[str, str]:
        one = some[place if each is None else int(each[place])]
        return one.item_id, f"target {one.target!r}"

    refuse_no_number(values, name)


def _number_lists(some: Sequence[Attribution], given: Sequence[Sequence[float]]) -> pa.Array:
    counts = np.array([len(one) for one in given], dtype=np.int64)
    values = np.array([value for one in given for value in one], dtype=np.float64)
    _refuse(some, values, np.repeat(np.arange(len(some)), counts))
    return col.lists(col.floats(values), counts)


def ledger_table(some: Sequence[Attribution]) -> Floats:
    """(N, 8) the entries of the ledgers in the order of `LEDGER_ENTRIES`; 0 where there is none."""
    nothing = (0.0,) * len(LEDGER_ENTRIES)
    rows = [nothing if one.ledger is None else _ENTRIES(one.ledger) for one in some]
    return np.array(rows, dtype=np.float64).reshape(len(some), len(LEDGER_ENTRIES))


_ENTRIES = attrgetter(*LEDGER_ENTRIES)


def _ledger_columns(some: Attributed) -> dict[str, pa.Array]:
    entries = dict(zip(LEDGER_ENTRIES, some.ledger.T, strict=True))
    found = {"ledger": pa.array(some.ledgered)}
    found |= {
        name: col.floats(entries[name]) for name in ("inputs", "special", "embeddings", "magnitude")
    }
    for name, _ in KINDS:
        kinds, values = some.kinds[name]
        found[f"{name}_kinds"] = _name_lists(kinds)
        found[f"{name}_by_kind"] = values
        found[name] = col.residual(entries[name], _sums(values))
    found["total"] = col.residual(entries["total"], _total(entries))
    found["gap"] = col.residual(entries["gap"], some.logit - entries["total"])
    return found


def _sums(by_kind: pa.Array) -> Floats:
    return col.sums_of(col.wide_floats(by_kind.values), col.counts_of(by_kind))


def _total(entries: Mapping[str, Floats]) -> Floats:
    first, *others = (entries[name] for name in LEDGER_ENTRIES[:5])
    total = first
    for one in others:
        total = total + one
    return total


class AttributionColumns:
    """What `part_fields` gave, read back.

    Raises ValueError and its like, as whoever reads a damaged payload has to expect.
    """

    def __init__(self, column: pa.Array, logits: pa.Array) -> None:
        self.counts = col.counts_of(column)  #: (items,) of each item
        self.of: Ints = np.repeat(np.arange(len(self.counts)), self.counts)  #: (N,) item of each
        flat = column.values
        self._flat = {field.name: flat.field(field.name) for field in flat.type}
        index = col.wide_ints(self._flat["class_index"])
        self._index = index
        self.logit = col.restored(self._flat["logit"], _expected(logits, self.of, index))

    def __len__(self) -> int:
        return len(self.of)

    def words(self, name: str) -> list[Any]:
        """(N,) a column of texts."""
        return col.text_list(self._flat[name])

    @property
    def ledgered(self) -> NDArray[np.bool_]:
        """(N,) which have a ledger."""
        return np.asarray(self._flat["ledger"].to_numpy(zero_copy_only=False), dtype=bool)

    def ledger_entries(self) -> dict[str, Floats]:
        """Entry -> (N,) its numbers; 0 where there is no ledger."""
        plain = ("inputs", "special", "embeddings", "magnitude")
        found = {name: col.wide_floats(self._flat[name]) for name in plain}
        for name, _ in KINDS:
            found[name] = col.restored(self._flat[name], _sums(self._flat[f"{name}_by_kind"]))
        found["total"] = col.restored(self._flat["total"], _total(found))
        found["gap"] = col.restored(self._flat["gap"], self.logit - found["total"])
        return found

    @property
    def class_indices(self) -> Ints:
        """(N,) index of the explained class; -1: none."""
        return self._index

    @property
    def ranks(self) -> list[int]:
        """(N,) place within the target."""
        found: list[int] = col.wide_ints(self._flat["rank"]).tolist()
        return found

    def joined_relevance(self) -> tuple[NDArray[np.float32], Ints]:
        """The relevance of all, one behind the other, and where each begins and the last ends."""
        column = self._flat["relevance"]
        values = np.asarray(column.values.to_numpy(zero_copy_only=False))
        scales = col.wide_floats(self._flat["scale"])
        flat = decode_all(values, scales, col.counts_of(column))
        return flat, np.asarray(column.offsets, dtype=np.int64)

    def relevance(self) -> list[NDArray[np.float32]]:
        """The flat relevance of each."""
        flat, offsets = self.joined_relevance()
        return [flat[low:high] for low, high in pairwise(offsets.tolist())]

    def records(
        self,
        ids: Sequence[str],
        texts: Sequence[tuple[str | None, int | None]],
        features: Sequence[Tokens | PatchGrid],
        places: Iterable[int] | None = None,
    ) -> Iterator[tuple[int, Attribution]]:
        """(place of its item, attribution): all of them, or those at `places` among the N.

        Of each item `texts` are its text, and where the second text of a pair begins in it.
        """
        words = {name: self.words(name) for name in WORDS}
        rank, index = self.ranks, self._index.tolist()
        logit, relevance, of = self.logit.tolist(), self.relevance(), self.of.tolist()
        prefix, notes, ledgers = self.prefixes(), self.notes(), self._ledgers()
        for place in range(len(of)) if places is None else places:
            item = of[place]
            positions, flat = features[item], relevance[place]
            if isinstance(positions, PatchGrid):
                flat = flat.reshape(positions.rows, positions.cols)
            elif len(flat) != len(positions):
                raise ValueError(f"{len(flat)} values for {len(positions)} positions")
            yield (
                item,
                Attribution(
                    item_id=ids[item],
                    **{name: column[place] for name, column in words.items()},
                    rank=rank[place],
                    class_index=None if index[place] < 0 else index[place],
                    logit=logit[place],
                    relevance=flat,
                    features=positions,
                    ledger=ledgers[place],
                    text=texts[item][0],
                    second_at=texts[item][1],
                    prefix_relevance=prefix[place],
                    notes=notes[place],
                ),
            )

    def prefixes(self) -> list[tuple[float, ...]]:
        """(N,) relevance of the special positions of pictures."""
        return _cut(self._flat["prefix"], col.wide_floats(self._flat["prefix"].values).tolist())

    def notes(self) -> list[tuple[str, ...]]:
        """(N,) what a reader has to know besides the numbers."""
        return _cut(self._flat["notes"], col.text_list(self._flat["notes"].values))

    def kinds(self, name: str) -> tuple[list[tuple[str, ...]], list[tuple[float, ...]]]:
        """(N,) kinds of `biases` or `rules`, and (N,) the numbers of these kinds."""
        of, values = self._flat[f"{name}_kinds"], self._flat[f"{name}_by_kind"].values
        numbers = col.wide_floats(values).tolist()
        return _cut(of, col.text_list(of.values)), _cut(of, numbers)

    def _ledgers(self) -> list[Ledger | None]:
        entries = {name: one.tolist() for name, one in self.ledger_entries().items()}
        kinds = {
            of_kind: [dict(zip(*one, strict=True)) for one in zip(*self.kinds(name), strict=True)]
            for name, of_kind in KINDS
        }
        return [
            Ledger(
                **{name: one[place] for name, one in entries.items()},
                biases_by_kind=kinds["biases_by_kind"][place],
                rules_by_kind=kinds["rules_by_kind"][place],
            )
            if there
            else None
            for place, there in enumerate(self.ledgered.tolist())
        ]


def _cut(column: pa.Array, values: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Python values of a column of lists, list by list."""
    return [tuple(values[a:b]) for a, b in pairwise(np.asarray(column.offsets).tolist())]
