"""Merges the aggregates of all shards into columns of exact sums, without an object per row.

Sums of numbers outgrow 64 bits over a long run, sums of squares within one shard. A column of the
first kind is kept in two halves of 64 bits, one of the second as Python's integers.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transexplain.analysis.groups.aggregate_form import reading_tables
from transexplain.analysis.groups.entity_totals import ROW_WIDTH, EntityKey, EntityTotals, Stratum
from transexplain.analysis.groups.exact_totals import Counts, ExactTable, Histogram
from transexplain.analysis.groups.shard_aggregate import VERSION, ShardAggregate, version_of
from transexplain.errors import ConfigurationError

_BITS = 32
_LOW = (1 << _BITS) - 1
_MOST = 2**63 - 1  #: that 64 bits hold
_FIRST = 1024  #: places that are made at once; doubled from there


class ExactColumn:
    """Sums by place, from 0; a place that nothing was added to holds 0."""

    def __init__(self) -> None:
        self._low: NDArray[np.int64] = np.zeros(_FIRST, dtype=np.int64)
        self._high: NDArray[np.int64] = np.zeros(_FIRST, dtype=np.int64)  # in units of 2**32
        self._bound = 0  # that no number in `_low` exceeds in size
        self._wide: list[int] | None = None  # instead of both, once one number needs more

    def add(self, places: NDArray[np.intp], numbers: Sequence[int], length: int) -> None:
        """Add `numbers` (n,) of any size at different `places` (n,), which are below `length`."""
        if self._wide is None:
            try:
                self._add_narrow(places, np.array(numbers, dtype=np.int64), length)
                return
            except OverflowError:
                self._wide = self.sums(length)
        self._wide += [0] * (length - len(self._wide))
        for place, number in zip(places.tolist(), numbers, strict=True):
            self._wide[place] += number

    def sums(self, length: int) -> list[int]:
        """The first `length` sums."""
        if self._wide is not None:
            return self._wide + [0] * (length - len(self._wide))
        self._grow(length)
        pairs = zip(self._high[:length].tolist(), self._low[:length].tolist(), strict=True)
        return [(high << _BITS) + low for high, low in pairs]

    def _add_narrow(
        self, places: NDArray[np.intp], numbers: NDArray[np.int64], length: int
    ) -> None:
        self._grow(length)
        if not len(numbers):
            return
        most = max(int(numbers.max()), -int(numbers.min()))
        if self._bound + most > _MOST:
            self._high += self._low >> _BITS
            self._low &= _LOW
            self._bound = _LOW
        if self._bound + most > _MOST:
            raise OverflowError
        self._low[places] += numbers
        self._bound += most

    def _grow(self, length: int) -> None:
        while len(self._low) < length:
            self._low = np.concatenate([self._low, np.zeros_like(self._low)])
            self._high = np.concatenate([self._high, np.zeros_like(self._high)])


_Key = tuple[str, ...]
#: a key; the names in it, each once; their rows, one after the other
_Part = tuple[_Key, Iterable[Any], Iterable[int]]


def merged_aggregates(payloads: Iterable[Mapping[str, Any]]) -> ShardAggregate:
    """What `ShardAggregate.merge` makes of these payloads, to the bit; one at a time in memory.

    Raises ConfigurationError for a payload of a version that is not read, or a damaged one.
    """
    total, words, entities, second = ShardAggregate(), _Table(4), _Entities(), _Entities()
    for payload in payloads:
        if version_of(payload) != VERSION:
            total.merge(ShardAggregate.from_json(payload))
            continue
        rest = {**payload, "words": (), "entities": (), "second": ()}
        total.merge(ShardAggregate.from_json(rest))
        with reading_tables():
            words.add(
                _part((one["target"], one["class_name"]), one["words"]) for one in payload["words"]
            )
            entities.add(payload["entities"])
            second.add(payload["second"])
    found = {(key[0], key[1]): ExactTable(entries) for key, entries in words.parts()}
    return total.merge(
        ShardAggregate(_words=found, entities=entities.total(), second=second.total())
    )


def _part(key: _Key, rows: Mapping[str, list[int]]) -> _Part:
    return key, rows, chain.from_iterable(rows.values())


class _Numbers(dict[Any, int]):
    """A number for every name, the next one for a new name."""

    def __init__(self, further: Iterator[int]) -> None:
        super().__init__()
        self._further = further

    def __missing__(self, name: Any) -> int:
        self[name] = number = next(self._further)
        return number


class _Table:
    """Rows of exact sums by key and name."""

    def __init__(self, width: int) -> None:
        self._columns = [ExactColumn() for _ in range(width)]
        self._length = 0  # rows
        further = count()
        self._numbers: defaultdict[_Key, _Numbers] = defaultdict(lambda: _Numbers(further))

    def add(self, parts: Iterable[_Part]) -> None:
        """Add the rows of one shard, in which no key comes twice."""
        numbers: list[int] = []
        values: list[int] = []
        for key, names, rows in parts:
            numbers += map(self._numbers[key].__getitem__, names)
            values += rows
        if not numbers:
            return
        width = len(self._columns)
        if len(values) != width * len(numbers):
            raise ConfigurationError(
                f"a shard's aggregate has {len(values)} numbers in {len(numbers)} rows, not "
                f"{width} in each: run the audit again"
            )
        places = np.array(numbers, dtype=np.intp)
        self._length = max(self._length, int(places.max()) + 1)
        for number, column in enumerate(self._columns):
            column.add(places, values[number::width], self._length)

    def parts(self) -> Iterator[tuple[_Key, dict[Any, list[int]]]]:
        """The sums of every key, by name."""
        columns = (column.sums(self._length) for column in self._columns)
        rows = [list(row) for row in zip(*columns, strict=True)]
        for key, numbers in self._numbers.items():
            yield key, {name: rows[number] for name, number in numbers.items()}


class _Entities:
    """What `EntityTotals` holds, its long tables in columns."""

    def __init__(self) -> None:
        self._rest = EntityTotals()
        self._rows, self._pairs, self._sizes = _Table(ROW_WIDTH), _Table(4), _Table(1)
        self._clusters = _Table(2)

    def add(self, parts: Iterable[Mapping[str, Any]]) -> None:
        """Add what `EntityTotals.to_json` wrote of one shard."""
        rest = [{**part, "rows": {}, "pairs": {}, "sizes": {}} for part in parts]
        for part in rest:
            part.pop("clusters", None)
        self._rest.merge(EntityTotals.from_json(rest))
        self._clusters.add(
            _part((*part["stratum"], cluster, group), entities)
            for part in parts
            for cluster, groups in part.get("clusters", {}).items()
            for group, entities in groups.items()
        )
        for table, name in ((self._rows, "rows"), (self._pairs, "pairs")):
            table.add(
                _part((*part["stratum"], group), rows)
                for part in parts
                for group, rows in part[name].items()
            )
        flat = (
            ((*part["stratum"], group), list(chain.from_iterable(counts)))
            for part in parts
            for group, counts in part["sizes"].items()
        )
        self._sizes.add((key, counts[::2], counts[1::2]) for key, counts in flat)

    def total(self) -> EntityTotals:
        """Of all shards."""
        rows, pairs = (_by_stratum(table) for table in (self._rows, self._pairs))
        sizes: dict[Stratum, dict[str, Histogram]] = {}
        for (*stratum, group), counts in self._sizes.parts():
            histogram = Histogram(Counts({place: count for place, (count,) in counts.items()}))
            sizes.setdefault(Stratum(*stratum), {})[group] = histogram
        clusters: dict[Stratum, dict[str, ExactTable[EntityKey]]] = {}
        for (*stratum, cluster, group), sums in self._clusters.parts():
            kept = clusters.setdefault(Stratum(*stratum), {}).setdefault(cluster, ExactTable())
            kept.update({(group, entity): entry for entity, entry in sums.items()})
        return self._rest.merge(
            EntityTotals(_rows=rows, _pairs=pairs, _sizes=sizes, _clusters=clusters)
        )


def _by_stratum(table: _Table) -> dict[Stratum, ExactTable[EntityKey]]:
    found: dict[Stratum, ExactTable[EntityKey]] = {}
    for (*stratum, first), entries in table.parts():
        kept = found.setdefault(Stratum(*stratum), ExactTable())
        kept.update({(first, second): entry for second, entry in entries.items()})
    return found
