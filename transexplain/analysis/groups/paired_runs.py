"""Two runs over the same mentions: the change of a group's relevance, against its reference's.

Mentions are paired by item, place in the text and entity, so that nothing but the model differs.
The unit of analysis is the entity, as in `group_table`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from transexplain.analysis.groups.entity_totals import EntityTotals, Stratum
from transexplain.analysis.groups.group_table import Rules, group_table
from transexplain.analysis.groups.intervals import MIN_ENTITIES, one_sample
from transexplain.analysis.groups.resampling import sign_flip_p
from transexplain.analysis.groups.verdict_rules import ALPHA, adjusted, judge
from transexplain.types.findings import GroupStatistic, Verdict
from transexplain.types.items import Mention

Interval = tuple[float, float]
_Key = tuple[str, str, str]  # target, class, group


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupShift:
    """The change of one group's mentions from one run to the next, for one class."""

    group: str
    target: str
    class_name: str
    mentions: int  #: that both runs explained for this class
    documents: int
    entities: int
    before: float  #: mean over entities of their mean relevance, in the method's unit
    after: float
    change: float  #: after minus before
    interval: Interval | None  #: 95 % t-interval over entities; None: too few of them
    p: float | None  #: sign flips over entities
    adjusted_p: float | None
    verdict: Verdict  #: on the change
    reason: str
    reference: str
    #: change of the group minus change of its reference: how far the group's difference moved
    apart: float | None
    apart_interval: Interval | None
    apart_p: float | None  #: permutation over entities
    apart_adjusted_p: float | None
    apart_verdict: Verdict
    apart_reason: str
    note: str = ""  #: why something is missing


@dataclass(slots=True)
class PairedTotals:
    """Totals over the mentions that two runs share."""

    before: EntityTotals = field(default_factory=EntityTotals)
    after: EntityTotals = field(default_factory=EntityTotals)
    change: EntityTotals = field(default_factory=EntityTotals)  #: of after minus before
    unpaired: int = 0  #: mentions that only one of the runs has for the same class

    def add(self, before: Sequence[Mention], after: Sequence[Mention]) -> None:
        """Count the mentions of one item; raises ValueError for relevance that is not finite."""
        old, new = _by_place(before), _by_place(after)
        common = [place for place in new if place in old]
        self.unpaired += len(old) + len(new) - 2 * len(common)
        strata = dict.fromkeys((new[place].target, new[place].class_name) for place in common)
        for key in strata:
            here = [place for place in common if place[:2] == key]
            stratum = Stratum(*key)
            was, now = [old[place] for place in here], [new[place] for place in here]
            moved = [
                replace(b, relevance=b.relevance - a.relevance)
                for a, b in zip(was, now, strict=True)
            ]
            self.before.add(stratum, was, 0.0)
            self.after.add(stratum, now, 0.0)
            self.change.add(stratum, moved, 0.0)


_Place = tuple[str, str, str, str, int, int]


def _by_place(mentions: Sequence[Mention]) -> Mapping[_Place, Mention]:
    return {
        (
            mention.target,
            mention.class_name,
            mention.group,
            mention.entity,
            mention.start,
            mention.end,
        ): mention
        for mention in mentions
    }


def shift_table(totals: PairedTotals, rules: Rules) -> list[GroupShift]:
    """One row per (target, class, group) with paired mentions, sorted by these names.

    The changes are one family of tests, the changes of differences to the reference another; each
    is adjusted by itself. Verdicts are those of `verdict_rules.judge`, on changes.
    """
    changes = _entity_means(totals.change)
    moved = group_table(totals.change, rules)
    keys = [(row.target, row.class_name, row.group) for row in moved]
    p = [
        sign_flip_p(changes[key], seed=(rules.seed, *key))
        if len(changes[key]) >= MIN_ENTITIES
        else None
        for key in keys
    ]
    before, after = _entity_means(totals.before), _entity_means(totals.after)
    return [
        _shift(row, (before[key], after[key], changes[key]), (raw, value), rules)
        for row, key, raw, value in zip(moved, keys, p, adjusted(p, rules.correction), strict=True)
    ]


_Means = tuple[Sequence[float], Sequence[float], Sequence[float]]


def _shift(
    row: GroupStatistic, means: _Means, p: tuple[float | None, float | None], rules: Rules
) -> GroupShift:
    before, after, changes = means
    estimate = one_sample(changes) if len(changes) >= MIN_ENTITIES else None
    judged = judge(estimate, p[1], rules.practical)
    notes = [row.note] if row.note else []
    if p[0] is not None and 2.0 ** (1 - len(changes)) > ALPHA:
        least = f"{2.0 ** (1 - len(changes)):.3g}"
        notes.append(f"no p below {least} can come from {len(changes)} entities")
    return GroupShift(
        group=row.group,
        target=row.target,
        class_name=row.class_name,
        mentions=row.mentions,
        documents=row.documents,
        entities=row.entities,
        before=_mean(before),
        after=_mean(after),
        change=_mean(changes),
        interval=estimate.interval() if estimate else None,
        p=p[0],
        adjusted_p=p[1],
        verdict=judged.verdict,
        reason=judged.reason,
        reference=row.reference,
        apart=row.difference,
        apart_interval=row.difference_interval,
        apart_p=row.p,
        apart_adjusted_p=row.adjusted_p,
        apart_verdict=row.verdict,
        apart_reason=row.reason,
        note="; ".join(notes),
    )


def _entity_means(totals: EntityTotals) -> Mapping[_Key, Sequence[float]]:
    means: dict[_Key, list[float]] = {}
    for stratum in totals.strata:
        for row in totals.rows([stratum]):
            key = stratum.target, stratum.class_name, row.group
            means.setdefault(key, []).append(row.mean)
    return means


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
