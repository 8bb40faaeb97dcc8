"""Reads a part: the columns of an Arrow batch, and the records in them when somebody asks."""

from collections.abc import Collection, Iterable, Iterator
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from transexplain.store import part_columns as col
from transexplain.store.part_columns import Ints
from transexplain.store.part_fields import (
    AttributionColumns,
    logits_of,
    mentions_of,
    outcomes_of,
    positions_of,
    read_text,
    rows_of,
    scores_of,
    seconds_of,
)
from transexplain.types.items import Attribution, ItemOutcome, Mention, PatchGrid
from transexplain.types.scores import MetricScore
from transexplain.types.tokens import Tokens
from transexplain.types.words import sizes_of

Key = tuple[int, int]  #: shard, and part of it


class Part:
    """The items of one part, by ascending row. A damaged payload raises ValueError or its like."""

    def __init__(self, key: Key, payload: bytes) -> None:
        self.key = key
        with pa.ipc.open_stream(col.unsqueezed(payload)) as reader:
            batch = reader.read_next_batch()
        batch.validate(full=True)  # offsets that lead outside would end the process
        self._use(batch)

    @classmethod
    def of_batch(cls, key: Key, batch: pa.RecordBatch) -> "Part":
        """The part with these columns."""
        found = cls.__new__(cls)
        found.key = key
        found._use(batch)
        return found

    def _use(self, batch: pa.RecordBatch) -> None:
        self.batch = batch
        self._columns = dict(zip(batch.schema.names, batch.columns, strict=True))

    def only(self, places: Ints) -> "Part":
        """A part of the items at these ascending places alone."""
        batch = self.batch.set_column(
            self.batch.schema.names.index("step"),
            "step",
            pa.array(np.zeros(len(self), dtype=np.int64)),
        ).take(pa.array(places))
        found = Part.of_batch(self.key, batch)
        found.__dict__["rows"] = self.rows[places]
        return found

    def __len__(self) -> int:
        return len(self._columns["id"])

    @cached_property
    def ids(self) -> list[str]:
        """(N,) ids of the items."""
        return col.text_list(self._columns["id"])

    def places_of(self, item_ids: Collection[str]) -> Ints:
        """Where those of these items stand that it has."""
        return np.array(
            [place for place, one in enumerate(self.ids) if one in item_ids], dtype=np.int64
        )

    @cached_property
    def rows(self) -> Ints:
        """(N,) their rows in the dataset."""
        return rows_of(self._columns)

    @cached_property
    def texts(self) -> list[str | None]:
        """(N,) as they are stored."""
        return col.text_list(self._columns["text"])

    @cached_property
    def seconds(self) -> list[int | None]:
        """(N,) where the second texts of pairs begin in them."""
        return seconds_of(self._columns)

    @cached_property
    def outcomes(self) -> list[ItemOutcome]:
        """(N,) what the model says of them."""
        return outcomes_of(self._columns, self.rows)

    def answers(self) -> Iterator[tuple[str, tuple[float, ...], dict[str, str]]]:
        """(predicted class, logits (C,), metadata) of each."""
        predicted = col.text_list(self._columns["predicted"])
        logits = logits_of(self._columns["logits"])
        meta = map(read_text, col.text_list(self._columns["meta"]))
        return zip(predicted, logits, meta, strict=True)

    @property
    def joined_logits(self) -> tuple[NDArray[np.float64], Ints]:
        """The logits of all items, one behind the other, and how many each has."""
        column = self._columns["logits"]
        return col.wide_floats(column.values), col.counts_of(column)

    @property
    def predicted(self) -> list[str]:
        """(N,) the class that each is given."""
        return col.text_list(self._columns["predicted"])

    @property
    def labels(self) -> list[str | None]:
        """The class that each is labelled with; None: none."""
        return col.text_list(self._columns["label"])

    def named(self, column: str, name: str) -> NDArray[np.bool_]:
        """(N,) whether `label`, `predicted` or `raw_label` is exactly this."""
        return col.is_name(self._columns[column], name)

    def mentioning(self, group: str | None, entity: str | None) -> NDArray[np.bool_]:
        """(N,) whether each mentions this entity, this group, or this entity of this group."""
        found = np.zeros(len(self), dtype=bool)
        column = self._columns.get("mentions")
        if column is None:
            return found
        flat = column.values
        hit = np.ones(len(flat), dtype=bool)
        for name, value in (("group", group), ("entity", entity)):
            if value is not None:
                hit &= col.is_name(flat.field(name), value)
        found[np.repeat(np.arange(len(self)), col.counts_of(column))[hit]] = True
        return found

    @cached_property
    def explained(self) -> AttributionColumns:
        """The columns of the attributions."""
        return AttributionColumns(self._columns["attributions"], self._columns["logits"])

    @cached_property
    def features(self) -> list[Tokens | PatchGrid]:
        """(N,) positions."""
        return positions_of(self._columns, self.texts)

    def attributions(self, target: str | None = None) -> Iterator[tuple[int, Attribution]]:
        """(place of its item, attribution): of all targets, or of one."""
        places: Iterable[int] | None = None
        if target is not None:
            targets = self.explained.words("target")
            places = [place for place, one in enumerate(targets) if one == target]
        texts = list(zip(self.texts, self.seconds, strict=True))
        return self.explained.records(self.ids, texts, self.features, places)

    def classes(self, target: str) -> Iterator[tuple[int, tuple[str, str]]]:
        """(place of its item, (id, explained class)) of every attribution of a target."""
        explained = self.explained
        words = zip(explained.words("target"), explained.words("class_name"), strict=True)
        for item, (asked, name) in zip(explained.of.tolist(), words, strict=True):
            if asked == target:
                yield item, (self.ids[item], name)

    def sizes(self) -> NDArray[np.float64]:
        """Of each attribution the size, as `types.words.size_of`."""
        of = self.explained.of.tolist()
        return sizes_of(
            [self.features[item] for item in of],
            self.explained.relevance(),
            [self.texts[item] for item in of],
        )

    def mentions(self) -> Iterator[tuple[int, Mention]]:
        """(place of its item, mention) of every mention."""
        column = self._columns.get("mentions")
        return iter(()) if column is None else mentions_of(column, self.ids, self.texts)

    def scores(self) -> Iterator[tuple[int, MetricScore]]:
        """(place of its item, score) of every score."""
        column = self._columns.get("scores")
        return iter(()) if column is None else scores_of(column, self.ids)
