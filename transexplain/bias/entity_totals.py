"""What the mentions of every entity add up to, in a form that merges exactly.

Sums are integers in units of 2**-50, as in `aggregates`: any cut of a run into shards and any
order of merging gives the same bits. The stratum of a mention is what the statistics may be
split by: target, explained class, predicted class, label and slice.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from transexplain.bias.exact import UNITS, exact, total
from transexplain.types import Mention


class Stratum(NamedTuple):
    """One cell of the statistics; parts that do not apply are empty."""

    target: str
    class_name: str  #: explained
    predicted: str = ""
    label: str = ""
    slice: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class EntityRow:
    """The mentions of one entity of a group, over the strata that were asked for."""

    group: str
    entity: str
    documents: int
    mentions: int
    mean: float  #: relevance per mention, in the unit
    squares: float  #: sum over mentions of squared relevance
    share: float  #: mean over mentions of relevance / sum of |R| of the item
    positive: int  #: mentions with relevance above 0
    by_document: "DocumentSums"  #: of the entity with itself


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


@dataclass(slots=True)
class EntityTotals:
    """Totals of every entity in every stratum; of one shard, or of shards merged into it."""

    #: stratum -> (group, entity) -> [documents, mentions, sum, squares, share, positive,
    #: S S, S n, n n over documents]
    _rows: dict[Stratum, dict[tuple[str, str], list[int]]] = field(default_factory=dict)
    #: stratum -> group -> documents that mention it
    _documents: dict[Stratum, dict[str, int]] = field(default_factory=dict)
    #: stratum -> (group, group) -> [S S', S n', n S', n n'] over documents
    _pairs: dict[Stratum, dict[tuple[str, str], list[int]]] = field(default_factory=dict)

    def add(self, stratum: Stratum, mentions: Sequence[Mention], magnitude: float) -> None:
        """Count the mentions of one item for one of its attributions.

        `magnitude` is the sum of |R| over the item's positions. Raises ValueError for a relevance
        that is not finite.
        """
        entities: dict[tuple[str, str], list[int]] = {}
        groups: dict[str, list[int]] = {}
        for one in mentions:
            key, amount = (one.group, one.entity), exact(one.relevance)
            share = exact(one.relevance / magnitude if magnitude else 0.0)
            entry = [1, amount, exact(one.relevance**2), share, int(one.relevance > 0)]
            entities[key] = total(entities[key], entry) if key in entities else entry
            groups[one.group] = total(groups.get(one.group, [0, 0]), [amount, 1])
        rows = self._rows.setdefault(stratum, {})
        for key, entry in entities.items():
            n, amount = entry[:2]
            whole = [1, *entry, amount * amount, amount * n, n * n]
            rows[key] = total(rows[key], whole) if key in rows else whole
        self._count_documents(stratum, groups)

    def _count_documents(self, stratum: Stratum, groups: Mapping[str, list[int]]) -> None:
        documents = self._documents.setdefault(stratum, {})
        pairs = self._pairs.setdefault(stratum, {})
        names = sorted(groups)
        for place, left in enumerate(names):
            documents[left] = documents.get(left, 0) + 1
            for right in names[place:]:
                (s, n), (t, m) = groups[left], groups[right]
                sums = [s * t, s * m, n * t, n * m]
                pairs[left, right] = total(pairs.get((left, right), [0] * 4), sums)

    def merge(self, other: "EntityTotals") -> "EntityTotals":
        """Add the totals of `other` to these, and return these."""
        for mine, theirs in ((self._rows, other._rows), (self._pairs, other._pairs)):
            for stratum, entries in theirs.items():
                kept = mine.setdefault(stratum, {})
                for key, entry in entries.items():
                    kept[key] = total(kept[key], entry) if key in kept else list(entry)
        for stratum, counts in other._documents.items():
            documents = self._documents.setdefault(stratum, {})
            for group, count in counts.items():
                documents[group] = documents.get(group, 0) + count
        return self

    @property
    def strata(self) -> list[Stratum]:
        """Every stratum with a mention, sorted."""
        return sorted(self._rows)

    def rows(self, strata: Iterable[Stratum]) -> list[EntityRow]:
        """One row per entity of a group over these strata together, by group and entity."""
        sums: dict[tuple[str, str], list[int]] = {}
        for stratum in strata:
            for key, entry in self._rows.get(stratum, {}).items():
                sums[key] = total(sums[key], entry) if key in sums else entry
        return [_row(key, entry) for key, entry in sorted(sums.items())]

    def documents(self, strata: Iterable[Stratum]) -> dict[str, int]:
        """Items that mention each group; an item with several attributions counts for each."""
        found: dict[str, int] = {}
        for stratum in strata:
            for group, count in self._documents.get(stratum, {}).items():
                found[group] = found.get(group, 0) + count
        return found

    def pairs(self, strata: Iterable[Stratum]) -> dict[tuple[str, str], DocumentSums]:
        """Sums over documents for pairs of groups that share one, names in alphabetical order."""
        sums: dict[tuple[str, str], list[int]] = {}
        for stratum in strata:
            for key, entry in self._pairs.get(stratum, {}).items():
                sums[key] = total(sums[key], entry) if key in sums else entry
        return {
            key: _document_sums(s, left, right, n)
            for key, (s, left, right, n) in sorted(sums.items())
        }

    def to_json(self) -> list[dict[str, Any]]:
        """The totals as JSON values; equal totals give equal JSON."""
        return [
            {
                "stratum": list(stratum),
                "rows": _nested(self._rows[stratum]),
                "documents": dict(sorted(self._documents.get(stratum, {}).items())),
                "pairs": _nested(self._pairs.get(stratum, {})),
            }
            for stratum in sorted(self._rows)
        ]

    @classmethod
    def from_json(cls, content: Iterable[Mapping[str, Any]]) -> "EntityTotals":
        """Read what `to_json` wrote."""
        found = cls()
        for part in content:
            stratum = Stratum(*part["stratum"])
            found._rows[stratum] = dict(_flat(part["rows"]))
            found._documents[stratum] = dict(part["documents"])
            found._pairs[stratum] = dict(_flat(part["pairs"]))
        return found


def _row(key: tuple[str, str], entry: Sequence[int]) -> EntityRow:
    documents, mentions, amount, squares, share, positive, ss, sn, nn = entry
    return EntityRow(
        group=key[0],
        entity=key[1],
        documents=documents,
        mentions=mentions,
        mean=amount / (UNITS * mentions),
        squares=squares / UNITS,
        share=share / (UNITS * mentions),
        positive=positive,
        by_document=_document_sums(ss, sn, sn, nn),
    )


def _document_sums(relevance: int, left: int, right: int, mentions: int) -> DocumentSums:
    return DocumentSums(
        relevance=relevance / UNITS / UNITS,
        left=left / UNITS,
        right=right / UNITS,
        mentions=mentions,
    )


def _nested(entries: Mapping[tuple[str, str], list[int]]) -> dict[str, dict[str, list[int]]]:
    found: dict[str, dict[str, list[int]]] = {}
    for (first, second), entry in sorted(entries.items()):
        found.setdefault(first, {})[second] = entry
    return found


def _flat(
    nested: Mapping[str, Mapping[str, Sequence[int]]],
) -> Iterator[tuple[tuple[str, str], list[int]]]:
    for first, inner in nested.items():
        for second, entry in inner.items():
            yield (first, second), list(entry)
