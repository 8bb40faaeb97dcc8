"""The control of random weights: the same items explained by randomised models.

A difference between groups that a model with random weights shows, too, comes from the words or
the method and not from what the model learnt (Adebayo et al. 2018 for the idea). The logits of a
randomised model have another scale, so differences are compared as shares of the |relevance| of
their items, and what is judged is the ratio of the two. One draw of weights may have any difference
by chance, so several are used. Each explains its own part of the items, so they cost no more than
one, and the interval covers how much the parts disagree.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Literal

from transexplain.bias.cells import Cell, cells_of
from transexplain.bias.entity_totals import EntityTotals
from transexplain.bias.group_table import Rules, group_table, table_of
from transexplain.bias.intervals import MIN_ENTITIES, Interval
from transexplain.bias.ratios import ByName, Ratio, ratio_of
from transexplain.findings import GroupStatistic, Verdict

#: ratio from which on a randomised model shows a material part of a difference, and the least
#: that the lower end of its interval must then be
MATERIAL, AT_LEAST = 0.5, 0.25

Shown = Literal["material", "small", "unknown"]


@dataclass(slots=True)
class RandomisedTotals:
    """Totals of every entity over the sampled items, by the audited and the randomised models."""

    items: int = 0  #: explained by both
    failed: int = 0  #: sampled, but the randomised model could not be explained on them
    real: EntityTotals = field(default_factory=EntityTotals)
    draws: list[EntityTotals] = field(default_factory=list)  #: of the weights: each its own items

    @property
    def randomised(self) -> EntityTotals:
        """All draws together: the items of `real`."""
        whole = EntityTotals()
        for one in self.draws:
            whole.merge(one)
        return whole

    def of_draw(self, number: int) -> EntityTotals:
        """The totals of one draw, to be added to."""
        while len(self.draws) <= number:
            self.draws.append(EntityTotals())
        return self.draws[number]

    def merge(self, other: "RandomisedTotals") -> "RandomisedTotals":
        """Add the totals of `other` to these, and return these."""
        self.items += other.items
        self.failed += other.failed
        self.real.merge(other.real)
        for number, one in enumerate(other.draws):
            self.of_draw(number).merge(one)
        return self

    def to_json(self) -> dict[str, Any]:
        """As JSON values; equal totals give equal JSON."""
        draws = [one.to_json() for one in self.draws] or [[]]
        while len(draws) > 1 and not draws[-1]:
            draws.pop()
        found = {
            "items": self.items,
            "failed": self.failed,
            "real": self.real.to_json(),
            "randomised": draws[0],
        }
        return {**found, "further": draws[1:]} if draws[1:] else found

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "RandomisedTotals":
        """Read what `to_json` wrote, also when there was one draw."""
        draws = [content["randomised"], *content.get("further", ())]
        return cls(
            items=content["items"],
            failed=content["failed"],
            real=EntityTotals.from_json(content["real"]),
            draws=[EntityTotals.from_json(one) for one in draws],
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """One comparison by one of the two models, over the sampled items."""

    difference: float  #: in the unit; the scales of two models are not the same
    interval: Interval  #: 95 %
    share: float  #: the difference of shares of |R|
    share_interval: Interval  #: 95 %
    verdict: Verdict  #: by the rules of the group table, over the sampled items alone

    @property
    def sees_a_difference(self) -> bool:
        """Whether the interval of its shares excludes 0."""
        return self.share_interval[0] > 0.0 or self.share_interval[1] < 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class RandomisedRow:
    """One comparison of the group table, over the sampled items, by both models."""

    group: str
    target: str
    class_name: str
    entities: int  #: of the group, in the sampled items
    real: Measured
    randomised: Measured
    ratio: float | None = None  #: randomised over real difference of shares; None: real is 0
    ratio_interval: Interval | None = None  #: 95 %; None: the real one may be 0

    def shown(self, difference: float) -> Shown:
        """How much of this difference, in the unit, the randomised models show.

        *material*: at least `MATERIAL` of it, and the interval of the ratio begins at `AT_LEAST` or
        above: it comes from the words or the method, at least in part. *small*: the interval ends
        below `MATERIAL`. *unknown*: neither, or over the sampled items the audited model's
        difference has the other sign or may be 0.
        """
        if self.ratio is None or self.ratio_interval is None or self.real.share * difference <= 0:
            return "unknown"
        low, high = self.ratio_interval
        if self.ratio >= MATERIAL and low >= AT_LEAST:
            return "material"
        return "small" if high < MATERIAL else "unknown"

    def survives(self, difference: float) -> bool:
        """Whether the randomised models show a material part of this difference."""
        return self.shown(difference) == "material"


@dataclass(frozen=True, kw_only=True, slots=True)
class Randomised:
    """The groups as the randomised models see them."""

    items: int
    failed: int
    rows: tuple[RandomisedRow, ...]  #: comparisons with enough entities in the sampled items
    differences: int  #: verdicts of *difference* of the audited model over the sampled items
    randomised_differences: int  #: and of the randomised ones together
    draws: int = 1  #: of the weights, that explained an item with a mention


def randomised_control(totals: RandomisedTotals, rules: Rules) -> Randomised | None:
    """Both models judged over the same items by the same rules; None where no item was sampled."""
    if not totals.items + totals.failed:
        return None
    cells = cells_of(totals.real)
    real, random = table_of(cells, rules), group_table(totals.randomised, rules)
    by_key = {_key(row): row for row in random}
    by_class = {(one.target, one.class_name): one for one in cells}
    draws = [one for one in totals.draws if one.strata]
    rows = [
        _row(row, mine, theirs, _ratio(row, by_class[row.target, row.class_name], draws, rules))
        for row in real
        if (mine := _measured(row)) and (theirs := _measured(by_key[_key(row)]))
    ]
    return Randomised(
        items=totals.items,
        failed=totals.failed,
        rows=tuple(rows),
        differences=_flagged(real),
        randomised_differences=_flagged(random),
        draws=max(1, len(draws)),
    )


def _row(
    row: GroupStatistic, mine: Measured, theirs: Measured, ratio: Ratio | None
) -> RandomisedRow:
    return RandomisedRow(
        group=row.group,
        target=row.target,
        class_name=row.class_name,
        entities=row.entities,
        real=mine,
        randomised=theirs,
        ratio=ratio.ratio if ratio else None,
        ratio_interval=ratio.interval if ratio else None,
    )


def _ratio(
    row: GroupStatistic, cell: Cell, draws: Sequence[EntityTotals], rules: Rules
) -> Ratio | None:
    """Of the entities that the row compares: those of two sides, or shared ones with themselves."""
    against = rules.references([cell])[row.group].groups
    left, right = list(cell.groups[row.group]), cell.others(row.group, against)[0]
    if len(right) < MIN_ENTITIES:
        own = {one.entity for one in left}
        others = (rows for group, rows in cell.groups.items() if group in against)
        right = [one for one in chain(*others) if one.entity in own]
        both = {one.entity for one in right}
        left = [one for one in left if one.entity in both]
    return ratio_of(left, right, [_by_name(row, one) for one in draws])


def _by_name(row: GroupStatistic, totals: EntityTotals) -> ByName:
    key = row.target, row.class_name
    strata = [one for one in totals.strata if (one.target, one.class_name) == key]
    return {(one.group, one.entity): one for one in totals.rows(strata)}


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
