"""Totals of a run's attributions by target and class, and of their logits; they merge exactly.

A report needs these few numbers of every attribution; a shard adds them up while it has the rows
at hand, so that nobody has to read them all again. Logits are summed in units of 2**-50.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from transexplain.bias.exact_totals import UNITS, ExactTable, exact
from transexplain.types import Attribution

ClassKey = tuple[str, str]  #: target of the plan, class name


@dataclass(slots=True)
class SeenTotals:
    """Attributions by target and class; of one shard, or of shards merged into it."""

    leaves: set[str] = field(default_factory=set)  #: where relevance was measured
    units: set[str] = field(default_factory=set)
    _sums: ExactTable[ClassKey] = field(default_factory=ExactTable)  #: [attributions, logits]

    def add(self, attribution: Attribution) -> None:
        """Count one attribution; raises ValueError where its logit is not finite."""
        key = (attribution.target, attribution.class_name)
        try:
            self._sums.add(key, [1, exact(attribution.logit)])
        except ValueError:
            raise ValueError(
                f"item {attribution.item_id!r} has a logit that is not finite"
            ) from None
        self.leaves.add(attribution.at)
        self.units.add(attribution.unit)

    @property
    def count(self) -> Counter[ClassKey]:
        """Attributions of every target and class."""
        return Counter({key: count for key, (count, _) in self._sums.items()})

    def mean_logit(self, key: ClassKey) -> float:
        """Over the attributions of a target and class; 0 where there are none."""
        count, summed = self._sums.get(key, (0, 0))
        return summed / (UNITS * count) if count else 0.0

    def merge(self, other: "SeenTotals") -> "SeenTotals":
        """Add the totals of `other` to these, and return these."""
        self._sums.merge(other._sums)
        self.leaves |= other.leaves
        self.units |= other.units
        return self

    def to_json(self) -> dict[str, Any]:
        """The totals as JSON values; equal totals give equal JSON."""
        return {
            "classes": [[*key, *row] for key, row in sorted(self._sums.items())],
            "leaves": sorted(self.leaves),
            "units": sorted(self.units),
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "SeenTotals":
        """Read what `to_json` wrote."""
        return cls(
            leaves=set(content["leaves"]),
            units=set(content["units"]),
            _sums=ExactTable(
                {
                    (target, name): [count, summed]
                    for target, name, count, summed in content["classes"]
                }
            ),
        )
