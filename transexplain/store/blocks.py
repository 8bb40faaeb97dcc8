"""Reads explained items in blocks of neighbouring rows: their columns, and records on use.

A damaged row is named with its shard, and with what mends it.
"""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property
from itertools import groupby
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Column, Row, select

from transexplain.errors import DamagedRowError
from transexplain.store import sink_files
from transexplain.store.columns import (
    Columns,
    Floats,
    Ints,
    Ragged,
    read_columns,
    selected,
    stored_columns,
    taken,
)
from transexplain.store.database import Database
from transexplain.store.runs import require
from transexplain.store.schema import LEDGER, OF_ITEMS, attribution, item, shard
from transexplain.types.items import Attribution, ItemOutcome, Ledger, Mention, PatchGrid
from transexplain.types.scores import MetricScore
from transexplain.types.tokens import Tokens
from transexplain.types.words import sizes_of

ITEMS = 1024  #: of a block, at most
_NAMED = 512  #: ids or rows in one statement
_TABLES = {table.name: table for table in OF_ITEMS}
_Value = TypeVar("_Value")
_Fetch = Callable[[str, Ints], Columns]  #: rows of a table that belong to items, in their order

_SPARING: ContextVar[bool] = ContextVar("sparing", default=False)
#: what reading a damaged row may raise; pyarrow's errors are among them
_DAMAGE = (ValueError, TypeError, LookupError, OverflowError, NotImplementedError, OSError)


class Block:
    """Items by ascending row. What belongs to them is fetched on use.

    A damaged row raises ValueError or its like.
    """

    def __init__(self, items: Columns, fetch: _Fetch) -> None:
        self.items = items  #: columns of the table `item`
        self.rows: Ints = np.array(items["idx"], dtype=np.int64)  #: (N,) rows of the dataset
        self.ids: list[str] = items["item_id"]  #: (N,)
        self.texts: list[str | None] = items["text"]  #: (N,) as they are stored
        #: (N,) where the second texts of pairs begin in them
        self.seconds: list[int | None] = items["second_at"]
        self.logits: Ragged = items["logits"]  #: (N,) of every class
        self.predicted: list[str] = items["predicted"]  #: (N,) the class that each is given
        self.labels: list[str | None] = items["label"]  #: (N,) None: none
        self._fetch = fetch
        self._held: dict[str, tuple[Columns, Ints]] = {}

    def __len__(self) -> int:
        return len(self.rows)

    def table(self, name: str) -> tuple[Columns, Ints]:
        """The rows (M,) of another table in the order of the items, and the place of each item."""
        if name not in self._held:
            columns = self._fetch(name, self.rows)
            idx = np.array(columns["idx"], dtype=np.int64)
            of = np.searchsorted(self.rows, idx)
            if len(idx) and (of[-1] == len(self) or (self.rows[of] != idx).any()):
                raise ValueError(f"a row of {name} belongs to no item")
            self._held[name] = columns, of
        return self._held[name]

    def only(self, places: Ints) -> "Block":
        """The items at these ascending places alone."""
        few = Block(taken(self.items, places), self._fetch)
        place = np.full(len(self), -1)
        place[places] = np.arange(len(places))
        for name, (columns, of) in self._held.items():
            kept = np.flatnonzero(place[of] >= 0)
            few._held[name] = taken(columns, kept), place[of[kept]]
        return few

    def places_of(self, item_ids: Collection[str]) -> Ints:
        """Where those of these items stand that it has."""
        known = [place for place, item_id in enumerate(self.ids) if item_id in item_ids]
        return np.array(known, dtype=np.int64)

    @cached_property
    def outcomes(self) -> list[ItemOutcome]:
        """(N,) what the model says of them."""
        names = ("item_id", "label", "raw_label", "predicted", "text", "second_at", "source")
        columns = {
            **{name: self.items[name] for name in names},
            "index": self.rows.tolist(),
            "logits": self.logits.tuples(),
            "truncated": self.items["truncated"],
            "positions": self.items["length"],
            "meta": self._meta(),
        }
        return [
            ItemOutcome(**dict(zip(columns, values, strict=True)))
            for values in zip(*columns.values(), strict=True)
        ]

    def _meta(self) -> list[dict[str, str]]:
        return [{} if text is None else json.loads(text) for text in self.items["meta"]]

    def answers(self) -> Iterator[tuple[str, tuple[float, ...], dict[str, str]]]:
        """(predicted class, logits (C,), metadata) of each."""
        return zip(self.predicted, self.logits.tuples(), self._meta(), strict=True)

    def named(self, column: str, name: str) -> NDArray[np.bool_]:
        """(N,) whether `label`, `predicted` or `raw_label` is exactly this."""
        return np.array([value == name for value in self.items[column]], dtype=bool)

    def mentioning(self, group: str | None, entity: str | None) -> NDArray[np.bool_]:
        """(N,) whether each mentions this entity, this group, or this entity of this group."""
        columns, of = self.table("mention")
        names = zip(columns["group_name"], columns["entity"], strict=True)
        hits = [group in (None, a) and entity in (None, b) for a, b in names]
        mentioning = np.zeros(len(self), dtype=bool)
        mentioning[of[np.array(hits, dtype=bool)]] = True
        return mentioning

    @cached_property
    def explained(self) -> "AttributionColumns":
        """The columns of the attributions."""
        return AttributionColumns(*self.table("attribution"))

    @cached_property
    def features(self) -> list[Tokens | PatchGrid]:
        """(N,) positions, as the first attribution of each has them; no tokens without any."""
        columns, of = self.table("attribution")
        items, first = np.unique(of, return_index=True)
        features: list[Tokens | PatchGrid] = [_NO_TOKENS] * len(self)
        texts = [self.texts[place] for place in items.tolist()]
        for place, known in zip(
            items.tolist(), positions_of(taken(columns, first), texts), strict=True
        ):
            features[place] = known
        return features

    def attributions(self, target: str | None = None) -> Iterator[tuple[int, Attribution]]:
        """(place of its item, attribution): of all targets, or of one."""
        explained = self.explained
        places: Iterable[int] = range(len(explained))
        if target is not None:
            targets = explained.columns["target"]
            places = [place for place, name in enumerate(targets) if name == target]
        for place, values in explained.records(places):
            of = int(explained.of[place])
            features, relevance = self.features[of], values.pop("relevance")
            if isinstance(features, PatchGrid):
                relevance = relevance.reshape(features.rows, features.cols)
            elif len(relevance) != len(features):
                raise ValueError(f"{len(relevance)} values for {len(features)} positions")
            yield (
                of,
                Attribution(
                    item_id=self.ids[of],
                    relevance=relevance,
                    features=features,
                    text=self.texts[of],
                    second_at=self.seconds[of],
                    **values,
                ),
            )

    def classes(self, target: str) -> Iterator[tuple[int, tuple[str, str]]]:
        """(place of its item, (id, explained class)) of every attribution of a target."""
        columns, of = self.table("attribution")
        names = zip(of.tolist(), columns["target"], columns["class_name"], strict=True)
        return ((place, (self.ids[place], name)) for place, known, name in names if known == target)

    def sizes(self) -> Floats:
        """Of each attribution the size, as `types.words.size_of`."""
        of = self.explained.of.tolist()
        return sizes_of(
            [self.features[place] for place in of],
            self.explained.columns["relevance"].each(),
            [self.texts[place] for place in of],
        )

    def mentions(self) -> Iterator[tuple[int, Mention]]:
        """(place of its item, mention) of every mention."""
        columns, of = self.table("mention")
        names = ("target", "rank", "class_name", "group_name", "entity", "surface")
        values = [*(columns[name] for name in (*names, "start_at", "end_at"))]
        fields = ("target", "rank", "class_name", "group", "entity", "surface", "start", "end")
        numbers = columns["relevance"].tolist()
        for place, relevance, *row in zip(of.tolist(), numbers, *values, strict=True):
            named = dict(zip(fields, row, strict=True))
            yield place, Mention(item_id=self.ids[place], relevance=relevance, **named)

    def scores(self) -> Iterator[tuple[int, MetricScore]]:
        """(place of its item, score) of every score."""
        columns, of = self.table("score")
        names = ("method", "target", "metric", "reason")
        values = [columns[name] for name in (*names, "detail")]
        numbers, curves = columns["value"].tolist(), columns["curve"].tuples()
        for place, value, curve, *row, detail in zip(
            of.tolist(), numbers, curves, *values, strict=True
        ):
            yield (
                place,
                MetricScore(
                    item_id=self.ids[place],
                    **dict(zip(names, row, strict=True)),
                    value=None if np.isnan(value) else value,
                    curve=curve,
                    detail={} if detail is None else json.loads(detail),
                ),
            )


_NO_TOKENS = Tokens.of(())


def positions_of(columns: Columns, texts: Sequence[str | None]) -> list[Tokens | PatchGrid]:
    """The positions in rows of `attribution`, of items with these stored texts.

    Raises ValueError where they cannot be positions.
    """
    starts, lengths, words = (columns[name].each() for name in ("starts", "lengths", "words"))
    grids = [
        columns[name]
        for name in ("grid_rows", "grid_columns", "pixel_height", "pixel_width", "prefix")
    ]
    special, box = columns["special"].each(), columns["box"].tuples()
    features: list[Tokens | PatchGrid] = []
    for place, (text, pieces) in enumerate(zip(texts, columns["pieces"], strict=True)):
        grid = [column[place] for column in grids]
        if grid[0] is not None:
            features.append(_grid_of(grid, box[place]))
            continue
        begins = starts[place]
        if not len(begins) == len(lengths[place]) == len(words[place]):
            raise ValueError("starts, lengths and words are of other numbers of tokens")
        apart = np.zeros(len(begins), dtype=bool)
        apart[special[place]] = True
        odd = {} if pieces is None else json.loads(pieces)
        features.append(
            Tokens.with_text(
                text,
                {int(position): piece for position, piece in odd.items()},
                starts=begins,
                ends=begins + lengths[place],
                words=words[place],
                special=apart,
            )
        )
    return features


def _grid_of(numbers: Sequence[int], box: Sequence[float]) -> PatchGrid:
    rows, cols, height, width, prefix = numbers
    left, top, right, bottom = box
    if min(rows, cols) < 1 or min(height, width, prefix) < 0:
        raise ValueError(f"a grid of {rows} x {cols} patches and {prefix} positions before")
    return PatchGrid(
        rows=rows,
        cols=cols,
        height=height,
        width=width,
        prefix=prefix,
        box=(left, top, right, bottom),
    )


class AttributionColumns:
    """The attributions of a block, as columns of the table."""

    def __init__(self, columns: Columns, of: Ints) -> None:
        self.columns, self.of = columns, of  #: of: (M,) place of the item of each

    def __len__(self) -> int:
        return len(self.of)

    @property
    def ledgered(self) -> NDArray[np.bool_]:
        """(M,) which have a ledger."""
        totals: Floats = self.columns["ledger_total"]
        return ~np.isnan(totals)

    def ledger_entries(self) -> dict[str, Floats]:
        """Entry -> (M,) its numbers; 0 where there is no ledger."""
        return {name: np.nan_to_num(self.columns[f"ledger_{name}"]) for name in LEDGER}

    @cached_property
    def notes(self) -> list[tuple[str, ...]]:
        """(M,) what a reader has to know besides the numbers."""
        return [() if text is None else tuple(json.loads(text)) for text in self.columns["notes"]]

    def records(self, places: Iterable[int]) -> Iterator[tuple[int, dict[str, Any]]]:
        """Those at these places: fields of `Attribution`, relevance in one row."""
        names = ("method", "target", "rank", "class_index", "class_name", "unit", "at")
        columns = {name: self.columns[name] for name in names}
        columns["logit"] = self.columns["logit"].tolist()
        columns["relevance"] = self.columns["relevance"].each()
        columns["prefix_relevance"] = self.columns["prefix_relevance"].tuples()
        columns["notes"] = self.notes
        columns["ledger"] = self._ledgers()
        for place in places:
            yield place, {name: column[place] for name, column in columns.items()}

    def _ledgers(self) -> list[Ledger | None]:
        entries = {name: column.tolist() for name, column in self.ledger_entries().items()}
        entries |= {
            name: [
                {} if text is None else json.loads(text) for text in self.columns[f"ledger_{name}"]
            ]
            for name in ("biases_by_kind", "rules_by_kind")
        }
        return [
            Ledger(**dict(zip(entries, values, strict=True))) if there else None
            for there, *values in zip(self.ledgered.tolist(), *entries.values(), strict=True)
        ]


@contextmanager
def sparing() -> Iterator[None]:
    """Pass over shards with a damaged row in here, and only lose their items."""
    before = _SPARING.set(True)
    try:
        yield
    finally:
        _SPARING.reset(before)


def is_sparing() -> bool:
    """Whether this is inside `sparing`."""
    return _SPARING.get()


def read(
    db: Database,
    run_id: str,
    work: Callable[[Block], _Value],
    rows: range | Collection[int] | None = None,
    *,
    items: int | None = None,
) -> Iterator[_Value]:
    """What `work` gives of block after block, in the order of the data.

    `rows` of the dataset: a range, or some; `items` are in a block at most: a search that ends
    early needs few. No connection is held between two blocks. Raises ConfigurationError for an
    unknown run, and DamagedRowError.
    """
    fetch = _fetching(db, run_id)
    every = pages(db, run_id, rows, item.c, items)
    return (value for page in every for value in _worked(run_id, work, page, fetch))


def _worked(
    run_id: str, work: Callable[[Block], _Value], rows: Sequence[Row[Any]], fetch: _Fetch
) -> Iterator[_Value]:
    """What `work` gives of these rows of `item`; where one is damaged, of shard after shard."""
    values = []
    try:
        values.append(work(Block(read_columns(list(item.c), rows), fetch)))
    except _DAMAGE as error:
        shards = [list(some) for _, some in groupby(rows, key=lambda row: row.shard)]
        if len(shards) > 1:
            for some in shards:
                yield from _worked(run_id, work, some, fetch)
        elif not is_sparing():
            raise DamagedRowError(
                f"run {run_id}: a row of shard {rows[0].shard} (rows {rows[0].idx} to "
                f"{rows[-1].idx} of the data) cannot be read: {error}; "
                f"`transexplain resume {run_id}` computes that shard again"
            ) from None
    yield from values


def pages(
    db: Database,
    run_id: str,
    rows: range | Collection[int] | None,
    columns: Iterable[Column[Any]],
    items: int | None = None,
) -> Iterator[Sequence[Row[Any]]]:
    """Columns of `item`, `idx` among them, as `columns.selected`; see `read`."""
    items = items or ITEMS
    query = (
        select(*selected(columns, db.engine.dialect))
        .where(item.c.run_id == run_id)
        .order_by(item.c.idx)
    )
    if rows is not None and not isinstance(rows, range):
        for some in _few_together(sorted(rows), min(items, _NAMED)):
            yield from _found(db, query.where(item.c.idx.in_(some)))
        return
    after = -1 if rows is None else rows.start - 1
    if rows is not None:
        query = query.where(item.c.idx < rows.stop)
    while True:
        page = next(_found(db, query.where(item.c.idx > after).limit(items)), ())
        if page:
            yield page
        if len(page) < items:
            return
        after = page[-1].idx


def _few_together(values: Sequence[Any], most: int) -> Iterator[Sequence[Any]]:
    return (values[start : start + most] for start in range(0, len(values), most))


def _found(db: Database, query: Any) -> Iterator[Sequence[Row[Any]]]:
    """The rows of a query, if there are any."""
    with db.read() as connection:
        rows = connection.execute(query).all()
    if rows:
        yield rows


def _fetching(db: Database, run_id: str) -> _Fetch:
    with db.read() as connection:
        sink = require(connection, run_id).sink
    alone = sink is not None and sink["keep"] == "sink"

    def fetch(name: str, rows: Ints) -> Columns:
        if not len(rows):
            return read_columns(list(_TABLES[name].c), ())
        if name == attribution.name and alone:
            return sink_files.read_attributions(db, run_id, rows)
        return _of_rows(db, run_id, name, rows)

    return fetch


def _of_rows(db: Database, run_id: str, name: str, rows: Ints) -> Columns:
    """The rows of a table that belong to these items, in their order."""
    table = _TABLES[name]
    first, last = int(rows[0]), int(rows[-1])
    few = len(rows) <= _NAMED and last - first >= 2 * len(rows)
    inside = table.c.idx.in_(rows.tolist()) if few else table.c.idx.between(first, last)
    with db.read() as connection:
        columns = stored_columns(connection, table, run_id, inside)
    if len(rows) == last - first + 1 or few:
        return columns
    return taken(columns, np.flatnonzero(np.isin(columns["idx"], rows)))


def rows_of_ids(db: Database, run_id: str, item_ids: Iterable[str]) -> list[int]:
    """Rows of those of these items that were explained, ascending."""
    rows: list[int] = []
    for some in _few_together(list(dict.fromkeys(item_ids)), _NAMED):
        query = (
            select(item.c.idx)
            .where(item.c.run_id == run_id, item.c.item_id.in_(some))
            .order_by(item.c.item_id)  # by its index, not by that of all rows of the run
        )
        with db.read() as connection:
            rows += connection.execute(query).scalars()
    return sorted(rows)


def rows_of_shard(db: Database, run_id: str, index: int) -> range:
    """The rows of the dataset that a shard holds."""
    query = select(shard.c.start, shard.c.stop).where(
        shard.c.run_id == run_id, shard.c.index == index
    )
    with db.read() as connection:
        return range(*connection.execute(query).one())
