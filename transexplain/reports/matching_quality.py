"""How entities were found in the items, group by group, and how far that can be trusted."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from transexplain.bias.entity_totals import EntityTotals
from transexplain.bias.families import family
from transexplain.bias.intersections import LEAST_SHARE, crossed_family
from transexplain.bias.sheet import Precision
from transexplain.plans import AuditPlan
from transexplain.reports.group_records import Dropped, RareGroup
from transexplain.reports.section_records import GroupMatching


def matching_of(
    plan: AuditPlan,
    totals: EntityTotals,
    dropped: Iterable[Dropped],
    precisions: Sequence[Precision] = (),
) -> tuple[GroupMatching, ...]:
    """One row per group of the plan, then per group that only the data has; each by the plan.

    An item that was explained for several classes of one target counts once.

    Args:
        plan: of the run.
        totals: mentions of every entity.
        dropped: places left out as ordinary words, by group.
        precisions: from a sheet that a person filled.
    """
    mentions, items = _counted(plan, totals)
    checked = {one.group: one for one in precisions}
    terms = {group.name: len(set(group.terms)) for group in plan.groups}
    left = {one.group: one.count for one in dropped}
    return tuple(
        GroupMatching(
            group=name,
            terms=terms.get(name, 0),
            entities=len(mentions[name]),
            mentions=mentions[name].total(),
            items=items[name],
            dropped=left.get(name, 0),
            left_out=left.get(name, 0) / max(1, left.get(name, 0) + mentions[name].total()),
            precision=checked.get(name),
            **_most(mentions[name]),
        )
        for name in dict.fromkeys((*terms, *mentions))
    )


def rare_groups(plan: AuditPlan, rows: Iterable[GroupMatching]) -> tuple[RareGroup, ...]:
    """Meetings of groups with fewer than `LEAST_SHARE` of their family's mentions, but with some.

    They are decided on the totals of a whole run, so no cut into shards changes them.
    """
    families = set(map(crossed_family, plan.intersections))
    rows = [row for row in rows if family(row.group) in families]
    of = Counter[str]()
    for row in rows:
        of[family(row.group)] += row.mentions
    shares = ((row, row.mentions / max(1, of[family(row.group)])) for row in rows)
    return tuple(
        RareGroup(group=row.group, mentions=row.mentions, items=row.items, share=share)
        for row, share in shares
        if 0.0 < share < LEAST_SHARE
    )


def _counted(
    plan: AuditPlan, totals: EntityTotals
) -> tuple[defaultdict[str, Counter[str]], Counter[str]]:
    """Group -> entity -> mentions, and group -> items, by the first target that any item has."""
    mentions: defaultdict[str, Counter[str]] = defaultdict(Counter)
    items: Counter[str] = Counter()
    seen = {stratum.target for stratum in totals.strata}
    target = next((one for one in plan.targets if one in seen), None)
    strata = [stratum for stratum in totals.strata if stratum.target == target]
    times = _explanations(target or "", len(plan.model.classes))
    for row in totals.rows(strata):
        mentions[row.group][row.entity] = round(row.mentions / times)
    for group, count in totals.documents(strata).items():
        items[group] = round(count / times)
    return mentions, items


def _explanations(target: str, classes: int) -> int:
    """How many classes of one item a target explains."""
    kind, _, argument = target.partition(":")
    if kind == "top":
        return min(int(argument), classes) if classes else int(argument)
    return max(classes, 1) if kind == "all" else 1


def _most(mentions: Counter[str]) -> dict[str, Any]:
    if not mentions:
        return {"most": "", "most_share": 0.0}
    entity, count = min(mentions.items(), key=lambda entry: (-entry[1], entry[0]))
    return {"most": entity, "most_share": count / mentions.total()}
