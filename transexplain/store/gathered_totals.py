"""Adds up what pages need of the aggregates of a run's shards, a piece at a time.

The aggregates hold much more: only these parts of their JSON are decoded.
"""

import json
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from operator import add
from statistics import fmean
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import LargeBinary, select, type_coerce

from transexplain.store.columns import reading
from transexplain.store.database import Database
from transexplain.store.ranked_items import Piecemeal
from transexplain.store.schema import shard_aggregate

MOST_ANSWERS = 20_000  #: to texts with swapped names that are kept


class SwappedName(msgspec.Struct, frozen=True):
    """An answer to one text with one name in the place of a mention."""

    document: str  #: item id, or the template that several items are made from
    group: str
    entity: str
    template: bool = False  #: whether `document` is a template
    own: bool = False  #: the name that the text came with
    predicted: str = ""
    log_odds: tuple[float, ...] = ()  #: of every answer of the plan


class _Checked(msgspec.Struct):
    observations: list[SwappedName] = []


class _Aggregate(msgspec.Struct):
    predictions: list[tuple[str | None, str, int]] = []
    positions: list[tuple[str, str, list[int]]] = []
    pictures: list[tuple[str, str, int, int, list[int]]] = []
    checked: _Checked = msgspec.field(default_factory=_Checked)


_DECODER = msgspec.json.Decoder(_Aggregate)


class SwappedText(NamedTuple):
    """A text in which a name stood, beside names of other groups."""

    document: str
    is_item: bool  #: whether the document is an item's id; otherwise several are made from it
    changes: tuple[float, ...]  #: of each answer's log-odds: the name minus the mean of the others
    others: int  #: names of other groups in its place
    changed: int  #: of these that are predicted otherwise


class GatheredTotals:
    """What the shards of a run have counted, of those that were read."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._pieces = Piecemeal(self._work)
        self._clear()

    def _clear(self) -> None:
        self.shards = 0  #: read so far
        self.cut = False  #: more than `MOST_ANSWERS` are stored; the others are left out
        self.predictions: Counter[tuple[str, str]] = Counter()  #: label ("": none) and class
        self._positions: dict[tuple[Any, ...], list[int]] = {}
        self._heatmaps: dict[tuple[Any, ...], list[int]] = {}
        self._texts: dict[tuple[bool, str], list[SwappedName]] = {}
        self._answers = 0

    @property
    def done(self) -> bool:
        """Nothing more will be found."""
        return self._pieces.done

    def go_on(self, db: Database, seconds: float) -> None:
        """Read on for about so long; raises DatabaseError, and begins anew after that."""
        self._pieces.go_on(db, seconds)

    def positions(self, target: str, class_name: str) -> list[int]:
        """The numbers of the parts of a text of `part_totals`, one part after the other."""
        return self._positions.get((target, class_name), [])

    def heatmaps(self, class_name: str) -> list[tuple[str, tuple[int, int], int, list[int]]]:
        """(target, (rows, columns), pictures, sum of each cell) of a class, see `mean_heatmaps`."""
        return [
            (target, (rows, columns), count, cells)
            for (target, name, rows, columns), (count, *cells) in sorted(self._heatmaps.items())
            if name == class_name
        ]

    def swaps(self, group: str, entity: str) -> list[SwappedText]:
        """The texts in which this name stood beside others, the widest change first."""
        found = []
        for some in tuple(self._texts.values()):
            own = [one for one in some if (one.group, one.entity) == (group, entity)]
            others = [one for one in some if one.group != group]
            if own and others:
                found.append(_compared(own[0], others))
        return sorted(found, key=lambda one: -max(map(abs, one.changes), default=0.0))

    def _work(self, db: Database) -> Iterator[None]:
        self._clear()
        payload = type_coerce(shard_aggregate.c.payload, LargeBinary)
        query = (
            select(shard_aggregate.c.shard, payload)
            .where(shard_aggregate.c.run_id == self._run_id)
            .order_by(shard_aggregate.c.shard)
            .limit(1)
        )
        after = -1
        while True:
            with db.read() as connection:
                row = connection.execute(query.where(shard_aggregate.c.shard > after)).first()
            if row is None:
                return
            after = row[0]
            with reading("a shard's aggregate"):
                self._add(_decoded(zlib.decompress(row[1])))
            yield

    def _add(self, one: _Aggregate) -> None:
        self.shards += 1
        for label, predicted, count in one.predictions:
            self.predictions[label or "", predicted] += count
        for target, name, row in one.positions:
            _sum(self._positions, (target, name), row)
        for target, name, rows, columns, row in one.pictures:
            _sum(self._heatmaps, (target, name, rows, columns), row)
        for answer in one.checked.observations:
            self.cut = self.cut or self._answers == MOST_ANSWERS
            if not self.cut:
                self._texts.setdefault((answer.template, answer.document), []).append(answer)
                self._answers += 1


def _decoded(text: bytes) -> _Aggregate:
    try:
        return _DECODER.decode(text)
    except msgspec.DecodeError:  # it reads no integer beyond 64 bits
        return msgspec.convert(json.loads(text), _Aggregate)


def _sum(
    totals: dict[tuple[Any, ...], list[int]], key: tuple[Any, ...], row: Iterable[int]
) -> None:
    known = totals.get(key)
    totals[key] = list(row) if known is None else list(map(add, known, row))


def _compared(own: SwappedName, others: list[SwappedName]) -> SwappedText:
    means = (fmean(values) for values in zip(*(one.log_odds for one in others), strict=False))
    return SwappedText(
        document=own.document,
        is_item=not own.template,
        changes=tuple(a - b for a, b in zip(own.log_odds, means, strict=False)),
        others=len(others),
        changed=sum(one.predicted != own.predicted for one in others),
    )
