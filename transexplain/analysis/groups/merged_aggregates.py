"""Merges the aggregates of all shards into columns of exact sums, without an object per row."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any

import numpy as np

from transexplain.analysis.groups.aggregate_form import reading_tables
from transexplain.analysis.groups.entity_totals import (
    CLUSTER_WIDTH,
    PAIR_WIDTH,
    ROW_WIDTH,
    EntityKey,
    EntityTotals,
    Stratum,
)
from transexplain.analysis.groups.exact_totals import (
    Counts,
    ExactColumn,
    ExactTable,
    Histogram,
    Limbs,
    unpacked,
)
from transexplain.analysis.groups.outcome_totals import OutcomeTotals
from transexplain.analysis.groups.shard_aggregate import (
    WORD_WIDTH,
    ShardAggregate,
    check_versions,
    version_of,
)

_Key = tuple[str, ...]
_Names = tuple[_Key, Collection[Any]]  #: a key, and the names in it, each once


def merged_aggregates(payloads: Iterable[Mapping[str, Any]]) -> ShardAggregate:
    """Merge payloads as `ShardAggregate.merge` does, to the bit; one at a time in memory.

    Raises ConfigurationError for a payload of a version that is not read, or a damaged one.
    """
    total, words, entities, second = ShardAggregate(), _Table(WORD_WIDTH), _Entities(), _Entities()
    outcomes = _Outcomes()
    for payload in payloads:
        check_versions((version_of(payload),))
        rest = {**payload, "words": (), "entities": (), "second": (), "outcomes": ()}
        total.merge(ShardAggregate.from_json(rest))
        with reading_tables():
            for table in payload["words"]:
                _add_words(words, table)
            entities.add(payload["entities"])
            second.add(payload["second"])
            outcomes.add(payload["outcomes"])
    by_class = {(key[0], key[1]): ExactTable(entries) for key, entries in words.parts()}
    more = ShardAggregate(_words=by_class, entities=entities.total(), second=second.total())
    with reading_tables():
        more.outcomes = outcomes.total()
    return total.merge(more)


def _add_words(table: "_Table", content: Mapping[str, Any]) -> None:
    key = (content["target"], content["class_name"])
    names = content["names"]
    table.add([(key, names)], unpacked(content, len(names), WORD_WIDTH))


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
        self._last = np.zeros(0, dtype=np.intp)  # which row of the last shard came to a place
        further = count()
        self._numbers: defaultdict[_Key, _Numbers] = defaultdict(lambda: _Numbers(further))

    def add(self, parts: Iterable[_Names], columns: Sequence[Limbs]) -> None:
        """Add rows by their names, those of one key after those of another.

        Raises ValueError where a key has a name twice.
        """
        numbers: list[int] = []
        for key, names in parts:
            numbers += map(self._numbers[key].__getitem__, names)
        if not numbers:
            return
        places, order = np.array(numbers, dtype=np.intp), np.arange(len(numbers))
        self._length = max(self._length, int(places.max()) + 1)
        if self._length > len(self._last):
            self._last = np.zeros(2 * self._length, dtype=np.intp)
        self._last[places] = order
        if (self._last[places] != order).any():
            raise ValueError("a table has a name twice")
        for column, limbs in zip(self._columns, columns, strict=True):
            column.add(places, limbs, self._length)

    def add_columns(self, content: Mapping[str, Any], parts: Sequence[_Names]) -> None:
        """Add a table that was saved in columns."""
        rows = sum(len(names) for _, names in parts)
        self.add(parts, unpacked(content, rows, len(self._columns)))

    def parts(self) -> Iterator[tuple[_Key, dict[Any, list[int]]]]:
        """The sums of every key, by name."""
        columns = (column.sums(self._length) for column in self._columns)
        rows = [list(row) for row in zip(*columns, strict=True)]
        for key, numbers in self._numbers.items():
            yield key, {name: rows[number] for name, number in numbers.items()}


class _Outcomes:
    """The content of `OutcomeTotals` in columns; a table per number of answers."""

    def __init__(self) -> None:
        self._tables: dict[int, _Table] = {}

    def add(self, content: Iterable[Mapping[str, Any]]) -> None:
        """Add what `OutcomeTotals.to_json` wrote of one shard."""
        for part in content:
            width = len(part["limbs"])
            table = self._tables.setdefault(width, _Table(width))
            table.add_columns(part, [((), part["names"])])

    def total(self) -> OutcomeTotals:
        """Of all shards; raises ValueError where a situation's name is none."""
        outcome_totals = OutcomeTotals()
        for _, table in sorted(self._tables.items()):
            for _, rows in table.parts():
                outcome_totals.add_rows(rows.items())
        return outcome_totals


class _Entities:
    """The content of `EntityTotals`, its long tables in columns."""

    def __init__(self) -> None:
        self._rest = EntityTotals()
        self._rows, self._pairs = _Table(ROW_WIDTH), _Table(PAIR_WIDTH)
        self._sizes, self._clusters = _Table(1), _Table(CLUSTER_WIDTH)

    def add(self, parts: Iterable[Mapping[str, Any]]) -> None:
        """Add what `EntityTotals.to_json` wrote of one shard."""
        for part in parts:
            stratum = Stratum(*part["stratum"])
            documents = {stratum: Counts(part["documents"])}
            self._rest.merge(EntityTotals(_documents=documents))
            self._add_columns(stratum, part)

    def _add_columns(self, stratum: Stratum, part: Mapping[str, Any]) -> None:
        for table, name in (
            (self._rows, "entities"),
            (self._pairs, "meetings"),
            (self._sizes, "histograms"),
        ):
            names = part[name]["names"].items()
            table.add_columns(part[name], [((*stratum, group), some) for group, some in names])
        if "clustered" in part:
            names = [
                ((*stratum, cluster, group), entities)
                for cluster, groups in part["clustered"]["names"].items()
                for group, entities in groups.items()
            ]
            self._clusters.add_columns(part["clustered"], names)

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
    strata: dict[Stratum, ExactTable[EntityKey]] = {}
    for (*stratum, first), entries in table.parts():
        kept = strata.setdefault(Stratum(*stratum), ExactTable())
        kept.update({(first, second): entry for second, entry in entries.items()})
    return strata
