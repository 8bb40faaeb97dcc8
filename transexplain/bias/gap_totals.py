"""Totals of the ledgers' gaps in items that mention a group; they merge exactly.

A gap is a small part of its scale, in double precision as small as the unit of the other sums, so
gaps are summed in units of 2**-100.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from transexplain.bias.exact_totals import UNITS, ExactTable, exact
from transexplain.types import Attribution

ALL = ""  #: stands for every item; no group is called so


@dataclass(slots=True)
class GapTotals:
    """Relative gaps of ledgers by group; of one shard, or of shards merged into it."""

    #: group or `ALL` -> [items, ledgers, sum of their relative gaps]
    _sums: ExactTable[str] = field(default_factory=ExactTable)

    def add(self, attributions: Iterable[Attribution], groups: Collection[str]) -> None:
        """Count the ledgers of one item that mentions `groups`; without a ledger, nothing.

        Raises ValueError where a gap is not finite.
        """
        gaps = [
            exact(one.ledger.relative_gap * UNITS) for one in attributions if one.ledger is not None
        ]
        if gaps:
            entry = [1, len(gaps), sum(gaps)]
            for group in (ALL, *groups):
                self._sums.add(group, entry)

    def merge(self, other: "GapTotals") -> "GapTotals":
        """Add the totals of `other` to these, and return these."""
        self._sums.merge(other._sums)
        return self

    def means(self) -> dict[str, tuple[int, float]]:
        """Group or `ALL` -> items with a ledger, and the mean relative gap of these ledgers."""
        return {
            group: (items, summed / (UNITS * UNITS * ledgers))
            for group, (items, ledgers, summed) in self._sums.items()
        }

    def to_json(self) -> list[list[Any]]:
        """[group, items, ledgers, sum] by group; equal totals give equal JSON."""
        return [[group, *entry] for group, entry in sorted(self._sums.items())]

    @classmethod
    def from_json(cls, content: Iterable[Sequence[Any]]) -> "GapTotals":
        """Read what `to_json` wrote."""
        return cls(ExactTable({group: entry for group, *entry in content}))
