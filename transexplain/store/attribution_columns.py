"""The attributions of the items of a part as columns of lists, one list an item.

What follows from other columns is kept as the number of steps beside it, mostly 0: a total beside
the sum of its entries, a logit beside that of the item.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from transexplain.store import part_columns as col
from transexplain.store.codec import EncodedMany, decode_all
from transexplain.store.part_columns import Floats, Ints
from transexplain.store.rows import LEDGER_ENTRIES, refuse_no_number
from transexplain.types.items import Attribution, Ledger, PatchGrid
from transexplain.types.tokens import Tokens

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
    """What `attribution_columns` gave, read back.

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
