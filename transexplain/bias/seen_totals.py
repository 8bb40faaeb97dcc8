"""What a run's attributions are of and how large their logits are, in a form that merges exactly.

A report needs these few numbers of every attribution; a shard adds them up while it has the rows
at hand, so that nobody has to read them all again. Logits are summed in units of 2**-50.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from transexplain.bias.exact import UNITS, exact
from transexplain.types import Attribution

ClassKey = tuple[str, str]  #: target as asked, class name


@dataclass(slots=True)
class SeenTotals:
    """Attributions by target and class; of one shard, or of shards merged into it."""

    count: Counter[ClassKey] = field(default_factory=Counter)
    leaves: set[str] = field(default_factory=set)  #: where relevance was measured
    units: set[str] = field(default_factory=set)
    _logits: Counter[ClassKey] = field(default_factory=Counter)

    def add(self, attribution: Attribution) -> None:
        """Count one attribution; raises ValueError where its logit is not finite."""
        key = (attribution.target, attribution.class_name)
        try:
            self._logits[key] += exact(attribution.logit)
        except ValueError:
            raise ValueError(
                f"item {attribution.item_id!r} has a logit that is not finite"
            ) from None
        self.count[key] += 1
        self.leaves.add(attribution.at)
        self.units.add(attribution.unit)

    def mean_logit(self, key: ClassKey) -> float:
        """Over the attributions of a target and class; 0 where there are none."""
        count = self.count[key]
        return self._logits[key] / (UNITS * count) if count else 0.0

    def merge(self, other: "SeenTotals") -> "SeenTotals":
        """Add the totals of `other` to these, and return these."""
        # not Counter.update, which is slow on few keys, nor `+=`, which drops what is not positive
        for key, count in other.count.items():
            self.count[key] += count
            self._logits[key] += other._logits[key]
        self.leaves |= other.leaves
        self.units |= other.units
        return self

    def to_json(self) -> dict[str, Any]:
        """The totals as JSON values; equal totals give equal JSON."""
        return {
            "classes": [[*key, self.count[key], self._logits[key]] for key in sorted(self.count)],
            "leaves": sorted(self.leaves),
            "units": sorted(self.units),
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "SeenTotals":
        """Read what `to_json` wrote."""
        rows = content["classes"]
        return cls(
            count=Counter({(target, name): count for target, name, count, _ in rows}),
            leaves=set(content["leaves"]),
            units=set(content["units"]),
            _logits=Counter({(target, name): summed for target, name, _, summed in rows}),
        )
