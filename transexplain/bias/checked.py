"""Results of the controls: sampled items ablated, swapped, hidden, or explained by other models."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from transexplain.bias.counterfactuals import (
    Observation,
    observations_from_json,
    observations_to_json,
)
from transexplain.bias.exact_sample import ExactSample
from transexplain.bias.randomised import RandomisedTotals
from transexplain.bias.regions import HiddenRegion, regions_from_json, regions_to_json
from transexplain.bias.removals import Removal, removals_to_json


@dataclass(slots=True)
class Checked:
    """The results of one shard, or of shards merged into it; lists are in any order."""

    removals: list[Removal] = field(default_factory=list)
    #: of swapped mentions, and of items made from one template
    observations: list[Observation] = field(default_factory=list)
    regions: list[HiddenRegion] = field(default_factory=list)  #: of pictures, hidden
    randomised: RandomisedTotals = field(default_factory=RandomisedTotals)
    exact: ExactSample | None = None  #: None: the run's method explains alone

    def merge(self, other: Self) -> Self:
        """Add what `other` holds to this, and return this."""
        self.removals += other.removals
        self.observations += other.observations
        self.regions += other.regions
        self.randomised.merge(other.randomised)
        if other.exact is not None:
            self.exact = (self.exact or ExactSample()).merge(other.exact)
        return self

    def to_json(self) -> dict[str, Any]:
        """As JSON values; equal checks give equal JSON."""
        found = {
            "removals": removals_to_json(self.removals),
            "observations": observations_to_json(self.observations),
            "randomised": self.randomised.to_json(),
        }
        if self.regions:
            found["regions"] = regions_to_json(self.regions)
        return found if self.exact is None else {**found, "exact": self.exact.to_json()}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote; a check that is not there was not made."""
        randomised, exact = content.get("randomised"), content.get("exact")
        return cls(
            removals=[Removal(**one) for one in content.get("removals", ())],
            observations=observations_from_json(content.get("observations", ())),
            regions=regions_from_json(content.get("regions", ())),
            randomised=RandomisedTotals.from_json(randomised) if randomised else RandomisedTotals(),
            exact=ExactSample.from_json(exact) if exact else None,
        )
