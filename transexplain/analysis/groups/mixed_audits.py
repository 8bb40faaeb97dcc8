"""Mixed audits: how far the cheap method agrees with the exact one, and the corrected group table.

Estimates are prediction-powered: a cheap method on all items, corrected by an exact one on a
sample. The sample is kept as rows, not as sums, because a mention's weight (one over all mentions
of its entity) is only known when the run is over. Rows are sorted, so that shards merge in any
order.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import TypeVar

import numpy as np

from transexplain.analysis.groups.entity_totals import DocumentSums, EntityRow
from transexplain.analysis.groups.group_cells import Cell
from transexplain.analysis.groups.group_table import Rules, table_of
from transexplain.analysis.groups.intervals import MIN_ENTITIES, Estimate, Interval
from transexplain.analysis.groups.resampling import permutation_p
from transexplain.analysis.groups.verdict_rules import adjusted, judge
from transexplain.types.findings import Count, Finite, GroupStatistic


@dataclass(frozen=True, kw_only=True, slots=True)
class MethodAgreement:
    """The agreement of the two methods on one item, for one explained class."""

    item_id: str
    target: str
    class_name: str
    correlation: Finite | None  #: Spearman's over its own positions; None: too few values differ
    error: Finite | None  #: L2 norm of cheap - exact over that of exact; None: exact is 0
    cheap: Finite  #: sum over its own positions, in logits
    exact: Finite


@dataclass(frozen=True, kw_only=True, slots=True)
class PairedMentions:
    """The mentions of one entity of a group in one item, by both methods."""

    item_id: str
    target: str
    class_name: str  #: explained
    predicted: str
    label: str  #: "": it has none
    slice: str
    group: str
    entity: str
    mentions: Count
    cheap: Finite  #: sum over these mentions, in logits
    exact: Finite


_BY_MENTION = attrgetter("target", "class_name", "item_id", "group", "entity", "cheap", "exact")


@dataclass(slots=True)
class ExactSample:
    """The exact sample of one shard, or of shards merged into it; lists are in any order."""

    items: Count = 0  #: explained by both
    failed: Count = 0  #: sampled and explained by the cheap method, but not by the exact one
    agreements: list[MethodAgreement] = field(default_factory=list)
    mentions: list[PairedMentions] = field(default_factory=list)

    def merge(self, other: "ExactSample") -> None:
        """Add what `other` holds."""
        self.items += other.items
        self.failed += other.failed
        self.agreements += other.agreements
        self.mentions += other.mentions

    def by_class(self) -> dict[tuple[str, str], list[PairedMentions]]:
        """The mentions of each (target, class), sorted by these and by item."""
        by_class: dict[tuple[str, str], list[PairedMentions]] = {}
        for mention in sorted(self.mentions, key=_BY_MENTION):
            by_class.setdefault((mention.target, mention.class_name), []).append(mention)
        return by_class


#: sampled items that mention a group; with fewer the spread of the corrections is not known
MIN_SAMPLED = 30
UNSEEN = 3.0  #: items of the size of the sample on which the cheap method may be wrong unseen
FAR = 3.0  #: how wrong, in standard deviations of the exact relevance of items
WORTH = 0.9  #: width over that of the exact sample alone, from which on it is used alone

UNEVEN = "the corrections are too uneven to rely on: exact sample alone"
UNRELATED = "the cheap method says too little of the exact one: exact sample alone"

_Key = TypeVar("_Key")
#: (group, entity) -> weight of each of its mentions
Weights = Mapping[tuple[str, str], float]


@dataclass(frozen=True, kw_only=True, slots=True)
class Sampled:
    """A weighted mean over the sampled mentions, and what each item and entity brings to it.

    With w the weights and x = exact - lambda cheap, the influence of a mention is w (x - mean)
    over the sum of all w.
    """

    mean: float  #: in logits; 0 where nothing was sampled
    fraction: float  #: of all items, that was sampled
    influences: Mapping[str, float]  #: item -> sum over its mentions
    sizes: Mapping[str, float]  #: item -> its share of all weight
    by_entity: Mapping[tuple[str, str], float]  #: sum over the mentions of an entity
    entity_sizes: Mapping[tuple[str, str], float]  #: its share of all weight
    crossed: float  #: sum of squares of influences by entity and item
    unseen: float = 0.0  #: variance of errors that a sample like this misses

    @property
    def items(self) -> int:
        """Sampled items that have such a mention."""
        return len(self.influences)

    @property
    def variance(self) -> float:
        """Of the mean, over samples of items from all items of the run.

        By linearisation; each item's part is what it would be were the mean taken without it, as
        the jackknife has it, because a heavy item pulls the mean towards itself.
        """
        if self.items < 2:
            return math.inf
        return (1.0 - self.fraction) * (_jackknife(self.influences, self.sizes) + self.unseen)

    @property
    def freedom(self) -> float:
        """Satterthwaite's, of a variance of which every item brings its squared share of weight.

        It is the number of items where all weigh the same; at most that number less one.
        """
        return _freedom(self.sizes)

    @property
    def over_entities(self) -> Estimate:
        """The mean with entities as the clusters, for at least two; any items may be sampled."""
        variance = _jackknife(self.by_entity, self.entity_sizes)
        freedom = _freedom(self.entity_sizes)
        return Estimate(difference=self.mean, error=math.sqrt(variance), freedom=freedom)

    def estimate(self, added: float = 0.0) -> Estimate:
        """The mean plus what is known without error, for at least two items."""
        return Estimate(
            difference=added + self.mean, error=math.sqrt(self.variance), freedom=self.freedom
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Corrected:
    """The cheap method's mean over some mentions, corrected by the exact sample."""

    scale: float  #: lambda; 0: the exact sample alone
    found: Sampled  #: of exact - lambda cheap
    exact: Sampled  #: of the exact sample alone
    reason: str = ""  #: why the exact sample is used alone; "": it is not

    @property
    def alone(self) -> bool:
        """Return whether the estimate uses the exact sample alone."""
        return bool(self.reason)


def corrected(
    rows: Sequence[PairedMentions],
    members: Sequence[EntityRow],
    weights: Weights,
    fraction: float,
) -> Corrected:
    """The mean that leaves the smallest variance, or the exact sample alone.

    Args:
        rows: the sample, of one target and class.
        members: the same entities over all items, by the cheap method.
        weights: of the mentions of every entity that counts.
        fraction: of the run's items, that was sampled; at 1 nothing is left to chance.
    """
    exact = sampled(rows, weights, fraction, scale=0.0)
    if exact.items < 2 or fraction == 1.0:
        plain = tuned(rows, weights)
        mean = sampled(rows, weights, fraction, scale=plain)
        return Corrected(scale=plain, found=mean, exact=exact)
    # the variance, at lambda 1, of errors of the cheap method that the sample is too small to show
    squares = math.fsum(u * u for u in exact.influences.values())
    unseen = UNSEEN * FAR**2 * squares / exact.items + _missing(rows, members, weights)
    scale = tuned(rows, weights, unseen)
    mean = sampled(rows, weights, fraction, scale=scale)
    mean = replace(mean, unseen=scale * scale * unseen)
    if mean.variance <= WORTH**2 * exact.variance:
        return Corrected(scale=scale, found=mean, exact=exact)
    optimistic = sampled(rows, weights, fraction, scale=tuned(rows, weights))
    uneven = optimistic.variance <= WORTH**2 * exact.variance
    return Corrected(scale=0.0, found=exact, exact=exact, reason=UNEVEN if uneven else UNRELATED)


def _missing(
    rows: Sequence[PairedMentions], members: Sequence[EntityRow], weights: Weights
) -> float:
    """Return how much more the cheap method varies over all mentions than over the sampled ones.

    As variance of the mean over a sample of this size: squares are summed by item and entity.
    """
    weighted = [(weights[member.group, member.entity], member) for member in members]
    total = math.fsum(w * member.mentions for w, member in weighted)
    mean = math.fsum(w * member.mentions * member.mean for w, member in weighted) / total
    squares = math.fsum(w * w * _squares(member.by_document, mean) for w, member in weighted)
    weight = math.fsum(weights.get((row.group, row.entity), 0.0) * row.mentions for row in rows)
    seen = _weighted(rows, weights, 0.0, [row.cheap for row in rows]).crossed
    return max(0.0, squares / (total * weight) - seen)


def _squares(sums: DocumentSums, mean: float) -> float:
    """Sum over documents of (relevance - mentions * mean) ** 2."""
    return sums.relevance - 2.0 * mean * sums.left + mean * mean * sums.mentions


def tuned(rows: Sequence[PairedMentions], weights: Weights, unseen: float = 0.0) -> float:
    """Lambda, 0 to 1: how much of the cheap method's mean leaves the smallest variance.

    `unseen` is the variance, at lambda 1, of errors that the sample does not show.
    """
    exact = sampled(rows, weights, 0.0, scale=0.0).influences
    both = sampled(rows, weights, 0.0, scale=1.0).influences
    cheap = {item: u - both[item] for item, u in exact.items()}
    squares = math.fsum(u * u for u in cheap.values()) + unseen
    products = math.fsum(u * cheap[item] for item, u in exact.items())
    return min(1.0, max(0.0, products / squares)) if squares else 1.0


def sampled(
    rows: Sequence[PairedMentions], weights: Weights, fraction: float, *, scale: float = 1.0
) -> Sampled:
    """The weighted (Hajek) mean of exact - `scale` cheap over the mentions that have a weight.

    Args:
        rows: of one target and class.
        weights: of the mentions of every entity that counts.
        fraction: of the run's items, that was sampled; at 1 nothing is left to chance.
        scale: lambda; 0 is the exact sample alone.
    """
    return _weighted(rows, weights, fraction, [row.exact - scale * row.cheap for row in rows])


def _weighted(
    rows: Sequence[PairedMentions], weights: Weights, fraction: float, values: Sequence[float]
) -> Sampled:
    """The weighted mean of `values`, one for every row."""
    used = [
        (row, w, x)
        for row, x in zip(rows, values, strict=True)
        if (w := weights.get((row.group, row.entity)))
    ]
    total = math.fsum(w * row.mentions for row, w, _ in used)
    mean = math.fsum(w * x for _, w, x in used) / total if total else 0.0
    parts = [(row, w * (x - mean * row.mentions) / total) for row, w, x in used]
    sizes = [(row, w * row.mentions / total) for row, w, _ in used]
    both = _sums(((row.item_id, row.group, row.entity), u) for row, u in parts)
    return Sampled(
        mean=mean,
        fraction=fraction,
        influences=_sums((row.item_id, u) for row, u in parts),
        sizes=_sums((row.item_id, size) for row, size in sizes),
        by_entity=_sums(((row.group, row.entity), u) for row, u in parts),
        entity_sizes=_sums(((row.group, row.entity), size) for row, size in sizes),
        crossed=math.fsum(u * u for u in both.values()),
    )


def _jackknife(influences: Mapping[_Key, float], sizes: Mapping[_Key, float]) -> float:
    """Variance of the mean over clusters, each as if the mean were taken without it."""
    if len(influences) < 2:
        return math.inf
    left = [u / (1.0 - sizes[key]) for key, u in influences.items()]
    return math.fsum(u * u for u in left)


def _freedom(sizes: Mapping[_Key, float]) -> float:
    squares = [size * size for size in sizes.values()]
    freedom = math.fsum(squares) ** 2 / math.fsum(square * square for square in squares)
    return max(1.0, min(freedom, len(sizes) - 1))


def _sums(pairs: Iterable[tuple[_Key, float]]) -> dict[_Key, float]:
    groups: dict[_Key, list[float]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return {key: math.fsum(values) for key, values in groups.items()}


@dataclass(frozen=True, kw_only=True, slots=True)
class ClassAgreement:
    """The agreement of the methods on sampled items, for one target and class."""

    target: str
    class_name: str
    items: int
    correlation: float | None  #: median of Spearman's over the positions of an item; None: no item
    spread: Interval | None  #: 5 % and 95 % of items lie below
    error: float | None  #: median of the L2 norm of cheap - exact over that of exact
    cheap: float  #: mean sum over an item's own positions, in logits
    exact: float


@dataclass(frozen=True, kw_only=True, slots=True)
class MixedGroup:
    """The mean over all mentions of one group, by the cheap method and corrected; in logits."""

    group: str
    target: str
    class_name: str
    mentions: int  #: of all items
    documents: int
    items: int  #: sampled, that mention the group
    cheap: float
    weight: float | None  #: lambda: of the cheap mean in the corrected one; 0: it has no part
    correction: float | None  #: None: too few sampled items, so it is not corrected
    corrected: float | None
    interval: Interval | None  #: 95 %, of what the exact method gives on all items
    alone: float | None  #: mean of the exact sample without the cheap method
    alone_interval: Interval | None
    needed: float | None  #: exact_sample that would do; None: corrected, or one item
    reason: str = ""  #: why the exact sample stands alone in it; "": it does not

    @property
    def narrowing(self) -> float | None:
        """Width of the interval over that of the exact sample alone."""
        if self.interval is None or self.alone_interval is None:
            return None
        alone = self.alone_interval[1] - self.alone_interval[0]
        return (self.interval[1] - self.interval[0]) / alone if alone else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Mixed:
    """The exact sample of a run, and its findings."""

    method: str  #: cheap, of every item
    exact: str
    share: float  #: of items, in the plan
    items: int  #: explained by both
    failed: int  #: the exact method could not; they left the sample
    classes: tuple[ClassAgreement, ...]
    groups: tuple[MixedGroup, ...]


def fraction_of(sample: ExactSample, items: int) -> float:
    """Return which part of a run's explained items the sample is."""
    return min(1.0, sample.items / items) if items else 0.0


def needed_share(size: float, least: int = MIN_SAMPLED) -> float:
    """The exact_sample at which of so many items about `least` are drawn, to 1 %; 1 is all."""
    return min(1.0, math.ceil(125 * least / size) / 100)  # a quarter to spare


def class_agreements(agreements: Iterable[MethodAgreement]) -> tuple[ClassAgreement, ...]:
    """One row per (target, class), sorted by these."""
    by_class: dict[tuple[str, str], list[MethodAgreement]] = {}
    for agreement in agreements:
        by_class.setdefault((agreement.target, agreement.class_name), []).append(agreement)
    return tuple(_class(*key, by_class[key]) for key in sorted(by_class))


def _class(target: str, class_name: str, rows: Sequence[MethodAgreement]) -> ClassAgreement:
    ranks = sorted(row.correlation for row in rows if row.correlation is not None)
    errors = sorted(row.error for row in rows if row.error is not None)
    low, middle, high = np.quantile(ranks, (0.05, 0.5, 0.95)) if ranks else (0.0, 0.0, 0.0)
    return ClassAgreement(
        target=target,
        class_name=class_name,
        items=len({row.item_id for row in rows}),
        correlation=float(middle) if ranks else None,
        spread=(float(low), float(high)) if ranks else None,
        error=float(np.median(errors)) if errors else None,
        cheap=float(np.mean(sorted(row.cheap for row in rows))),
        exact=float(np.mean(sorted(row.exact for row in rows))),
    )


def mixed_groups(
    cells: Iterable[Cell], sample: ExactSample, fraction: float
) -> tuple[MixedGroup, ...]:
    """One row per (target, class, group), sorted by these."""
    rows: dict[tuple[str, str, str], list[PairedMentions]] = {}
    for key, mentions in sample.by_class().items():
        for mention in mentions:
            rows.setdefault((*key, mention.group), []).append(mention)
    return tuple(
        _group(cell, group, rows.get((cell.target, cell.class_name, group), ()), fraction)
        for cell in cells
        for group in sorted(cell.groups)
    )


def _group(cell: Cell, group: str, rows: Sequence[PairedMentions], fraction: float) -> MixedGroup:
    members = cell.groups[group]
    mentions = sum(member.mentions for member in members)
    cheap = sum(member.mentions * member.mean for member in members) / mentions
    weights = {(group, member.entity): 1.0 for member in members}
    both = corrected(rows, members, weights, fraction)
    scale, mean, exact = both.scale, both.found, both.exact
    enough = mean.items >= MIN_SAMPLED or (fraction == 1.0 and mean.items > 1)
    documents = cell.documents[group]
    estimate = mean.estimate(scale * cheap) if enough else None
    return MixedGroup(
        group=group,
        target=cell.target,
        class_name=cell.class_name,
        mentions=mentions,
        documents=documents,
        items=mean.items,
        cheap=cheap,
        weight=scale if enough else None,
        correction=estimate.difference - cheap if estimate else None,
        corrected=estimate.difference if estimate else None,
        interval=estimate.interval() if estimate else None,
        alone=exact.mean if enough else None,
        alone_interval=exact.estimate().interval() if enough else None,
        needed=None if enough or documents < 2 else needed_share(documents),
        reason=both.reason if enough else "",
    )


#: sampled mentions, were all of one weight, that carry as much information; entities that are
#: mentioned seldom weigh so much that a sample without them is of little use
MIN_EFFECTIVE = 10


@dataclass(frozen=True, slots=True)
class _CorrectedSide:
    """The entities of one side of a difference, corrected."""

    means: Sequence[float]  #: of entities, by the cheap method times lambda
    by: Corrected
    size: float  #: equally weighted mentions that carry as much information as all of the run's
    keys: Sequence[tuple[str, str]]

    @classmethod
    def of(
        cls, members: Sequence[EntityRow], rows: Sequence[PairedMentions], fraction: float
    ) -> "_CorrectedSide":
        weights = {(member.group, member.entity): 1.0 / member.mentions for member in members}
        by = corrected(rows, members, weights, fraction)
        size = len(members) ** 2 / math.fsum(weights.values())
        return cls([by.scale * member.mean for member in members], by, size, list(weights))

    @property
    def found(self) -> Sampled:
        """The estimate by the sample."""
        return self.by.found

    @property
    def enough(self) -> bool:
        """Return whether the sample is large enough to correct by."""
        mean = self.found
        if mean.fraction == 1.0:
            return mean.items > 1
        if mean.items < MIN_SAMPLED or mean.fraction * self.size < MIN_EFFECTIVE:
            return False
        return not self.by.alone or len(mean.by_entity) >= MIN_ENTITIES

    @property
    def corrected(self) -> list[float]:
        """The entities' means, all moved by the same."""
        return [mean + self.found.mean for mean in self.means]

    @property
    def estimate(self) -> Estimate:
        """The corrected mean of the group with the error over entities and sampled items."""
        mean = self.found
        entities = mean.over_entities if self.by.alone else self._over_entities
        crossed = (1.0 - mean.fraction) * mean.crossed
        items = max(0.0, mean.variance - crossed)
        whole = entities.error**2 + items
        share = items / whole if whole else 0.0
        freedom = 1.0 / (share**2 / mean.freedom + (1.0 - share) ** 2 / entities.freedom)
        return replace(entities, error=math.sqrt(whole), freedom=freedom)

    @property
    def _over_entities(self) -> Estimate:
        n, middle = len(self.means), math.fsum(self.means) / len(self.means)
        parts = [
            (mean - middle) / n + self.found.by_entity.get(key, 0.0)
            for mean, key in zip(self.means, self.keys, strict=True)
        ]
        variance = n / (n - 1) * math.fsum(part * part for part in parts)
        difference = middle + self.found.mean
        return Estimate(difference=difference, error=math.sqrt(variance), freedom=n - 1)


def mixed_table(
    cells: Sequence[Cell], rules: Rules, sample: ExactSample, fraction: float
) -> list[GroupStatistic]:
    """As `group_table.table_of`, with means, differences and verdicts corrected by the sample.

    Robustness rows, ranks and quantiles stay those of the cheap method. A comparison that the
    sample is too small for keeps the cheap figures and is *inconclusive*.
    """
    pairs = sample.by_class()
    by_key = {(cell.target, cell.class_name): cell for cell in cells}
    references, estimates = rules.references(cells), []
    for row in table_of(cells, rules):
        key = row.target, row.class_name
        others, _ = by_key[key].others(row.group, references[row.group].groups)
        sides = by_key[key].groups[row.group], others
        estimates.append(_corrected(row, sides, pairs.get(key, []), rules, fraction))
    p = adjusted([row.p for row, _ in estimates], rules.correction)
    return [
        _judged(
            row,
            estimate,
            value,
            rules,
            by_key[row.target, row.class_name],
            references[row.group].groups,
        )
        for (row, estimate), value in zip(estimates, p, strict=True)
    ]


def _judged(
    row: GroupStatistic,
    estimate: Estimate | None,
    p: float | None,
    rules: Rules,
    cell: Cell,
    against: Sequence[str],
) -> GroupStatistic:
    if estimate is None:
        return row
    others, _ = cell.others(row.group, against)
    both = cell.two_way(cell.groups[row.group], others) if cell.pairs else None
    if both is not None:  # the cheap method's, about the corrected difference
        error = max(both.error, estimate.error)
        both = Estimate(difference=estimate.difference, error=error, freedom=both.freedom)
    verdict = judge(estimate, p, rules.practical, both=both)
    return replace(row, adjusted_p=p, verdict=verdict.verdict, reason=verdict.reason)


def _corrected(
    row: GroupStatistic,
    sides: tuple[Sequence[EntityRow], Sequence[EntityRow]],
    pairs: Sequence[PairedMentions],
    rules: Rules,
    fraction: float,
) -> tuple[GroupStatistic, Estimate | None]:
    members, others = sides
    left = _CorrectedSide.of(members, pairs, fraction)
    row = _with_means(row, left, members, pairs, fraction)
    if row.difference is None:
        return row, None
    if row.note.startswith("within "):
        return _uncorrected(row, "comparisons within shared entities are not corrected"), None
    right = _CorrectedSide.of(others, pairs, fraction)
    poor = next((side for side in (left, right) if not side.enough), None)
    if poor is not None:
        return _uncorrected(row, _too_few(row, poor, poor is left)), None
    a, b = left.estimate, right.estimate
    parts = (a.error**2, a.freedom), (b.error**2, b.freedom)
    shared = 2.0 * math.fsum(  # items that mention both sides
        u * right.found.influences.get(item, 0.0) for item, u in left.found.influences.items()
    )
    variance = sum(square for square, _ in parts)
    common = (1.0 - left.found.fraction) * min(0.0, shared)
    freedom = variance**2 / sum(square**2 / of for square, of in parts) if variance else 1.0
    estimate = Estimate(
        difference=a.difference - b.difference,
        error=math.sqrt(variance - common),
        freedom=freedom,
    )
    statistic = replace(
        row,
        difference=estimate.difference,
        difference_interval=estimate.interval(),
        interval_by="t",
        p=_p(left, right, estimate, rules, (row.group, row.target, row.class_name)),
        detectable=estimate.detectable,
    )
    if right.by.alone:
        statistic = replace(
            statistic, note=_joined(row.note, f"of the reference: {right.by.reason}")
        )
    return statistic, estimate


def _p(
    left: _CorrectedSide,
    right: _CorrectedSide,
    estimate: Estimate,
    rules: Rules,
    names: tuple[str, str, str],
) -> float:
    """The larger p of the t test and, where entities can change sides, of a permutation."""
    if left.by.alone or right.by.alone:
        return estimate.p_beyond(0.0)
    by_order = permutation_p(
        left.corrected,
        right.corrected,
        seed=(rules.seed, *names),
        permutations=rules.permutations,
    )
    return max(by_order, estimate.p_beyond(0.0))


def _with_means(
    row: GroupStatistic,
    side: _CorrectedSide,
    members: Sequence[EntityRow],
    pairs: Sequence[PairedMentions],
    fraction: float,
) -> GroupStatistic:
    if not side.enough:
        return replace(row, note=_joined(row.note, "not corrected by the exact sample"))
    weights = {(member.group, member.entity): 1.0 for member in members}
    by = corrected(pairs, members, weights, fraction)
    estimate = side.estimate if len(members) >= MIN_ENTITIES else None
    return replace(
        row,
        mean=by.scale * row.mean + by.found.mean,
        entity_mean=math.fsum(side.corrected) / len(members),
        interval=estimate.interval() if estimate else row.interval,
        note=_joined(row.note, side.by.reason) if side.by.alone else row.note,
    )


def _uncorrected(row: GroupStatistic, why: str) -> GroupStatistic:
    note = row.note if "not corrected" in row.note else _joined(row.note, f"not corrected: {why}")
    return replace(row, p=None, adjusted_p=None, verdict="inconclusive", reason=why, note=note)


def _too_few(row: GroupStatistic, side: _CorrectedSide, of_group: bool) -> str:
    whose = f"{row.group!r}" if of_group else "the reference"
    items = side.found.items
    more = math.ceil(125 * MIN_SAMPLED / items * side.found.fraction) / 100 if items else 1.0
    seldom = side.found.fraction * side.size < MIN_EFFECTIVE
    if items >= MIN_SAMPLED and not seldom:
        return (
            f"not corrected: the exact sample has {len(side.found.by_entity)} entities of {whose}, "
            "too few to stand alone; a larger exact_sample would do"
        )
    needed = min(1.0, max(needed_share(side.size, MIN_EFFECTIVE), more))
    why = "" if items < MIN_SAMPLED else " for how seldom some of its entities are mentioned"
    return (
        f"not corrected: the exact sample has {items} items with {whose}, too few{why}; "
        f"exact_sample: {needed:g} would do"
    )


def _joined(note: str, more: str) -> str:
    return f"{note}; {more}" if note else more
