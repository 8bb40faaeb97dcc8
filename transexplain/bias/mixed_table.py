"""The group table of a mixed audit: differences of the cheap method, corrected by the exact sample.

What is corrected is the mean over entities of entity means, so a mention weighs one over all the
run's mentions of its entity. The error holds both chances: which entities there are, and which
items were drawn. With z of an entity its part of the cheap mean plus its part of the correction,
the sum of squares of z is the first and, at a whole sample, that of the exact method alone; items
that mention several entities add to it (clusters two ways, as in `two_way`).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from scipy.special import stdtr

from transexplain.bias.cells import Cell
from transexplain.bias.entity_rows import EntityRow
from transexplain.bias.exact_sample import ExactSample, PairedMentions
from transexplain.bias.group_table import Rules, table_of
from transexplain.bias.intervals import MIN_ENTITIES, Estimate, one_sample
from transexplain.bias.mixed import needed_share
from transexplain.bias.multiplicity import adjusted
from transexplain.bias.permutation import permutation_p
from transexplain.bias.prediction_powered import MIN_SAMPLED, Sampled, sampled, tuned
from transexplain.bias.verdicts import judge
from transexplain.findings import GroupStatistic

#: sampled mentions, were all of one weight, that say as much; entities that are mentioned seldom
#: weigh so much that a sample without them says little
MIN_EFFECTIVE = 10


@dataclass(frozen=True, slots=True)
class _Side:
    """The entities of one side of a difference, corrected."""

    means: Sequence[float]  #: of entities, by the cheap method times lambda
    found: Sampled
    size: float  #: mentions that all weigh the same and say as much as all of the run's
    keys: Sequence[tuple[str, str]]

    @classmethod
    def of(
        cls, members: Sequence[EntityRow], rows: Sequence[PairedMentions], fraction: float
    ) -> "_Side":
        weights = {(one.group, one.entity): 1.0 / one.mentions for one in members}
        scale = tuned(rows, weights)
        found = sampled(rows, weights, fraction, scale=scale)
        size = len(members) ** 2 / math.fsum(weights.values())
        return cls([scale * one.mean for one in members], found, size, list(weights))

    @property
    def enough(self) -> bool:
        """Whether the sample says what has to be corrected."""
        found = self.found
        if found.fraction == 1.0:
            return found.items > 1
        return found.items >= MIN_SAMPLED and found.fraction * self.size >= MIN_EFFECTIVE

    @property
    def corrected(self) -> list[float]:
        """The entities' means, all moved by the same."""
        return [mean + self.found.mean for mean in self.means]

    @property
    def estimate(self) -> Estimate:
        """The corrected mean of the group with the error over entities and sampled items."""
        n, found, cheap = len(self.means), self.found, one_sample(self.means)
        middle = math.fsum(self.means) / n
        parts = [
            (mean - middle) / n + found.by_entity.get(key, 0.0)
            for mean, key in zip(self.means, self.keys, strict=True)
        ]
        own = n / (n - 1) * math.fsum(one * one for one in parts)
        crossed = (1.0 - found.fraction) * found.crossed
        variance = own + max(0.0, found.variance - crossed)
        share = found.variance / whole if (whole := found.variance + cheap.error**2) else 0.0
        freedom = 1.0 / (share**2 / found.freedom + (1.0 - share) ** 2 / cheap.freedom)
        return Estimate(difference=middle + found.mean, error=math.sqrt(variance), freedom=freedom)


def mixed_table(
    cells: Sequence[Cell], rules: Rules, sample: ExactSample, fraction: float
) -> list[GroupStatistic]:
    """As `group_table.table_of`, with means, differences and verdicts corrected by the sample.

    Robustness rows, ranks and quantiles stay those of the cheap method. A comparison that the
    sample says too little about keeps the cheap figures and is *inconclusive*.
    """
    pairs = sample.by_class()
    by_key = {(cell.target, cell.class_name): cell for cell in cells}
    found = []
    for row in table_of(cells, rules):
        key = row.target, row.class_name
        found.append(_corrected(row, by_key[key], pairs.get(key, []), rules, fraction))
    p = adjusted([row.p for row, _ in found], rules.correction)
    return [
        _judged(row, estimate, value, rules)
        for (row, estimate), value in zip(found, p, strict=True)
    ]


def _judged(
    row: GroupStatistic, estimate: Estimate | None, p: float | None, rules: Rules
) -> GroupStatistic:
    if estimate is None:
        return row
    verdict = judge(estimate, p, rules.practical)
    return replace(row, adjusted_p=p, verdict=verdict.verdict, reason=verdict.reason)


def _corrected(
    row: GroupStatistic,
    cell: Cell,
    pairs: Sequence[PairedMentions],
    rules: Rules,
    fraction: float,
) -> tuple[GroupStatistic, Estimate | None]:
    members = cell.groups[row.group]
    left = _Side.of(members, pairs, fraction)
    row = _with_means(row, left, members, pairs, fraction)
    if row.difference is None:
        return row, None
    if row.note.startswith("within "):
        return _open(row, "comparisons within shared entities are not corrected"), None
    others, _ = cell.others(row.group, rules.reference)
    right = _Side.of(others, pairs, fraction)
    poor = next((side for side in (left, right) if not side.enough), None)
    if poor is not None:
        return _open(row, _too_few(row, poor, poor is left)), None
    estimate = _difference(left, right)
    seed = (rules.seed, row.group, row.target, row.class_name)
    by_order = permutation_p(
        left.corrected, right.corrected, seed=seed, permutations=rules.permutations
    )
    corrected = replace(
        row,
        difference=estimate.difference,
        difference_interval=estimate.interval(),
        interval_by="t",
        p=max(by_order, _t_test(estimate)),
        detectable=estimate.detectable,
    )
    return corrected, estimate


def _with_means(
    row: GroupStatistic,
    side: _Side,
    members: Sequence[EntityRow],
    pairs: Sequence[PairedMentions],
    fraction: float,
) -> GroupStatistic:
    if not side.enough:
        return replace(row, note=_joined(row.note, "not corrected by the exact sample"))
    weights = {(one.group, one.entity): 1.0 for one in members}
    scale = tuned(pairs, weights)
    estimate = side.estimate if len(members) >= MIN_ENTITIES else None
    return replace(
        row,
        mean=scale * row.mean + sampled(pairs, weights, fraction, scale=scale).mean,
        entity_mean=math.fsum(side.corrected) / len(members),
        interval=estimate.interval() if estimate else row.interval,
    )


def _difference(left: _Side, right: _Side) -> Estimate:
    a, b = left.estimate, right.estimate
    parts = (a.error**2, a.freedom), (b.error**2, b.freedom)
    shared = 2.0 * math.fsum(  # items that mention both sides
        u * right.found.influences.get(item, 0.0) for item, u in left.found.influences.items()
    )
    variance = sum(one for one, _ in parts)
    common = (1.0 - left.found.fraction) * min(0.0, shared)
    freedom = variance**2 / sum(one**2 / of for one, of in parts) if variance else 1.0
    return Estimate(
        difference=a.difference - b.difference,
        error=math.sqrt(variance - common),
        freedom=freedom,
    )


def _t_test(estimate: Estimate) -> float:
    """Two-sided p of no difference."""
    if estimate.error == 0.0:
        return float(estimate.difference == 0.0)
    return float(2.0 * stdtr(estimate.freedom, -abs(estimate.difference) / estimate.error))


def _open(row: GroupStatistic, why: str) -> GroupStatistic:
    note = row.note if "not corrected" in row.note else _joined(row.note, f"not corrected: {why}")
    return replace(row, p=None, adjusted_p=None, verdict="inconclusive", reason=why, note=note)


def _too_few(row: GroupStatistic, side: _Side, own: bool) -> str:
    whose = f"{row.group!r}" if own else "the reference"
    items = side.found.items
    more = math.ceil(125 * MIN_SAMPLED / items * side.found.fraction) / 100 if items else 1.0
    needed = min(1.0, max(needed_share(side.size, MIN_EFFECTIVE), more))
    seldom = "" if items < MIN_SAMPLED else " for how seldom some of its entities are mentioned"
    return (
        f"not corrected: the exact sample has {items} items with {whose}, too few{seldom}; "
        f"exact_sample: {needed:g} would do"
    )


def _joined(note: str, more: str) -> str:
    return f"{note}; {more}" if note else more
