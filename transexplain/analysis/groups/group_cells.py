"""Cells of the group table: the entities and documents of one group or its reference in one class,
and intervals that are clustered by both.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from transexplain.analysis.groups.entity_totals import (
    DocumentSums,
    EntityRow,
    EntityTotals,
    Stratum,
    quantile,
)
from transexplain.analysis.groups.intervals import Estimate
from transexplain.types.findings import Quantiles

ALL_OTHERS = "all other groups"

#: of a plan: one group for all; a group for some families; None: all other groups of the family
PlanReference = str | Mapping[str, str] | None


@dataclass(frozen=True, slots=True)
class Reference:
    """The groups that one group is compared with."""

    name: str  #: a group, or words for several of them
    groups: tuple[str, ...]  #: their entities; empty: it is the reference itself, or nobody else
    note: str = ""  #: why it is another one than the family's


def family(group: str) -> str:
    """The part of a group's name before its first slash; empty without a slash."""
    before, slash, _ = group.partition("/")
    return before if slash else ""


def references_of(reference: PlanReference, names: Iterable[str]) -> dict[str, Reference]:
    """The reference of every group, by the group's name.

    One group is the reference of all, whatever their family. A mapping names the reference of
    some families. Else a group is compared with all others of its family, and one that is alone
    in its family with all others there are.

    Args:
        reference: as the plan has it.
        names: of all groups of the plan, mentioned or not.
    """
    groups = tuple(dict.fromkeys(names))
    return {name: _reference(reference, name, groups) for name in groups}


def compared_with(reference: PlanReference, names: Iterable[str]) -> dict[str, set[str]]:
    """The groups that each is compared with, as the group or as the reference; never itself."""
    against: dict[str, set[str]] = {}
    for name, reference_of_name in references_of(reference, names).items():
        for other in reference_of_name.groups:
            against.setdefault(name, set()).add(other)
            against.setdefault(other, set()).add(name)
    return against


def reference_name(names: Iterable[str]) -> str:
    """The references of all rows of a table in a few words: the one that they share, if one."""
    shared = set(names)
    return shared.pop() if len(shared) == 1 else "their references" if shared else ALL_OTHERS


def _reference(planned: PlanReference, name: str, groups: tuple[str, ...]) -> Reference:
    kin = family(name)
    named = planned.get(kin) if isinstance(planned, Mapping) else planned
    if named is not None:
        return Reference(named, () if named == name else (named,))
    others = tuple(group for group in groups if group != name)
    relatives = tuple(other for other in others if family(other) == kin)
    if len(relatives) == len(others):
        return Reference(ALL_OTHERS, others)
    if relatives:
        of = f"of {kin}" if kin else "without a family"
        return Reference(f"{ALL_OTHERS} {of}", relatives)
    return Reference(ALL_OTHERS, others, f"its family has no other group, so against {ALL_OTHERS}")


_NONE = DocumentSums(relevance=0.0, left=0.0, right=0.0, mentions=0)
_CLOSE = 1e-9  #: numbers of documents this near are one
Pairs = Mapping[tuple[str, str], DocumentSums]


class _CellSide:
    """One side of the difference: its mean over mentions, and what each entity adds to it."""

    def __init__(
        self, rows: Sequence[EntityRow], sign: float, pairs: Pairs, mentions: Mapping[str, int]
    ) -> None:
        self.rows = rows
        self.groups = sorted({row.group for row in rows})
        self.mentions = sum(row.mentions for row in rows)
        self.mean = sum(row.mean * row.mentions for row in rows) / self.mentions
        self.weight = sign / self.mentions
        self.entities = self.mentions**2 / sum(row.mentions**2 for row in rows)
        whole = sum(mentions[group] for group in self.groups)
        squares = sum(_between(pairs, a, b).mentions for a in self.groups for b in self.groups)
        self.documents = whole**2 / squares

    def by_entity(self) -> float:
        """The variance between entities, with the factor of small samples."""
        sums = sum((row.mentions * (row.mean - self.mean)) ** 2 for row in self.rows)
        return self.weight**2 * sums * len(self.rows) / (len(self.rows) - 1)

    def meeting(self) -> float:
        """The variance of entity and document together, with the smaller factor of both."""
        units = max(len(self.rows), self.documents)
        return (
            self.weight**2
            * units
            / (units - 1)
            * sum(
                row.by_document.relevance
                - 2 * self.mean * row.by_document.left
                + self.mean**2 * row.by_document.mentions
                for row in self.rows
            )
        )

    @property
    def document_weight(self) -> float:
        """The weight of a mention with the root of the factor of small samples of documents."""
        return self.weight * math.sqrt(self.documents / (self.documents - 1))


def _by_document(sides: Sequence[_CellSide], pairs: Pairs) -> float:
    """The sum over documents of the squared sum of what its mentions add to the difference."""
    total = 0.0
    for side in sides:
        for other in sides:
            for group in side.groups:
                for with_ in other.groups:
                    sums = _between(pairs, group, with_)
                    product = sums.relevance - other.mean * sums.left - side.mean * sums.right
                    product += side.mean * other.mean * sums.mentions
                    total += side.document_weight * other.document_weight * product
    return total


def _between(pairs: Pairs, group: str, other: str) -> DocumentSums:
    if (group, other) in pairs:
        return pairs[group, other]
    turned = pairs.get((other, group), _NONE)
    return DocumentSums(
        relevance=turned.relevance,
        left=turned.right,
        right=turned.left,
        mentions=turned.mentions,
    )


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
        mine = {row.entity for row in self.groups[group]}
        theirs = {
            row.entity: row
            for other, rows in self.groups.items()
            if other in against
            for row in rows
        }
        apart = [row for entity, row in theirs.items() if entity not in mine]
        return apart, len(theirs) - len(apart)

    def two_way(self, left: Sequence[EntityRow], right: Sequence[EntityRow]) -> Estimate | None:
        """Difference of the means over *mentions* of a group's entities and its reference's.

        Its variance is clustered by entity and by document: that of entities plus that of documents
        minus that of their meeting (Cameron, Gelbach and Miller 2011, eq. 2.11), never below the
        larger of the first two. Documents of one cluster are one. Freedom is the least number of
        entities or documents of a side, less one, where k of unequal size count as the (sum n)^2 /
        sum n^2 of equal size that carry as much information (Carter, Schnepel and Steigerwald 2017,
        for clusters that differ in size alone).

        None where a side has fewer than two entities, or all of its mentions in one document.
        """
        if min(len(left), len(right)) < 2:
            return None
        mentions = {group: sum(row.mentions for row in of) for group, of in self.groups.items()}
        sides = [
            _CellSide(rows, sign, self.pairs, mentions)
            for rows, sign in ((left, 1.0), (right, -1.0))
        ]
        numbers = [min(side.entities, side.documents) for side in sides]
        if min(numbers) <= 1.0 + _CLOSE:
            return None
        by_entity = sum(side.by_entity() for side in sides)
        meeting = sum(side.meeting() for side in sides)
        by_document = _by_document(sides, self.pairs)
        variance = max(by_entity + by_document - meeting, by_entity, by_document, 0.0)
        return Estimate(
            difference=sides[0].mean - sides[1].mean,
            error=variance**0.5,
            freedom=min(numbers) - 1.0,
        )

    @property
    def unit(self) -> str:
        """The name of the unit of an item: its document, or its cluster."""
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
        quantiles={group: quantiles_of(bins) for group, bins in totals.sizes(strata).items()},
    )


def by_group(rows: Iterable[EntityRow]) -> dict[str, list[EntityRow]]:
    """Rows by their group, in order of first appearance."""
    groups: dict[str, list[EntityRow]] = {}
    for row in rows:
        groups.setdefault(row.group, []).append(row)
    return groups


def quantiles_of(bins: Mapping[int, int]) -> Quantiles:
    """The quantiles of numbers in bins that a box plot shows."""
    low, lower, median, upper, high = (quantile(bins, s) for s in (0.05, 0.25, 0.5, 0.75, 0.95))
    return Quantiles(low=low, lower=lower, median=median, upper=upper, high=high)
