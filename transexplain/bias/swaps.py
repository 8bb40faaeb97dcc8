"""The counterfactual check: what happens when a mention is replaced by one of another group.

Attribution says what a mention adds to a logit; a swap measures it. They are different questions
(a swap is a finite difference, and it changes what the rest of the text does), so they need not
agree in size, but a bias that only one of them sees is not supported.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from transexplain.bias.intervals import MIN_ENTITIES, Interval, t_interval
from transexplain.bias.permutation import sign_flip_p
from transexplain.bias.verdicts import ALPHA

_SHOWN = 5
_FEWEST = 6  #: entities; of five, no signing has a p below 6 %


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class Swap:
    """One mention, the one that took its place, and what became of the explained logit."""

    item_id: str
    target: str
    class_name: str  #: explained, the same before and after
    group: str
    entity: str
    other: str  #: group of the replacement
    replacement: str
    change: float  #: logit as it was minus logit with the replacement
    gap: float  #: relevance of the mention minus that of the replacement in its place


@dataclass(frozen=True, kw_only=True, slots=True)
class SwapStatistic:
    """Swaps of one group's mentions for one target and class."""

    group: str
    target: str
    class_name: str
    swaps: int
    entities: int
    change: float  #: mean over entities of their mean change, in the unit
    interval: Interval | None  #: 95 %, over entities; None: fewer than five
    p: float | None  #: entities' changes take either sign at random; None: fewer than six
    gap: float  #: mean over entities of their mean gap
    correlation: float | None  #: Spearman's, of change and gap over swaps
    against: tuple[Swap, ...]  #: swaps whose change goes against their gap, the widest first

    def supports(self, difference: float) -> bool | None:
        """Whether swapping bears out a difference of attributions; None: it cannot be said."""
        if self.p is None:
            return None
        return self.p <= ALPHA and self.change * difference > 0.0


def swap_table(swaps: Iterable[Swap]) -> list[SwapStatistic]:
    """One row per (target, class, group), sorted by these; p is not adjusted, see `supports`."""
    found: dict[tuple[str, str, str], list[Swap]] = {}
    for one in sorted(swaps):
        found.setdefault((one.target, one.class_name, one.group), []).append(one)
    return [_row(key, found[key]) for key in sorted(found)]


def _row(key: tuple[str, str, str], swaps: Sequence[Swap]) -> SwapStatistic:
    target, class_name, group = key
    changes = by_entity((one.entity, one.change) for one in swaps)
    gaps = by_entity((one.entity, one.gap) for one in swaps)
    enough = len(changes) >= MIN_ENTITIES
    against = [one for one in swaps if one.change * one.gap < 0.0]
    return SwapStatistic(
        group=group,
        target=target,
        class_name=class_name,
        swaps=len(swaps),
        entities=len(changes),
        change=float(np.mean(changes)),
        interval=t_interval(changes) if enough else None,
        p=sign_flip_p(changes, seed=("swaps", *key)) if len(changes) >= _FEWEST else None,
        gap=float(np.mean(gaps)),
        correlation=rank_correlation((one.change, one.gap) for one in swaps),
        against=tuple(sorted(against, key=lambda one: -abs(one.change - one.gap))[:_SHOWN]),
    )


def by_entity(values: Iterable[tuple[str, float]]) -> list[float]:
    """Means of every entity, by name: mentions of one entity are not independent."""
    found: dict[str, list[float]] = {}
    for entity, value in values:
        found.setdefault(entity, []).append(value)
    return [float(np.mean(found[entity])) for entity in sorted(found)]


def rank_correlation(pairs: Iterable[tuple[float, float]]) -> float | None:
    """Spearman's; None where either side has fewer than three different values."""
    left, right = zip(*pairs, strict=True)
    if min(len(set(left)), len(set(right))) < 3:
        return None
    return float(spearmanr(left, right).statistic)


def swaps_to_json(swaps: Iterable[Swap]) -> list[dict[str, Any]]:
    """As JSON holds them, in one order whatever they came in."""
    return [asdict(one) for one in sorted(swaps)]
