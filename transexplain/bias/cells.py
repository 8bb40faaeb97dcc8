"""The entities of every group for one target and class: what one part of a group table reads."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from transexplain.bias.entity_rows import EntityRow
from transexplain.bias.entity_totals import EntityTotals, Stratum
from transexplain.bias.exact_totals import Histogram
from transexplain.bias.intervals import Estimate
from transexplain.bias.two_way import Pairs, two_way
from transexplain.findings import Quantiles


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """The entities of every group for one target and class."""

    target: str
    class_name: str
    groups: Mapping[str, Sequence[EntityRow]]
    documents: Mapping[str, int]  #: group -> items that mention it
    pairs: Pairs  #: sums over documents; empty: the two-way interval is left out
    clusters: int = 0  #: of several items that count as one; those without one count alone
    quantiles: Mapping[str, Quantiles] = field(default_factory=dict)  #: of mentions' relevance

    def others(self, group: str, against: Collection[str]) -> tuple[list[EntityRow], int]:
        """Entities of the groups `against` that `group` has not, and how many it has, too."""
        own = {row.entity for row in self.groups[group]}
        theirs = {
            row.entity: row
            for other, rows in self.groups.items()
            if other in against
            for row in rows
        }
        apart = [row for entity, row in theirs.items() if entity not in own]
        return apart, len(theirs) - len(apart)

    def two_way(self, left: Sequence[EntityRow], right: Sequence[EntityRow]) -> Estimate | None:
        """The difference with an interval over entities and documents; see `two_way`."""
        mentions = {group: sum(row.mentions for row in of) for group, of in self.groups.items()}
        return two_way(left, right, self.pairs, mentions)

    @property
    def unit(self) -> str:
        """What an item counts as by itself or with others."""
        return "cluster" if self.clusters else "document"


def cells_of(totals: EntityTotals) -> list[Cell]:
    """One cell per (target, class), sorted by these; strata within are added up."""
    return [cell_of(totals, parts) for parts in by_class(totals).values()]


def by_class(totals: EntityTotals) -> dict[tuple[str, str], list[Stratum]]:
    """The strata of each (target, class), sorted by these."""
    strata: dict[tuple[str, str], list[Stratum]] = {}
    for stratum in totals.strata:
        strata.setdefault((stratum.target, stratum.class_name), []).append(stratum)
    return strata


def cell_of(totals: EntityTotals, strata: Sequence[Stratum]) -> Cell:
    """Strata of one target and class together."""
    return Cell(
        target=strata[0].target,
        class_name=strata[0].class_name,
        groups=by_group(totals.rows(strata)),
        documents=totals.documents(strata),
        pairs=totals.pairs(strata),
        clusters=totals.clusters(strata),
        quantiles={
            group: quantiles_of(histogram) for group, histogram in totals.histograms(strata).items()
        },
    )


def by_group(rows: Iterable[EntityRow]) -> dict[str, list[EntityRow]]:
    """Rows by their group, in order of first appearance."""
    found: dict[str, list[EntityRow]] = {}
    for row in rows:
        found.setdefault(row.group, []).append(row)
    return found


def quantiles_of(histogram: Histogram) -> Quantiles:
    """What a box plot shows of a histogram."""
    quantile = histogram.quantile
    return Quantiles(
        low=quantile(0.05),
        lower=quantile(0.25),
        median=quantile(0.5),
        upper=quantile(0.75),
        high=quantile(0.95),
    )
