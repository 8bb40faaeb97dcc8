"""What looking at drawn items again gave: removals, swaps, and the randomised model."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from transexplain.bias.randomised import RandomisedTotals
from transexplain.bias.removals import Removal, removals_to_json
from transexplain.bias.swaps import Swap, swaps_to_json


@dataclass(slots=True)
class Checked:
    """The checks of one shard, or of shards merged into it; lists are in any order."""

    removals: list[Removal] = field(default_factory=list)
    swaps: list[Swap] = field(default_factory=list)
    randomised: RandomisedTotals = field(default_factory=RandomisedTotals)

    def merge(self, other: "Checked") -> "Checked":
        """Add what `other` holds to this, and return this."""
        self.removals += other.removals
        self.swaps += other.swaps
        self.randomised.merge(other.randomised)
        return self

    def to_json(self) -> dict[str, Any]:
        """As JSON values; equal checks give equal JSON."""
        return {
            "removals": removals_to_json(self.removals),
            "swaps": swaps_to_json(self.swaps),
            "randomised": self.randomised.to_json(),
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "Checked":
        """Read what `to_json` wrote; a check that is not there was not made."""
        randomised = content.get("randomised")
        return cls(
            removals=[Removal(**one) for one in content.get("removals", ())],
            swaps=[Swap(**one) for one in content.get("swaps", ())],
            randomised=RandomisedTotals.from_json(randomised) if randomised else RandomisedTotals(),
        )
