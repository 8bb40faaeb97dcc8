"""Totals of relevance by entity and class, exact and mergeable, and the rows that statistics
read.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from transexplain.analysis.groups.exact_totals import (
    UNITS,
    Counts,
    ExactTable,
    Histogram,
    exact,
    merge_each,
    packed,
    unpacked_rows,
)
from transexplain.errors import ConfigurationError
from transexplain.types.items import Mention


@dataclass(frozen=True, kw_only=True, slots=True)
class EntityRow:
    """The mentions of one entity of a group, over some strata."""

    group: str
    entity: str
    documents: int
    mentions: int
    mean: float  #: relevance per mention, in the unit
    squares: float  #: sum over mentions of squared relevance
    share: float  #: mean over mentions of relevance / sum of |R| of the item
    positive: int  #: mentions with relevance above 0
    by_document: "DocumentSums"  #: of the entity with itself
    rank: float | None = None  #: mean over mentions, see `ranks_in_item`; None: it was not measured


@dataclass(frozen=True, kw_only=True, slots=True)
class DocumentSums:
    """Sums over documents that the two-way interval needs, of two groups or one with itself.

    With S the relevance and n the mentions in a document, and S', n' those of the other: sums of
    S S', S n', n S' and n n' over documents.
    """

    relevance: float
    left: float  #: S n'
    right: float  #: n S'
    mentions: int


def entity_row(key: tuple[str, str], entry: Sequence[int]) -> EntityRow:
    """The row of exact totals, in the order of `entity_totals`."""
    documents, mentions, amount, squares, share, positive, ss, sn, nn, rank, ranked = entry
    return EntityRow(
        group=key[0],
        entity=key[1],
        documents=documents,
        mentions=mentions,
        mean=amount / (UNITS * mentions),
        squares=squares / UNITS,
        share=share / (UNITS * mentions),
        positive=positive,
        by_document=document_sums(ss, sn, sn, nn),
        rank=rank / (UNITS * ranked) if ranked else None,
    )


def document_sums(relevance: int, left: int, right: int, mentions: int) -> DocumentSums:
    """Exact totals as plain numbers."""
    return DocumentSums(
        relevance=relevance / UNITS / UNITS,
        left=left / UNITS,
        right=right / UNITS,
        mentions=mentions,
    )


ROW_WIDTH = 11  #: numbers in the totals of an entity
PAIR_WIDTH = 4  #: of a pair of groups
CLUSTER_WIDTH = 2  #: of an entity in a cluster


class Stratum(NamedTuple):
    """One cell of the statistics; parts that do not apply are empty."""

    target: str
    class_name: str  #: explained
    predicted: str = ""
    label: str = ""
    slice: str = ""


EntityKey = tuple[str, str]  #: group, entity
GroupPair = tuple[str, str]  #: two groups in order, or one twice
_Clusters = dict[str, ExactTable[EntityKey]]  # by name of the cluster


@dataclass(slots=True)
class EntityTotals:
    """Totals of every entity in every stratum; of one shard, or of shards merged into it."""

    #: stratum -> (group, entity) -> [documents, mentions, sum, squares, share, positive,
    #: S S, S n, n n over documents without a cluster, sum of ranks, mentions with a rank]
    _rows: dict[Stratum, ExactTable[EntityKey]] = field(default_factory=dict)
    #: stratum -> group -> documents that mention it
    _documents: dict[Stratum, Counts[str]] = field(default_factory=dict)
    #: stratum -> (group, group) -> [S S', S n', n S', n n'] over documents without a cluster
    _pairs: dict[Stratum, ExactTable[GroupPair]] = field(default_factory=dict)
    #: stratum -> group -> relevance of its mentions
    _sizes: dict[Stratum, dict[str, Histogram]] = field(default_factory=dict)
    #: stratum -> cluster -> (group, entity) -> [S, n]
    _clusters: dict[Stratum, _Clusters] = field(default_factory=dict)

    def add(
        self,
        stratum: Stratum,
        mentions: Sequence[Mention],
        magnitude: float,
        ranks: Sequence[float | None] = (),
        cluster: str = "",
    ) -> None:
        """Count the mentions of one item for one of its attributions.

        `magnitude` is the sum of |R| over the item's positions, `ranks` are those of the mentions
        in the item (see `ranks_in_item`), or nothing where they were not measured. Items of one
        `cluster` count as one in the two-way interval, those without one by themselves. Raises
        ValueError for a relevance that is not finite.
        """
        entities: ExactTable[EntityKey] = ExactTable()
        groups: ExactTable[str] = ExactTable()
        sizes = self._sizes.setdefault(stratum, {})
        for mention, rank in zip(mentions, ranks or [None] * len(mentions), strict=True):
            amount = exact(mention.relevance)
            share = exact(mention.relevance / magnitude if magnitude else 0.0)
            entry = [1, amount, exact(mention.relevance**2), share, int(mention.relevance > 0)]
            entry += [0, 0] if rank is None else [exact(rank), 1]
            sizes.setdefault(mention.group, Histogram()).add(mention.relevance)
            entities.add((mention.group, mention.entity), entry)
            groups.add(mention.group, [amount, 1])
        rows = self._rows.setdefault(stratum, ExactTable())
        for key, entry in entities.items():
            n, amount = entry[:2]
            products = [0] * 3 if cluster else [amount * amount, amount * n, n * n]
            rows.add(key, [1, *entry[:5], *products, *entry[5:]])
        documents = self._documents.setdefault(stratum, Counts())
        for group in groups:
            documents.add(group)
        pairs = self._pairs.setdefault(stratum, ExactTable())
        if not cluster:
            _add_products(pairs, groups)
            return
        kept = self._clusters.setdefault(stratum, {}).setdefault(cluster, ExactTable())
        for key, (n, amount, *_) in entities.items():
            kept.add(key, [amount, n])

    def merge(self, other: "EntityTotals") -> "EntityTotals":
        """Add the totals of `other` to these, and return these."""
        merge_each(self._rows, other._rows, ExactTable)
        merge_each(self._pairs, other._pairs, ExactTable)
        merge_each(self._documents, other._documents, Counts)
        for stratum, histograms in other._sizes.items():
            merge_each(self._sizes.setdefault(stratum, {}), histograms, Histogram)
        for stratum, clusters in other._clusters.items():
            merge_each(self._clusters.setdefault(stratum, {}), clusters, ExactTable)
        return self

    def without(self, groups: Collection[str]) -> "EntityTotals":
        """The totals of all other groups; these stay as they are."""
        kept = EntityTotals()
        for stratum, rows in self._rows.items():
            if left := {key: row for key, row in rows.items() if key[0] not in groups}:
                kept._rows[stratum] = ExactTable(left)
                pairs = self._pairs.get(stratum, {}).items()
                kept._pairs[stratum] = ExactTable(
                    {pair: sums for pair, sums in pairs if not set(pair) & set(groups)}
                )
                documents = self._documents.get(stratum, {}).items()
                kept._documents[stratum] = Counts(
                    {group: count for group, count in documents if group not in groups}
                )
                sizes = self._sizes.get(stratum, {}).items()
                kept._sizes[stratum] = {g: histogram for g, histogram in sizes if g not in groups}
        return kept

    @property
    def strata(self) -> list[Stratum]:
        """Every stratum with a mention, sorted."""
        return sorted(self._rows)

    def rows(self, strata: Iterable[Stratum]) -> list[EntityRow]:
        """One row per entity of a group over these strata together, by group and entity."""
        strata = list(strata)
        sums: ExactTable[EntityKey] = ExactTable()
        for stratum in strata:
            sums.merge(self._rows.get(stratum, {}))
        for together in self._together(strata):
            for key, (amount, n) in together.items():
                if key not in sums:
                    raise ConfigurationError(
                        f"a saved aggregate has {key[1]!r} in a cluster and nowhere else: run the "
                        "audit again"
                    )
                sums.add(key, [*[0] * 6, amount * amount, amount * n, n * n, 0, 0])
        return [entity_row(key, entry) for key, entry in sorted(sums.items())]

    def documents(self, strata: Iterable[Stratum]) -> dict[str, int]:
        """Items that mention each group; an item with several attributions counts for each."""
        documents: Counts[str] = Counts()
        for stratum in strata:
            documents.merge(self._documents.get(stratum, {}))
        return documents

    def histograms(self, strata: Iterable[Stratum]) -> dict[str, Histogram]:
        """The relevance of each group's mentions over these strata together."""
        histograms: dict[str, Histogram] = {}
        for stratum in strata:
            merge_each(histograms, self._sizes.get(stratum, {}), Histogram)
        return histograms

    def pairs(self, strata: Iterable[Stratum]) -> dict[tuple[str, str], DocumentSums]:
        """Sums over documents and clusters for pairs of groups that share one, names in order."""
        strata = list(strata)
        sums: ExactTable[GroupPair] = ExactTable()
        for stratum in strata:
            sums.merge(self._pairs.get(stratum, {}))
        for together in self._together(strata):
            groups: ExactTable[str] = ExactTable()
            for (group, _), entry in together.items():
                groups.add(group, entry)
            _add_products(sums, groups)
        return {
            key: document_sums(s, left, right, n)
            for key, (s, left, right, n) in sorted(sums.items())
        }

    def clusters(self, strata: Iterable[Stratum]) -> int:
        """Return how many clusters of items there are; items without one do not count."""
        return len({name for stratum in strata for name in self._clusters.get(stratum, ())})

    def _together(self, strata: Iterable[Stratum]) -> Iterable[ExactTable[EntityKey]]:
        """The mentions of every cluster over these strata: (group, entity) -> [S, n]."""
        clusters: _Clusters = {}
        for stratum in strata:
            merge_each(clusters, self._clusters.get(stratum, {}), ExactTable)
        return clusters.values()

    def renamed(self, groups: Collection[str], rename: Callable[[str], str]) -> "EntityTotals":
        """The totals with other names for the entities of these groups."""

        def changed(rows: ExactTable[EntityKey]) -> ExactTable[EntityKey]:
            table: ExactTable[EntityKey] = ExactTable()
            for (group, entity), row in rows.items():
                table.add((group, rename(entity) if group in groups else entity), row)
            return table

        return EntityTotals(
            _rows={stratum: changed(rows) for stratum, rows in self._rows.items()},
            _documents=self._documents,
            _pairs=self._pairs,
            _sizes=self._sizes,
            _clusters={
                stratum: {name: changed(rows) for name, rows in clusters.items()}
                for stratum, clusters in self._clusters.items()
            },
        )

    def to_json(self) -> list[dict[str, Any]]:
        """The totals as JSON values; equal totals give equal JSON."""
        return [
            {
                "stratum": list(stratum),
                "entities": _named(self._rows[stratum], ROW_WIDTH),
                "documents": dict(sorted(self._documents.get(stratum, {}).items())),
                "meetings": _named(self._pairs.get(stratum, {}), PAIR_WIDTH),
                "histograms": self._histograms_json(stratum),
                **self._clusters_json(stratum),
            }
            for stratum in sorted(self._rows)
        ]

    def _histograms_json(self, stratum: Stratum) -> dict[str, Any]:
        sizes = sorted(self._sizes.get(stratum, {}).items())
        bins = {group: histogram.to_json() for group, histogram in sizes}
        names = {group: [place for place, _ in pairs] for group, pairs in bins.items()}
        counts = [[count] for pairs in bins.values() for _, count in pairs]
        return {"names": names, **packed(counts, 1)}

    def _clusters_json(self, stratum: Stratum) -> dict[str, Any]:
        """The clusters of a stratum; nothing where no item has one."""
        clusters = sorted(self._clusters.get(stratum, {}).items())
        if not clusters:
            return {}
        names = {name: _names(sorted(sums)) for name, sums in clusters}
        rows = [entry for _, sums in clusters for _, entry in sorted(sums.items())]
        return {"clustered": {"names": names, **packed(rows, CLUSTER_WIDTH)}}

    @classmethod
    def from_json(cls, content: Iterable[Mapping[str, Any]]) -> "EntityTotals":
        """Read what `to_json` wrote.

        Raises ValueError where the columns of a table differ in length.
        """
        totals = cls()
        for part in content:
            stratum = Stratum(*part["stratum"])
            totals._documents[stratum] = Counts(part["documents"])
            totals._read_columns(stratum, part)
        return totals

    def _read_columns(self, stratum: Stratum, part: Mapping[str, Any]) -> None:
        self._rows[stratum] = _unnamed(part["entities"], ROW_WIDTH)
        self._pairs[stratum] = _unnamed(part["meetings"], PAIR_WIDTH)
        histograms = part["histograms"]
        self._sizes[stratum] = {group: Histogram() for group in histograms["names"]}
        for (group, place), (count,) in _unnamed(histograms, 1).items():
            self._sizes[stratum][group].counts.add(place, count)
        if "clustered" in part:
            clusters = self._clusters.setdefault(stratum, {})
            table = part["clustered"]
            keys = [(name, key) for name, groups in table["names"].items() for key in _keys(groups)]
            rows = unpacked_rows(table, len(keys), CLUSTER_WIDTH)
            for (name, key), row in zip(keys, rows, strict=True):
                clusters.setdefault(name, ExactTable())[key] = row


def _add_products(pairs: ExactTable[GroupPair], groups: Mapping[str, list[int]]) -> None:
    """Add the products of one document or cluster, of whose `groups` [S, n] are given."""
    names = sorted(groups)
    for place, left in enumerate(names):
        for right in names[place:]:
            (s, n), (t, m) = groups[left], groups[right]
            pairs.add((left, right), [s * t, s * m, n * t, n * m])


def _named(entries: Mapping[tuple[str, str], Sequence[int]], width: int) -> dict[str, Any]:
    """Rows by two names as JSON: the second names under each first one, and the columns."""
    keys = sorted(entries)
    return {"names": _names(keys), **packed([entries[key] for key in keys], width)}


def _names(keys: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """The second names of sorted keys, under each first one."""
    names: dict[str, list[str]] = {}
    for first, second in keys:
        names.setdefault(first, []).append(second)
    return names


def _unnamed(content: Mapping[str, Any], width: int) -> ExactTable[Any]:
    keys = list(_keys(content["names"]))
    return ExactTable(zip(keys, unpacked_rows(content, len(keys), width), strict=True))


def _keys(names: Mapping[str, Iterable[Any]]) -> Iterator[tuple[str, Any]]:
    return ((first, second) for first, inner in names.items() for second in inner)
