"""Whether the group statistics hold where there is nothing to find, and find what is there.

    python -m benchmarks.null_study [--corpora N] [--permutations N] [--designs NAME ...]

Every design makes corpora of two groups of entities without a group effect: each entity has a
relevance of its own, each mention varies around it, and entities are mentioned unequally often (a
Zipf law). Printed per design and number of entities: how often the entity-level permutation
rejects at 5 %, how often the 95 % interval holds the truth (0), and, for comparison, how often
Welch's test over mentions rejects and what percentiles of the bootstrap cover. The figure after
+- is the Monte Carlo standard error.
"""

import argparse
import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import ttest_ind

from transexplain.analysis.groups.intervals import BOOTSTRAP_FROM, Estimate, bootstrapped, welch
from transexplain.analysis.groups.resampling import permutation_p, poisson_weights
from transexplain.randomness import generator

_Array = NDArray[np.float64]
SIZES = (10, 30, 100)
RESAMPLES = 999


@dataclass(frozen=True, slots=True)
class Design:
    """How entities of either group vary."""

    effect: Callable[[np.random.Generator, int], _Array]  #: of an entity; mean 0, variance 1
    spread: tuple[float, float] = (0.5, 0.5)  #: standard deviation between entities, per group
    rarer: int = 1  #: entities of the second group are mentioned so many times less
    larger: int = 1  #: the second group has so many times the entities


def _normal(random: np.random.Generator, size: int) -> _Array:
    return random.normal(size=size)


def _heavy(random: np.random.Generator, size: int) -> _Array:
    return random.standard_t(4, size=size) / math.sqrt(2)


def _skewed(random: np.random.Generator, size: int) -> _Array:
    return random.exponential(size=size) - 1.0


DESIGNS = {
    "normal": Design(_normal),
    "heavy-tailed": Design(_heavy),
    "skewed": Design(_skewed),
    "unequal spread": Design(_normal, spread=(0.5, 1.0), rarer=4),
    "unequal sizes": Design(_normal, larger=4),
    "both unequal": Design(_normal, spread=(1.0, 0.5), larger=4),
}


@dataclass(frozen=True, slots=True)
class Group:
    """One group's entities in one corpus."""

    means: _Array  #: (entities,), over mentions
    mentions: _Array  #: (all mentions,)


def group_of(random: np.random.Generator, design: Design, side: int, size: int) -> Group:
    """Entities with means and mentions as the design has them; no effect of the group."""
    rarer = design.rarer if side else 1
    size = size * design.larger if side else size
    counts = np.maximum(1, np.minimum(random.zipf(1.7, size), 300) // rarer)
    entity = design.effect(random, size) * design.spread[side]
    mentions = np.repeat(entity, counts) + random.normal(size=int(counts.sum()))
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    return Group(np.add.reduceat(mentions, starts) / counts, mentions)


@dataclass(slots=True)
class Tally:
    """What happened in the corpora so far."""

    rejected: int = 0
    covered: int = 0
    percentiles: int = 0
    naive: int = 0

    def count(self, left: Group, right: Group, seed: object, permutations: int) -> None:
        """One corpus."""
        p = permutation_p(
            list(left.means), list(right.means), seed=(seed,), permutations=permutations
        )
        self.rejected += p <= 0.05
        weights = [
            poisson_weights([f"{seed}/{side}/{i}" for i in range(len(one.means))], RESAMPLES, 0)
            for side, one in enumerate((left, right))
        ]
        low, high = _estimate(left, right, weights).interval()
        self.covered += low <= 0.0 <= high
        low, high = _percentiles(left, right, weights)
        self.percentiles += low <= 0.0 <= high
        test = ttest_ind(left.mentions, right.mentions, equal_var=False)
        self.naive += float(test.pvalue) <= 0.05


def _estimate(left: Group, right: Group, weights: list[NDArray[np.uint8]]) -> Estimate:
    a, b = list(left.means), list(right.means)
    if min(len(a), len(b)) < BOOTSTRAP_FROM:
        return welch(a, b)
    return bootstrapped(a, b, (weights[0], weights[1]))


def _percentiles(
    left: Group, right: Group, weights: list[NDArray[np.uint8]]
) -> tuple[float, float]:
    means = [
        (one.means @ drawn) / np.maximum(drawn.sum(axis=0, dtype=float), 1.0)
        for one, drawn in zip((left, right), weights, strict=True)
    ]
    low, high = np.percentile(means[0] - means[1], [2.5, 97.5])
    return float(low), float(high)


def main() -> None:
    """Parse, simulate, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--corpora", type=int, default=2_000)
    parser.add_argument("--permutations", type=int, default=999)
    parser.add_argument("--designs", nargs="*", choices=list(DESIGNS), default=list(DESIGNS))
    options = parser.parse_args()
    print(f"{options.corpora} corpora a row, {options.permutations} permutations, fixed seeds")
    print(
        f"{'design':16}{'entities':>9}{'permutation rejects':>22}{'interval covers':>20}"
        f"{'percentiles cover':>20}{'Welch over mentions':>22}{'s':>6}"
    )
    for name in options.designs:
        for size in SIZES:
            begun, tally = time.perf_counter(), Tally()
            for corpus in range(options.corpora):
                random = generator("null", name, size, corpus)
                left, right = (group_of(random, DESIGNS[name], side, size) for side in (0, 1))
                tally.count(left, right, f"{name}/{size}/{corpus}", options.permutations)
            shares = (tally.rejected, tally.covered, tally.percentiles, tally.naive)
            cells = [_share(count, options.corpora) for count in shares]
            print(
                f"{name:16}{size:>9}{cells[0]:>22}{cells[1]:>20}{cells[2]:>20}{cells[3]:>22}"
                f"{time.perf_counter() - begun:>6.0f}",
                flush=True,
            )


def _share(count: int, total: int) -> str:
    share = count / total
    return f"{100 * share:.1f} +-{100 * math.sqrt(share * (1 - share) / total):.1f} %"


if __name__ == "__main__":
    main()
