"""One walk over a run's stored rows: what the report needs besides the stored totals.

Rows are read a page at a time and forgotten; what stays is a histogram, a few counters and as
many candidates for the gallery as it has places.
"""

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from transexplain.bias.histogram import Histogram, outer_edge
from transexplain.reports.records import FailureExample, FailureKind
from transexplain.reports.spans import largest, spans_of
from transexplain.types import Attribution, ItemFailure, ItemOutcome, PatchGrid

ClassKey = tuple[str, str]  #: target as asked, class name
_EXAMPLES = 5


@dataclass(slots=True)
class Sizes:
    """A histogram of positive numbers over any range in little memory, exact to 1 %."""

    _seen: Histogram = field(default_factory=Histogram)
    _largest: float = 0.0

    def add(self, size: float) -> None:
        """Count one number, at least 0."""
        self._seen.add(size)
        self._largest = max(self._largest, size)

    def quantile(self, share: float) -> float:
        """A number that `share` of those added do not exceed; 0 where none was added."""
        place = self._seen.bin_of(share)
        return min(self._largest, outer_edge(place)) if place else 0.0


@dataclass(slots=True)
class Best:
    """The keys with the largest numbers; among equals, those that came first."""

    places: int
    _heap: list[tuple[float, int, str]] = field(default_factory=list)
    _seen: int = 0

    def add(self, number: float, key: str) -> None:
        """Offer one key."""
        self._seen += 1
        entry = (number, -self._seen, key)
        if len(self._heap) < self.places:
            heapq.heappush(self._heap, entry)
        elif self.places:
            heapq.heappushpop(self._heap, entry)

    def keys(self) -> list[str]:
        """Best first, each once."""
        return list(dict.fromkeys(key for _, _, key in sorted(self._heap, reverse=True)))


@dataclass(slots=True)
class AttributionSurvey:
    """What a walk over all attributions found."""

    strongest: Best
    tolerance: float | None
    sizes: Sizes = field(default_factory=Sizes)
    count: Counter[ClassKey] = field(default_factory=Counter)
    logits: dict[ClassKey, float] = field(default_factory=dict)  #: sums
    leaves: set[str] = field(default_factory=set)
    units: set[str] = field(default_factory=set)
    above: int = 0  #: ledgers above the tolerance

    def walk(self, attributions: Iterable[Attribution]) -> "AttributionSurvey":
        """Read all of `attributions`, and return this."""
        for one in attributions:
            size = size_of(one)
            self.sizes.add(size)
            self.strongest.add(size, one.item_id)
            key = (one.target, one.class_name)
            self.count[key] += 1
            self.logits[key] = self.logits.get(key, 0.0) + one.logit
            self.leaves.add(one.at)
            self.units.add(one.unit)
            if one.ledger and self.tolerance is not None:
                self.above += one.ledger.relative_gap > self.tolerance
        return self


@dataclass(slots=True)
class ItemSurvey:
    """What a walk over all items found."""

    wrong: Best
    first: Best
    classes: Mapping[str, int]  #: class name -> index into the logits
    truncated: int = 0
    _failed: Counter[str] = field(default_factory=Counter)
    _examples: dict[str, list[FailureExample]] = field(default_factory=dict)

    def walk(self, items: Iterable[ItemOutcome | ItemFailure]) -> "ItemSurvey":
        """Read all of `items`, and return this."""
        for one in items:
            if isinstance(one, ItemFailure):
                self._add_failure(one)
            else:
                self._add_outcome(one)
        return self

    def failures(self) -> tuple[FailureKind, ...]:
        """By kind, the most frequent first."""
        kinds = sorted(self._failed.items(), key=lambda entry: (-entry[1], entry[0]))
        return tuple(
            FailureKind(kind=kind, count=count, examples=tuple(self._examples[kind]))
            for kind, count in kinds
        )

    def _add_outcome(self, one: ItemOutcome) -> None:
        self.truncated += one.truncated
        self.first.add(-one.index, one.item_id)
        if one.label is not None and one.label != one.predicted:
            self.wrong.add(self._margin(one), one.item_id)

    def _margin(self, one: ItemOutcome) -> float:
        """By how much the predicted class beats the labelled one, in logits."""
        label, predicted = self.classes.get(one.label or ""), self.classes.get(one.predicted)
        if label is None or predicted is None or not one.logits:
            return 0.0
        return one.logits[predicted] - one.logits[label]

    def _add_failure(self, one: ItemFailure) -> None:
        self._failed[one.kind] += 1
        examples = self._examples.setdefault(one.kind, [])
        if len(examples) < _EXAMPLES:
            examples.append(FailureExample(item_id=one.item_id, message=one.message))


def size_of(attribution: Attribution) -> float:
    """The largest |relevance| of a word (texts) or patch (images)."""
    if isinstance(attribution.features, PatchGrid):
        return float(np.abs(attribution.relevance).max(initial=0.0))
    return largest(spans_of(attribution)[1])
