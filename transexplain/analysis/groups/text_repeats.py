"""Counts texts that repeat each other word for word, in data that nobody reads as a whole.

Texts are drawn by their hash, so all copies of a text are drawn or none is (coordinated sampling,
Cohen and Kaplan 2007): the share of repeats among those drawn is an unbiased figure of all, and
shards may be merged in any order.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from transexplain.analysis.groups.exact_totals import Counts
from transexplain.data.item_clusters import MOST
from transexplain.randomness import keyed_number
from transexplain.types.plans import AuditPlan

#: texts that are drawn of a whole dataset, about; of fewer all are
DRAWN = 65_536
_ALL = 2**64


@dataclass(slots=True)
class TextRepeats:
    """The texts that were drawn in one shard, or in the shards merged into it."""

    below: int  #: hashes that are drawn, of 2**64
    texts: Counts[int] = field(default_factory=Counts)  #: hash -> items of this text

    @classmethod
    def of(cls, plan: AuditPlan) -> Self | None:
        """The totals of a plan with nothing counted.

        None where planning has read all texts, and where they are not stored as they are: who has a
        text could tell by its hash that it was among them.
        """
        rows, privacy = plan.dataset.rows, plan.privacy
        kept = privacy is None or (privacy.store_text == "full" and privacy.redact is None)
        if not plan.dataset.manifest or rows <= MOST or not kept:
            return None
        return cls(below=min(_ALL, _ALL * DRAWN // rows))

    def add(self, text: str) -> None:
        """Count a text if it is drawn."""
        number = keyed_number(text)
        if number < self.below:
            self.texts.add(number)

    def merge(self, other: Self) -> Self:
        """Add what `other` holds, which is of the same dataset, and return this."""
        self.texts.merge(other.texts)
        return self

    @property
    def drawn(self) -> int:
        """Items whose text was drawn."""
        return sum(self.texts.values())

    @property
    def repeating(self) -> int:
        """Of these the items whose text another item has, too."""
        return sum(count for count in self.texts.values() if count > 1)

    def to_json(self) -> dict[str, Any]:
        """As JSON values; equal totals give equal JSON."""
        return {
            "below": str(self.below),
            "texts": [list(one) for one in sorted(self.texts.items())],
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote."""
        texts = Counts({int(number): int(count) for number, count in content["texts"]})
        return cls(below=int(content["below"]), texts=texts)
