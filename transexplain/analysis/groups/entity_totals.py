"""Totals of relevance by entity and class, exact and mergeable, and the rows that statistics
read.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from transexplain.errors import ConfigurationError
from transexplain.store.exact_sums import UNITS, Key, Sums, Table, add_row, counts, exact
from transexplain.types.items import Mention
from transexplain.types.relevance_sums import bin_of, outer_edge


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


def entity_row(key: Key, entry: Sequence[int]) -> EntityRow:
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


def signed_bin(value: float) -> int:
    """The bin of a finite number: that of its size, 1 % of it wide, with its sign.

    The bin of -x mirrors that of x; ascending bins hold ascending numbers, bin 0 holds zeros.
    """
    place = bin_of(abs(value))
    return place if value > 0.0 else -place


def quantile(bins: Mapping[int, int], share: float) -> float:
    """That of numbers, counted by `signed_bin`, which `share` of them do not exceed, to 0.5 %.

    0 without any.
    """
    left = max(1, math.ceil(share * sum(bins.values()) - 1e-9))
    for place in sorted(bins):
        left -= bins[place]
        if left <= 0:
            return math.copysign(outer_edge(abs(place) - 0.5), place) if place else 0.0
    return 0.0


class EntityTotals:
    """Totals of every entity in every stratum.

    They are five totals of `sums`, named after `name`:

    - rows: (group, entity) -> [documents, mentions, sum, squares, share, positive, S S, S n, n n
      over documents without a cluster, sum of ranks, mentions with a rank]
    - documents: (group,) -> [documents that mention it]
    - pairs: (group, group) in order, or one twice -> [S S', S n', n S', n n'] over documents
      without a cluster
    - sizes: (group, `signed_bin`) -> [mentions of this relevance]
    - clusters: (cluster, group, entity) -> [S, n]
    """

    def __init__(self, sums: Sums | None = None, name: str = "entities") -> None:
        self.sums = Sums() if sums is None else sums
        self.name = name

    def _named(self, part: str) -> str:
        return f"{self.name}.{part}"

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
        entities, groups = Table(), Table()
        sizes = self.sums.table(self._named("sizes"), stratum)
        for mention, rank in zip(mentions, ranks or [None] * len(mentions), strict=True):
            amount = exact(mention.relevance)
            share = exact(mention.relevance / magnitude if magnitude else 0.0)
            squared = round(mention.relevance**2 * UNITS)
            entry = [1, amount, squared, share, int(mention.relevance > 0)]
            entry += [0, 0] if rank is None else [exact(rank), 1]
            add_row(sizes, (mention.group, signed_bin(mention.relevance)), [1])
            add_row(entities, (mention.group, mention.entity), entry)
            add_row(groups, (mention.group,), [amount, 1])
        rows = self.sums.table(self._named("rows"), stratum)
        for key, entry in entities.items():
            n, amount = entry[:2]
            products = [0] * 3 if cluster else [amount * amount, amount * n, n * n]
            add_row(rows, key, [1, *entry[:5], *products, *entry[5:]])
        documents = self.sums.table(self._named("documents"), stratum)
        for key in groups:
            add_row(documents, key, [1])
        if not cluster:
            _add_products(self.sums.table(self._named("pairs"), stratum), groups)
            return
        clusters = self.sums.table(self._named("clusters"), stratum)
        for (group, entity), (n, amount, *_) in entities.items():
            add_row(clusters, (cluster, group, entity), [amount, n])

    def merge(self, other: "EntityTotals") -> "EntityTotals":
        """Add what `other` holds to this, and return this."""
        self.sums.merge(other.sums, other._named(""), self._named(""))
        return self

    def remove(self, groups: Collection[str]) -> None:
        """Leave out what was counted for these groups."""
        for part, first, last in (
            ("rows", 0, 1),
            ("documents", 0, 1),
            ("pairs", 0, 2),
            ("sizes", 0, 1),
            ("clusters", 1, 2),
        ):

            def kept(key: Key, names: slice = slice(first, last)) -> Key | None:
                return None if set(key[names]) & set(groups) else key

            self.sums.rename(self._named(part), kept)

    def rename(self, groups: Collection[str], rename: Callable[[str], str]) -> None:
        """Give the entities of these groups other names."""

        def other(key: Key) -> Key:
            *cluster, group, entity = key
            return (*cluster, group, rename(entity) if group in groups else entity)

        for part in ("rows", "clusters"):
            self.sums.rename(self._named(part), other)

    @property
    def strata(self) -> list[Stratum]:
        """Every stratum with a mention, sorted."""
        rows = self.sums.strata(self._named("rows"))
        return sorted(Stratum(*key) for key, table in rows.items() if table)

    def rows(self, strata: Iterable[Stratum]) -> list[EntityRow]:
        """One row per entity of a group over these strata together, by group and entity."""
        strata = list(strata)
        rows = self.sums.over(self._named("rows"), strata)
        for (_, *key), (amount, n) in self._over_clusters(strata).items():
            if (entity := (key[0], key[1])) not in rows:
                raise ConfigurationError(
                    f"a saved aggregate has {key[1]!r} in a cluster and nowhere else: run the "
                    "audit again"
                )
            add_row(rows, entity, [*[0] * 6, amount * amount, amount * n, n * n, 0, 0])
        return [entity_row(key, entry) for key, entry in sorted(rows.items())]

    def _over_clusters(self, strata: Iterable[Stratum]) -> Table:
        return self.sums.over(self._named("clusters"), strata)

    def documents(self, strata: Iterable[Stratum]) -> dict[str, int]:
        """Items that mention each group; an item with several attributions counts for each."""
        return counts(self.sums.over(self._named("documents"), strata))

    def sizes(self, strata: Iterable[Stratum]) -> dict[str, dict[int, int]]:
        """The mentions of each group by the `signed_bin` of their relevance."""
        sizes: dict[str, dict[int, int]] = {}
        for (group, place), (count,) in self.sums.over(self._named("sizes"), strata).items():
            sizes.setdefault(group, {})[place] = count
        return sizes

    def pairs(self, strata: Iterable[Stratum]) -> dict[tuple[str, str], DocumentSums]:
        """Sums over documents and clusters for pairs of groups that share one, names in order."""
        strata = list(strata)
        pairs = self.sums.over(self._named("pairs"), strata)
        together: dict[str, Table] = {}
        for (cluster, group, _), entry in self._over_clusters(strata).items():
            add_row(together.setdefault(cluster, {}), (group,), entry)
        for groups in together.values():
            _add_products(pairs, groups)
        return {
            (group, other): document_sums(*entry) for (group, other), entry in sorted(pairs.items())
        }

    def clusters(self, strata: Iterable[Stratum]) -> int:
        """The number of clusters of items; items without one do not count."""
        return len({cluster for cluster, *_ in self._over_clusters(strata)})


def _add_products(pairs: Table, groups: Mapping[Key, list[int]]) -> None:
    """Add the products of one document or cluster, of whose `groups` [S, n] are given."""
    names = sorted(groups)
    for place, left in enumerate(names):
        for right in names[place:]:
            (s, n), (t, m) = groups[left], groups[right]
            add_row(pairs, (*left, *right), [s * t, s * m, n * t, n * m])
