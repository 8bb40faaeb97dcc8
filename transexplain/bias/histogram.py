"""A histogram of signed numbers over any range in little memory, which merges exactly."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

_STEP = math.log(1.01)  # width of a bin: 1 %
_FLOOR = -745.0  # the logarithm of the smallest float is above it, so that no bin is the 0th


@dataclass(slots=True)
class Histogram:
    """Counts in bins of 1 % of the number's size; the bin of -x mirrors that of x.

    Counts are integers: any cut into parts and any order of merging give the same histogram.
    """

    #: signed number of the bin -> numbers in it; ascending bins hold ascending numbers, 0 zero
    counts: dict[int, int] = field(default_factory=dict)

    def add(self, value: float) -> None:
        """Count one finite number."""
        place = math.ceil((math.log(abs(value)) - _FLOOR) / _STEP) if value else 0
        signed = place if value > 0.0 else -place
        self.counts[signed] = self.counts.get(signed, 0) + 1

    def merge(self, other: "Histogram") -> "Histogram":
        """Add the counts of `other` to these, and return these."""
        for place, count in other.counts.items():
            self.counts[place] = self.counts.get(place, 0) + count
        return self

    def bin_of(self, share: float) -> int | None:
        """The lowest bin such that `share` of the numbers lie in it or below; None: no numbers."""
        left = max(1, math.ceil(share * sum(self.counts.values()) - 1e-9))
        for place in sorted(self.counts):
            left -= self.counts[place]
            if left <= 0:
                return place
        return None

    def quantile(self, share: float) -> float:
        """That of the numbers which `share` of them do not exceed, to 0.5 %; 0 without any."""
        place = self.bin_of(share) or 0
        return math.copysign(outer_edge(abs(place) - 0.5), place) if place else 0.0

    def to_json(self) -> list[list[int]]:
        """[bin, count] by bin."""
        return [[place, count] for place, count in sorted(self.counts.items())]

    @classmethod
    def from_json(cls, content: Iterable[tuple[int, int]]) -> "Histogram":
        """Read what `to_json` wrote."""
        return cls(dict(content))


def outer_edge(place: float) -> float:
    """The largest size of a number in the bin `place` above 0."""
    return math.exp(place * _STEP + _FLOOR)
