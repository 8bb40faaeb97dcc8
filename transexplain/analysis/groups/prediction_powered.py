"""Prediction-powered estimates: a cheap method on all items, corrected by an exact one on a sample.

The exact sample is kept as rows, not as sums, because a mention's weight (one over all mentions of
its entity) is only known when the run is over. Rows are sorted, so that shards merge in any order.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import TypeVar

from transexplain.analysis.groups.entity_totals import DocumentSums, EntityRow
from transexplain.analysis.groups.intervals import Estimate
from transexplain.types.findings import Count, Finite


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
