"""The control that has learnt nothing: the same items explained by a randomised model.

A difference between groups that a model with random weights shows, too, comes from the words or
the method and not from what the model learnt (Adebayo et al. 2018 for the idea). The logits of a
randomised model have another scale, so differences are compared as shares of the |relevance| of
their items.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from transexplain.bias.entity_totals import EntityTotals
from transexplain.bias.group_table import Rules, group_table
from transexplain.bias.intervals import Interval
from transexplain.findings import GroupStatistic, Verdict


@dataclass(slots=True)
class RandomisedTotals:
    """Totals of every entity over the drawn items, by the audited and the randomised model."""

    items: int = 0  #: explained by both
    failed: int = 0  #: drawn, but the randomised model could not be explained on them
    real: EntityTotals = field(default_factory=EntityTotals)
    randomised: EntityTotals = field(default_factory=EntityTotals)

    def merge(self, other: "RandomisedTotals") -> "RandomisedTotals":
        """Add the totals of `other` to these, and return these."""
        self.items += other.items
        self.failed += other.failed
        self.real.merge(other.real)
        self.randomised.merge(other.randomised)
        return self

    def to_json(self) -> dict[str, Any]:
        """As JSON values; equal totals give equal JSON."""
        return {
            "items": self.items,
            "failed": self.failed,
            "real": self.real.to_json(),
            "randomised": self.randomised.to_json(),
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "RandomisedTotals":
        """Read what `to_json` wrote."""
        return cls(
            items=content["items"],
            failed=content["failed"],
            real=EntityTotals.from_json(content["real"]),
            randomised=EntityTotals.from_json(content["randomised"]),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """One comparison by one of the two models, over the drawn items."""

    difference: float  #: in the unit; the scales of two models are not the same
    interval: Interval  #: 95 %
    share: float  #: the difference of shares of |R|
    share_interval: Interval  #: 95 %
    verdict: Verdict  #: by the rules of the group table, over the drawn items alone

    @property
    def sees_a_difference(self) -> bool:
        """Whether the interval of its shares excludes 0."""
        return self.share_interval[0] > 0.0 or self.share_interval[1] < 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class RandomisedRow:
    """One comparison of the group table, over the drawn items, by both models."""

    group: str
    target: str
    class_name: str
    entities: int  #: of the group, in the drawn items
    real: Measured
    randomised: Measured

    def survives(self, difference: float) -> bool:
        """Whether the randomised model has this difference, too, in sign and beyond its interval.

        It then comes from the words or the method, at least in part.
        """
        return self.randomised.sees_a_difference and self.randomised.share * difference > 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Randomised:
    """What the randomised model says of the groups."""

    items: int
    failed: int
    rows: tuple[RandomisedRow, ...]  #: comparisons with enough entities in the drawn items
    differences: int  #: verdicts of *difference* of the audited model over the drawn items
    randomised_differences: int  #: and of the randomised one


def randomised_control(totals: RandomisedTotals, rules: Rules) -> Randomised | None:
    """Both models judged over the same items by the same rules; None where no item was drawn."""
    if not totals.items + totals.failed:
        return None
    real, random = group_table(totals.real, rules), group_table(totals.randomised, rules)
    by_key = {_key(row): row for row in random}
    rows = [
        RandomisedRow(
            group=row.group,
            target=row.target,
            class_name=row.class_name,
            entities=row.entities,
            real=mine,
            randomised=theirs,
        )
        for row in real
        if (mine := _measured(row)) and (theirs := _measured(by_key[_key(row)]))
    ]
    return Randomised(
        items=totals.items,
        failed=totals.failed,
        rows=tuple(rows),
        differences=_flagged(real),
        randomised_differences=_flagged(random),
    )


def _key(row: GroupStatistic) -> tuple[str, str, str]:
    return row.group, row.target, row.class_name


def _measured(row: GroupStatistic) -> Measured | None:
    share = next((one for one in row.robustness if one.unit == "share"), None)
    if row.difference is None or row.difference_interval is None or share is None:
        return None
    return Measured(
        difference=row.difference,
        interval=row.difference_interval,
        share=share.difference,
        share_interval=share.interval,
        verdict=row.verdict,
    )


def _flagged(rows: Sequence[GroupStatistic]) -> int:
    return sum(row.flagged for row in rows)
