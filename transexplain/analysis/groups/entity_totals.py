"""Totals of relevance by entity and class, exact and mergeable, and the rows that statistics
read.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from transexplain.analysis.groups.exact_totals import (
    UNITS,
    ExactHistogram,
    ExactTable,
    Tables,
    Totals,
    exact,
    signed_bin,
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


class Stratum(NamedTuple):
    """One cell of the statistics; parts that do not apply are empty."""

    target: str
    class_name: str  #: explained
    predicted: str = ""
    label: str = ""
    slice: str = ""


EntityKey = tuple[str, str]  #: group, entity
GroupPair = tuple[str, str]  #: two groups in order, or one twice
_STRATUM = len(Stratum._fields)


@dataclass(slots=True)
class EntityTotals(Totals):
    """Totals of every entity in every stratum; of one shard, or of shards merged into it."""

    #: stratum -> (group, entity) -> [documents, mentions, sum, squares, share, positive,
    #: S S, S n, n n over documents without a cluster, sum of ranks, mentions with a rank]
    _rows: Tables = field(default_factory=lambda: Tables(11, _STRATUM, 2))
    #: stratum -> group -> [documents that mention it]
    _documents: Tables = field(default_factory=lambda: Tables(1, _STRATUM))
    #: stratum -> (group, group) -> [S S', S n', n S', n n'] over documents without a cluster
    _pairs: Tables = field(default_factory=lambda: Tables(4, _STRATUM, 2))
    #: stratum -> (group, bin of `ExactHistogram`) -> [mentions of this relevance]
    _sizes: Tables = field(default_factory=lambda: Tables(1, _STRATUM, 2))
    #: stratum -> (cluster, group, entity) -> [S, n]
    _clusters: Tables = field(default_factory=lambda: Tables(2, _STRATUM, 3))

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
        sizes = self._sizes.of(stratum)
        for mention, rank in zip(mentions, ranks or [None] * len(mentions), strict=True):
            amount = exact(mention.relevance)
            share = exact(mention.relevance / magnitude if magnitude else 0.0)
            entry = [1, amount, exact(mention.relevance**2), share, int(mention.relevance > 0)]
            entry += [0, 0] if rank is None else [exact(rank), 1]
            sizes.add((mention.group, signed_bin(mention.relevance)), [1])
            entities.add((mention.group, mention.entity), entry)
            groups.add(mention.group, [amount, 1])
        rows = self._rows.of(stratum)
        for key, entry in entities.items():
            n, amount = entry[:2]
            products = [0] * 3 if cluster else [amount * amount, amount * n, n * n]
            rows.add(key, [1, *entry[:5], *products, *entry[5:]])
        documents = self._documents.of(stratum)
        for group in groups:
            documents.add(group, [1])
        if not cluster:
            _add_products(self._pairs.of(stratum), groups)
            return
        clusters = self._clusters.of(stratum)
        for (group, entity), (n, amount, *_) in entities.items():
            clusters.add((cluster, group, entity), [amount, n])

    def without(self, groups: Collection[str]) -> "EntityTotals":
        """The totals of all other groups, without clusters; these stay as they are."""
        return EntityTotals(
            self._rows.renamed(lambda key: None if key[0] in groups else key),
            self._documents.renamed(lambda group: None if group in groups else group),
            self._pairs.renamed(lambda pair: None if set(pair) & set(groups) else pair),
            self._sizes.renamed(lambda key: None if key[0] in groups else key),
        )

    @property
    def strata(self) -> list[Stratum]:
        """Every stratum with a mention, sorted."""
        return [Stratum(*key) for key in sorted(self._rows.tables)]

    def rows(self, strata: Iterable[Stratum]) -> list[EntityRow]:
        """One row per entity of a group over these strata together, by group and entity."""
        strata = list(strata)
        sums: ExactTable[EntityKey] = self._rows.over(strata)
        for (_, *key), (amount, n) in self._clusters.over(strata).items():
            if (entity := (key[0], key[1])) not in sums:
                raise ConfigurationError(
                    f"a saved aggregate has {key[1]!r} in a cluster and nowhere else: run the "
                    "audit again"
                )
            sums.add(entity, [*[0] * 6, amount * amount, amount * n, n * n, 0, 0])
        return [entity_row(key, entry) for key, entry in sorted(sums.items())]

    def documents(self, strata: Iterable[Stratum]) -> dict[str, int]:
        """Items that mention each group; an item with several attributions counts for each."""
        return {group: count for group, (count,) in self._documents.over(strata).items()}

    def histograms(self, strata: Iterable[Stratum]) -> dict[str, ExactHistogram]:
        """The relevance of each group's mentions over these strata together."""
        histograms: dict[str, ExactHistogram] = {}
        for (group, place), (count,) in self._sizes.over(strata).items():
            histograms.setdefault(group, ExactHistogram()).counts[place] = count
        return histograms

    def pairs(self, strata: Iterable[Stratum]) -> dict[tuple[str, str], DocumentSums]:
        """Sums over documents and clusters for pairs of groups that share one, names in order."""
        strata = list(strata)
        sums: ExactTable[GroupPair] = self._pairs.over(strata)
        together: dict[str, ExactTable[str]] = {}
        for (cluster, group, _), entry in self._clusters.over(strata).items():
            together.setdefault(cluster, ExactTable()).add(group, entry)
        for groups in together.values():
            _add_products(sums, groups)
        return {
            key: document_sums(s, left, right, n)
            for key, (s, left, right, n) in sorted(sums.items())
        }

    def clusters(self, strata: Iterable[Stratum]) -> int:
        """The number of clusters of items; items without one do not count."""
        tables = (self._clusters.tables.get(stratum, ()) for stratum in strata)
        return len({cluster for table in tables for cluster, *_ in table})

    def renamed(self, groups: Collection[str], rename: Callable[[str], str]) -> "EntityTotals":
        """The totals with other names for the entities of these groups."""

        def other(key: tuple[str, ...]) -> tuple[str, ...]:
            *cluster, group, entity = key
            return (*cluster, group, rename(entity) if group in groups else entity)

        return EntityTotals(
            self._rows.renamed(other),
            self._documents,
            self._pairs,
            self._sizes,
            self._clusters.renamed(other),
        )


def _add_products(pairs: ExactTable[GroupPair], groups: Mapping[str, list[int]]) -> None:
    """Add the products of one document or cluster, of whose `groups` [S, n] are given."""
    names = sorted(groups)
    for place, left in enumerate(names):
        for right in names[place:]:
            (s, n), (t, m) = groups[left], groups[right]
            pairs.add((left, right), [s * t, s * m, n * t, n * m])
