"""The group table: what the mentions of each group's entities add to a class.

The unit of analysis is the entity, not the mention: mentions of one name share that name's
embedding, so intervals over mentions are far too narrow. All intervals are at 95 %.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from scipy.special import stdtrit

from transexplain.types import GroupStatistic

MIN_ENTITIES = 5  #: an interval over fewer entities says more about luck than about the group
ALL_OTHERS = "all other groups"

Interval = tuple[float, float]


class EntityMeanLike(Protocol):
    """The mean relevance of one entity's mentions for one target and class."""

    @property
    def group(self) -> str:
        """The entity group."""

    @property
    def entity(self) -> str:
        """The lexicon's spelling."""

    @property
    def target(self) -> str:
        """The target as asked."""

    @property
    def class_name(self) -> str:
        """The class that was explained."""

    @property
    def mentions(self) -> int:
        """How often the entity was found."""

    @property
    def documents(self) -> int:
        """In how many items."""

    @property
    def mean(self) -> float:
        """Mean relevance over its mentions, in the method's unit."""


def group_table(
    entities: Sequence[EntityMeanLike],
    *,
    reference: str | None,
    practical: float,
    documents: Mapping[tuple[str, str, str], int] | None = None,
) -> list[GroupStatistic]:
    """One row per (target, class, group), in order of first appearance.

    An entity that a group shares with its reference counts for the group only, and one that
    several reference groups share counts once, so the two sides of a difference are disjoint.

    Args:
        entities: one per (group, entity, target, class).
        reference: group that the others are compared to; None: all other groups' entities.
        practical: smallest |difference| worth flagging, in the unit of the means.
        documents: items that mention a (target, class, group); without it the sum over entities
            is given, which counts an item once for every entity of the group in it.
    """
    by_class: dict[tuple[str, str], dict[str, list[EntityMeanLike]]] = {}
    for entity in entities:
        groups = by_class.setdefault((entity.target, entity.class_name), {})
        groups.setdefault(entity.group, []).append(entity)
    rows: list[GroupStatistic] = []
    for (target, class_name), groups in by_class.items():
        for group, members in groups.items():
            seen = (documents or {}).get((target, class_name, group))
            rows.append(_row(members, groups, reference, practical, seen))
    return rows


def t_interval(values: Sequence[float]) -> Interval:
    """95 % Student interval of the mean of at least two values."""
    n = len(values)
    half = _quantile(n - 1) * math.sqrt(_variance(values) / n)
    return _mean(values) - half, _mean(values) + half


def welch_interval(left: Sequence[float], right: Sequence[float]) -> Interval:
    """95 % interval of mean(left) - mean(right), variances unequal (Welch-Satterthwaite).

    Each side has at least two values. Without any variance the interval is the difference alone.
    """
    a, b = _variance(left) / len(left), _variance(right) / len(right)
    difference = _mean(left) - _mean(right)
    scale = max(a, b)
    if scale == 0.0:
        return difference, difference
    u, v = a / scale, b / scale  # squares of tiny variances would vanish
    freedom = (u + v) ** 2 / (u**2 / (len(left) - 1) + v**2 / (len(right) - 1))
    half = _quantile(freedom) * math.sqrt(a + b)
    return difference - half, difference + half


@dataclass(frozen=True, slots=True)
class _Comparison:
    reference: str
    difference: float | None = None
    interval: Interval | None = None
    notes: tuple[str, ...] = ()


def _row(
    members: list[EntityMeanLike],
    groups: Mapping[str, list[EntityMeanLike]],
    reference: str | None,
    practical: float,
    documents: int | None,
) -> GroupStatistic:
    first = members[0]
    means = [entity.mean for entity in members]
    mentions = sum(entity.mentions for entity in members)
    comparison = _compare(members, groups, reference)
    few = len(means) < MIN_ENTITIES
    return GroupStatistic(
        group=first.group,
        target=first.target,
        class_name=first.class_name,
        mentions=mentions,
        documents=sum(e.documents for e in members) if documents is None else documents,
        entities=len(means),
        mean=math.fsum(e.mentions * e.mean for e in members) / mentions if mentions else 0.0,
        entity_mean=_mean(means),
        interval=None if few else t_interval(means),
        difference=comparison.difference,
        difference_interval=comparison.interval,
        reference=comparison.reference,
        flagged=_is_flagged(comparison, practical),
        note="; ".join(
            ([f"fewer than {MIN_ENTITIES} entities"] if few else []) + list(comparison.notes)
        ),
    )


def _compare(
    members: list[EntityMeanLike],
    groups: Mapping[str, list[EntityMeanLike]],
    reference: str | None,
) -> _Comparison:
    group, name = members[0].group, reference or ALL_OTHERS
    if group == reference:
        return _Comparison(name, notes=("the reference itself",))
    own = {entity.entity for entity in members}
    others = {
        entity.entity: entity.mean
        for other, theirs in groups.items()
        if other != group and reference in (None, other)
        for entity in theirs
    }
    apart = [mean for entity, mean in others.items() if entity not in own]
    shared = len(others) - len(apart)
    notes = [f"{shared} entities shared with the reference count for the group only"] * bool(shared)
    if not apart:
        return _Comparison(name, notes=(*notes, "no reference entity was mentioned"))
    left = [entity.mean for entity in members]
    difference = _mean(left) - _mean(apart)
    if len(apart) < MIN_ENTITIES:
        notes.append(f"reference has fewer than {MIN_ENTITIES} entities")
    enough = min(len(left), len(apart)) >= MIN_ENTITIES
    interval = welch_interval(left, apart) if enough else None
    return _Comparison(name, difference if enough else None, interval, tuple(notes))


def _is_flagged(comparison: _Comparison, practical: float) -> bool:
    if comparison.interval is None or comparison.difference is None:
        return False
    low, high = comparison.interval
    return (low > 0.0 or high < 0.0) and abs(comparison.difference) > practical


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _variance(values: Sequence[float]) -> float:
    mean = _mean(values)
    return math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)


def _quantile(freedom: float) -> float:
    return float(stdtrit(freedom, 0.975))
