"""A group and its reference in the same entities: each is compared with itself.

Regions of pictures are so: every picture has both, and what is particular about the picture is in
both of them. Values of one entity are not independent, so what is tested is their difference.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from transexplain.bias.entity_rows import EntityRow
from transexplain.bias.intervals import Estimate, one_sample
from transexplain.bias.permutation import PERMUTATIONS, sign_flip_p
from transexplain.findings import Robustness


@dataclass(frozen=True, slots=True)
class Within:
    """Differences (entities,) of a group to its reference, by name of the entity."""

    means: Sequence[float]  #: of relevance, in the unit
    shares: Sequence[float]  #: of the share of |R|

    @classmethod
    def of(cls, members: Iterable[EntityRow], others: Iterable[EntityRow]) -> "Within":
        """Of the entities that are on both sides; several rows of a side are averaged."""
        left, right = _by_entity(members), _by_entity(others)
        both = sorted(left.keys() & right.keys())
        return cls(
            means=[left[one][0] - right[one][0] for one in both],
            shares=[left[one][1] - right[one][1] for one in both],
        )

    def __len__(self) -> int:
        return len(self.means)

    @property
    def estimate(self) -> Estimate:
        """The mean difference; at least two entities."""
        return one_sample(self.means)

    def p(self, seed: Sequence[object], permutations: int | None = None) -> float:
        """Two-sided, of sign flips."""
        return sign_flip_p(self.means, seed=seed, permutations=permutations or PERMUTATIONS)

    def robustness(self) -> Iterator[Robustness]:
        """The share of |R| instead of the unit."""
        found = one_sample(self.shares)
        yield Robustness(
            name="share of |R|",
            unit="share",
            difference=found.difference,
            interval=found.interval(),
        )


def _by_entity(rows: Iterable[EntityRow]) -> Mapping[str, tuple[float, float]]:
    """Mean relevance and share of every entity over all its mentions."""
    sums: dict[str, tuple[int, float, float]] = {}
    for row in rows:
        n, mean, share = sums.get(row.entity, (0, 0.0, 0.0))
        sums[row.entity] = (
            n + row.mentions,
            mean + row.mentions * row.mean,
            share + row.mentions * row.share,
        )
    return {entity: (mean / n, share / n) for entity, (n, mean, share) in sums.items()}
