"""Adds up what pages need of the aggregates of a run's shards, a piece at a time.

The aggregates hold much more: only these parts of their JSON are decoded.
"""

import zlib
from collections import Counter
from collections.abc import Iterator
from statistics import fmean
from threading import Lock
from typing import NamedTuple

import msgspec
from sqlalchemy import LargeBinary, select, type_coerce

from transexplain.analysis.groups.shard_aggregate import (
    MeanHeatmap,
    PartTotal,
    heatmaps_of,
    parts_of,
)
from transexplain.store.columns import reading
from transexplain.store.database import Database
from transexplain.store.exact_sums import Sums, counts
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


class _Aggregate(msgspec.Struct):
    totals: dict[str, str]
    observations: list[SwappedName]


_DECODER = msgspec.json.Decoder(_Aggregate)
_READ = ("predictions", "positions", "pictures", "pictured")  #: totals that pages show


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
        self._lock = Lock()
        self._clear()

    def _clear(self) -> None:
        self.shards = 0  #: read so far
        self.cut = False  #: more than `MOST_ANSWERS` are stored; the others are left out
        self._sums = Sums(_READ)
        self._texts: dict[tuple[bool, str], list[SwappedName]] = {}
        self._answers = 0

    @property
    def done(self) -> bool:
        """Nothing more will be found."""
        return self._pieces.done

    def go_on(self, db: Database, seconds: float) -> None:
        """Read on for about so long; raises DatabaseError, and begins anew after that."""
        self._pieces.go_on(db, seconds)

    @property
    def predictions(self) -> Counter[tuple[str, str]]:
        """(label, class) -> items; label "": they have none."""
        predictions = Counter[tuple[str, str]]()
        with self._lock:
            for (label, name), count in counts(self._sums.table("predictions")).items():
                predictions[label or "", name] += count
        return predictions

    def positions(self, target: str, class_name: str) -> tuple[PartTotal, ...]:
        """Totals by place in the text, from its beginning; empty where no text was counted."""
        with self._lock:
            return parts_of(self._sums, target, class_name)

    def heatmaps(self, class_name: str) -> list[MeanHeatmap]:
        """The mean heatmaps of a class."""
        with self._lock:
            return [mean for mean in heatmaps_of(self._sums) if mean.class_name == class_name]

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
                self._add(_DECODER.decode(zlib.decompress(row[1])))
            yield

    def _add(self, shard: _Aggregate) -> None:
        self.shards += 1
        with self._lock:
            self._sums.add_packed(shard.totals)
        for answer in shard.observations:
            self.cut = self.cut or self._answers == MOST_ANSWERS
            if not self.cut:
                self._texts.setdefault((answer.template, answer.document), []).append(answer)
                self._answers += 1


def _compared(own: SwappedName, others: list[SwappedName]) -> SwappedText:
    means = (fmean(values) for values in zip(*(one.log_odds for one in others), strict=False))
    return SwappedText(
        document=own.document,
        is_item=not own.template,
        changes=tuple(a - b for a, b in zip(own.log_odds, means, strict=False)),
        others=len(others),
        changed=sum(one.predicted != own.predicted for one in others),
    )
