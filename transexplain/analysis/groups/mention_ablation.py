"""Mention ablation: whether the prediction changes when a mention is removed from its text.

It needs no second group. The text that is left may be unusual, so a flip shows that the answer
depended on the mention, not that another name would have given another answer: swaps test that.
Exported fields are called `removals`, as they were in the first version.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from transexplain.analysis.groups.intervals import MIN_ENTITIES, Interval, t_interval, wilson
from transexplain.rank_correlation import rank_correlation
from transexplain.types.findings import Finite


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class MentionAblation:
    """One entity removed from one item, and the change of the explained logit."""

    item_id: str
    target: str
    class_name: str  #: explained, the same before and after
    group: str
    entity: str
    flipped: bool  #: another class is predicted without the mention
    change: Finite  #: logit as it was minus logit without the mention
    relevance: Finite  #: of all mentions that were ablated


@dataclass(frozen=True, kw_only=True, slots=True)
class AblationStatistic:
    """Ablations of one group's mentions for one target and class."""

    group: str
    target: str
    class_name: str
    items: int
    entities: int
    changed: int  #: items
    rate: float  #: mean over entities of the share of their items that flip
    interval: Interval | None  #: 95 %, over entities, within 0 to 1; None: fewer than five
    change: float  #: mean over entities of their mean change, in the unit
    change_interval: Interval | None
    correlation: float | None  #: Spearman's, of change and relevance over items


@dataclass(frozen=True, kw_only=True, slots=True)
class Ablations:
    """The mention ablations of a run."""

    items: int  #: of which a mention was ablated, each counted once
    changed: int  #: of these
    rows: tuple[AblationStatistic, ...]


def ablations_of(ablations: Iterable[MentionAblation]) -> Ablations | None:
    """One row per (target, class, group), sorted by these; None without any ablation."""
    by_key: dict[tuple[str, str, str], list[MentionAblation]] = {}
    items: dict[str, bool] = {}
    for row in sorted(ablations):
        by_key.setdefault((row.target, row.class_name, row.group), []).append(row)
        items[row.item_id] = row.flipped
    if not items:
        return None
    rows = tuple(_row(key, by_key[key]) for key in sorted(by_key))
    return Ablations(items=len(items), changed=sum(items.values()), rows=rows)


def _row(key: tuple[str, str, str], ablations: Sequence[MentionAblation]) -> AblationStatistic:
    target, class_name, group = key
    pairs = [(ablation.entity, ablation) for ablation in ablations]
    rates = by_entity((entity, float(ablation.flipped)) for entity, ablation in pairs)
    changes = by_entity((entity, ablation.change) for entity, ablation in pairs)
    return AblationStatistic(
        group=group,
        target=target,
        class_name=class_name,
        items=len(ablations),
        entities=len(rates),
        changed=sum(ablation.flipped for ablation in ablations),
        rate=float(np.mean(rates)),
        interval=_rate_interval(rates),
        change=float(np.mean(changes)),
        change_interval=t_interval(changes) if len(changes) >= MIN_ENTITIES else None,
        correlation=rank_correlation(
            [ablation.change for ablation in ablations],
            [ablation.relevance for ablation in ablations],
            fewest=3,
        ),
    )


def _rate_interval(rates: Sequence[float]) -> Interval | None:
    """Student's interval over entities; Wilson's where all have the rate 0 or 1."""
    if len(rates) < MIN_ENTITIES:
        return None
    if set(rates) <= {0.0} or set(rates) <= {1.0}:
        return wilson(round(sum(rates)), len(rates))
    low, high = t_interval(rates)
    return max(low, 0.0), min(high, 1.0)


def by_entity(values: Iterable[tuple[str, float]]) -> list[float]:
    """Means of every entity, by name: mentions of one entity are not independent."""
    by_name: dict[str, list[float]] = {}
    for entity, value in values:
        by_name.setdefault(entity, []).append(value)
    return [float(np.mean(by_name[entity])) for entity in sorted(by_name)]
