"""Ranks entities by means that are shrunk towards their group (empirical Bayes)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import ndtri

from transexplain.analysis.groups.entity_totals import EntityRow, EntityTotals
from transexplain.analysis.groups.group_cells import by_class

_Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True)
class Shrunken:
    """Means of entities, shrunk towards the mean of all; more where there are fewer mentions."""

    mean: _Array  #: (entities,), posterior means, in the unit of what was given
    low: _Array  #: (entities,), 95 % intervals
    high: _Array
    centre: float  #: of all entities
    spread: float  #: standard deviation of true means between entities


def shrink(means: Sequence[float], variances: Sequence[float]) -> Shrunken:
    """Posterior of each entity's true mean under a normal prior that all entities estimate.

    Args:
        means: of each entity's mentions.
        variances: squared standard error of each mean, above 0.

    The spread between entities is Paule and Mandel's (1982) estimate; the posterior is that of
    the normal-normal model (Efron and Morris 1975). Intervals add the uncertainty of the centre
    (Morris 1983, without the term for the spread's). Raises ValueError for a variance of 0.
    """
    x, v = np.asarray(means, float), np.asarray(variances, float)
    if np.any(v <= 0.0):
        raise ValueError("a mean without sampling variance cannot be shrunk")
    between = _paule_mandel(x, v)
    weights = 1.0 / (v + between)
    centre = float(np.sum(weights * x) / np.sum(weights))
    kept = between / (between + v)
    mean = centre + kept * (x - centre)
    variance = kept * v + (1.0 - kept) ** 2 / np.sum(weights)
    half = ndtri(0.975) * np.sqrt(variance)
    return Shrunken(
        mean=mean, low=mean - half, high=mean + half, centre=centre, spread=float(np.sqrt(between))
    )


def mean_variances(
    mentions: Sequence[int], means: Sequence[float], squares: Sequence[float]
) -> list[float] | None:
    """Squared standard errors of entities' means, from one variance of mentions for all.

    Args:
        mentions: per entity.
        means: per entity.
        squares: per entity, sums of squared relevance of its mentions.

    None where no entity was mentioned twice or its mentions never differ: nothing is known of
    their variance then.
    """
    n, x = np.asarray(mentions, float), np.asarray(means, float)
    freedom = float(np.sum(n - 1.0))
    within = float(np.sum(np.maximum(np.asarray(squares, float) - n * x**2, 0.0)))
    if freedom == 0.0 or within <= 0.0:
        return None
    return [float(one) for one in within / freedom / n]


def _paule_mandel(x: _Array, v: _Array) -> float:
    """The variance between entities at which the weighted squares have their expected sum."""

    def excess(between: float) -> float:
        weights = 1.0 / (v + between)
        centre = np.sum(weights * x) / np.sum(weights)
        return float(np.sum(weights * (x - centre) ** 2)) - (len(x) - 1)

    if len(x) < 2 or excess(0.0) <= 0.0:
        return 0.0
    return float(brentq(excess, 0.0, float(np.var(x)) * len(x) + float(v.max())))


FEWEST = 10  #: entities; the spread between fewer is not known well enough


@dataclass(frozen=True, kw_only=True, slots=True)
class RankedEntity:
    """One entity for one target and class, and what is believed of its mean."""

    groups: tuple[str, ...]
    entity: str
    mentions: int
    documents: int
    mean: float  #: over its mentions, in the unit
    shrunken: float  #: shrunk towards the mean of all entities
    interval: tuple[float, float]  #: 95 %, of the shrunken mean


@dataclass(frozen=True, kw_only=True, slots=True)
class Ranking:
    """All entities for one target and class, highest shrunken mean first."""

    target: str
    class_name: str
    centre: float  #: of all entities
    spread: float  #: standard deviation between entities beyond chance
    entities: tuple[RankedEntity, ...]
    omitted: int = 0  #: entities between the highest and the lowest that are shown

    def ends(self, each: int) -> "Ranking":
        """The same with only the `each` highest and lowest."""
        if len(self.entities) <= 2 * each:
            return self
        kept = (*self.entities[:each], *self.entities[-each:])
        return replace(self, entities=kept, omitted=len(self.entities) - len(kept))


def rankings(totals: EntityTotals) -> list[Ranking]:
    """One ranking per (target, class) in which enough entities were mentioned, sorted by these.

    Means are shrunk by empirical Bayes, see `shrinkage.shrink`; an entity of several groups is
    ranked once.
    """
    found = (_ranking(key, totals.rows(strata)) for key, strata in by_class(totals).items())
    return [one for one in found if one is not None]


def _ranking(key: tuple[str, str], rows: Sequence[EntityRow]) -> Ranking | None:
    groups: dict[str, list[str]] = {}
    single: dict[str, EntityRow] = {}
    for row in rows:
        groups.setdefault(row.entity, []).append(row.group)
        single.setdefault(row.entity, row)
    once = list(single.values())
    if len(once) < FEWEST:
        return None
    means = [row.mean for row in once]
    variances = mean_variances([row.mentions for row in once], means, [row.squares for row in once])
    if variances is None:
        return None
    believed = shrink(means, variances)
    ranked = [
        RankedEntity(
            groups=tuple(groups[row.entity]),
            entity=row.entity,
            mentions=row.mentions,
            documents=row.documents,
            mean=row.mean,
            shrunken=float(mean),
            interval=(float(low), float(high)),
        )
        for row, mean, low, high in zip(
            once, believed.mean, believed.low, believed.high, strict=True
        )
    ]
    return Ranking(
        target=key[0],
        class_name=key[1],
        centre=believed.centre,
        spread=believed.spread,
        entities=tuple(sorted(ranked, key=lambda one: (-one.shrunken, one.entity))),
    )
