"""Means of a cheap method's relevance corrected by an exact sample, with their intervals.

Prediction-powered inference (Angelopoulos et al. 2023), which for a mean is the difference
estimator of survey sampling: lambda times the mean of the cheap method over everything plus the
mean of exact - lambda cheap over the sample. Lambda, 0 to 1, is tuned to the sample (Angelopoulos,
Duchi and Zrnic 2023, PPI++): a cheap method that says nothing about the exact one is left out
instead of adding its noise.
The interval is about what the exact method would have given on all items of the run. It holds
whatever the cheap method is, because nothing is assumed of it: items are the clusters, and the
freedom of the t distribution is that of the clusters' weights, because few heavy items say little
(`benchmarks.prediction_powered` measures the coverage).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from transexplain.bias.exact_sample import PairedMentions
from transexplain.bias.intervals import Estimate

#: sampled items that mention a group; with fewer the spread of the corrections is not known
MIN_SAMPLED = 30

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
    crossed: float  #: sum of squares of influences by entity and item

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
        left = [u / (1.0 - self.sizes[item]) for item, u in self.influences.items()]
        return (1.0 - self.fraction) * math.fsum(one * one for one in left)

    @property
    def freedom(self) -> float:
        """Satterthwaite's, of a variance of which every item brings its squared share of weight.

        It is the number of items where all weigh the same; at most that number less one.
        """
        squares = [size * size for size in self.sizes.values()]
        found = math.fsum(squares) ** 2 / math.fsum(one * one for one in squares)
        return max(1.0, min(found, self.items - 1))

    def estimate(self, added: float = 0.0) -> Estimate:
        """The mean plus what is known without error, for at least two items."""
        return Estimate(
            difference=added + self.mean, error=math.sqrt(self.variance), freedom=self.freedom
        )


def tuned(rows: Sequence[PairedMentions], weights: Weights) -> float:
    """Lambda, 0 to 1: how much of the cheap method's mean leaves the smallest variance."""
    exact = sampled(rows, weights, 0.0, scale=0.0).influences
    both = sampled(rows, weights, 0.0, scale=1.0).influences
    cheap = {item: u - both[item] for item, u in exact.items()}
    squares = math.fsum(one * one for one in cheap.values())
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
    used = [(one, w) for one in rows if (w := weights.get((one.group, one.entity)))]
    total = math.fsum(w * one.mentions for one, w in used)
    values = [one.exact - scale * one.cheap for one, _ in used]
    summed = math.fsum(w * x for (_, w), x in zip(used, values, strict=True))
    mean = summed / total if total else 0.0
    parts = [
        (one, w * (x - mean * one.mentions) / total)
        for (one, w), x in zip(used, values, strict=True)
    ]
    both = _sums(((one.item_id, one.group, one.entity), u) for one, u in parts)
    return Sampled(
        mean=mean,
        fraction=fraction,
        influences=_sums((one.item_id, u) for one, u in parts),
        sizes=_sums((one.item_id, w * one.mentions / total) for one, w in used),
        by_entity=_sums(((one.group, one.entity), u) for one, u in parts),
        crossed=math.fsum(u * u for u in both.values()),
    )


def _sums(pairs: Iterable[tuple[_Key, float]]) -> dict[_Key, float]:
    found: dict[_Key, list[float]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return {key: math.fsum(values) for key, values in found.items()}
