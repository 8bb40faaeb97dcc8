"""The matching of groups in the items, and the groups that are too rare to compare."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from transexplain.analysis.groups.entity_finder import LEAST_SHARE, crossed_family
from transexplain.analysis.groups.entity_totals import EntityTotals
from transexplain.analysis.groups.group_cells import family
from transexplain.analysis.groups.matching_sheet import MatchPrecision
from transexplain.analysis.groups.mention_coverage import spelling_table
from transexplain.analysis.groups.shard_aggregate import ShardAggregate
from transexplain.reports.redaction import (
    RedactionRules,
    Redactor,
    Rule,
    published,
)
from transexplain.types.plans import AuditPlan


@dataclass(frozen=True, kw_only=True, slots=True)
class Dropped:
    """The number of a group's terms left out because they are ordinary words, too."""

    group: str
    count: int
    entities: tuple[tuple[str, int], ...]  #: the most frequent ones, with their counts


@dataclass(frozen=True, kw_only=True, slots=True)
class RareGroup:
    """A meeting of groups that is mentioned too seldom to be compared."""

    group: str
    mentions: int
    items: int
    share: float  #: of the mentions of its family


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupMatching:
    """The matching of one group in the items."""

    group: str
    terms: int  #: different spellings that the lexicon has; 0: the group is a column or marks
    entities: int  #: different ones that were found
    mentions: int
    items: int  #: that mention it
    most: str  #: entity with the most mentions; "": none was found
    most_share: float  #: of the mentions that are its
    dropped: int  #: places left out as ordinary words
    left_out: float  #: share of these among the places that the group could have
    precision: MatchPrecision | None = None  #: by a person's sheet; None: nobody checked
    #: entity -> mentions by how they are written, of those mentioned most; empty: not a lexicon's
    spellings: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    #: sampled texts that no effect counts, because only some of the group's words have partners
    unpaired: int = 0


def matching_of(
    plan: AuditPlan,
    totals: EntityTotals,
    dropped: Iterable[Dropped],
    precisions: Sequence[MatchPrecision] = (),
    total: ShardAggregate | None = None,
) -> tuple[GroupMatching, ...]:
    """One row per group of the plan, then per group that only the data has; each by the plan.

    An item that was explained for several classes of one target counts once.

    Args:
        plan: of the run.
        totals: mentions of every entity.
        dropped: places left out as ordinary words, by group.
        precisions: from a sheet that a person filled.
        total: of the run, where spellings and texts without swaps are reported.
    """
    total = total or ShardAggregate()
    mentions, items = _counted(plan, totals)
    checked = {precision.group: precision for precision in precisions}
    terms = {group.name: len(set(group.terms)) for group in plan.groups}
    left = {group.group: group.count for group in dropped}
    most = {
        name: min(mentions[name].items(), key=lambda entry: (-entry[1], entry[0]), default=("", 0))
        for name in (*terms, *mentions)
    }
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
            spellings=spelling_table(total.spellings, name, _ENTITIES, _SHOWN),
            unpaired=total.checked.unpaired.get(name, 0),
            most=most[name][0],
            most_share=most[name][1] / max(1, mentions[name].total()),
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


def without_rare(total: ShardAggregate, rare: Sequence[RareGroup]) -> ShardAggregate:
    """The aggregate without groups that are not compared; nothing else of it changes."""
    return total.without({group.group for group in rare}) if rare else total


def _counted(
    plan: AuditPlan, totals: EntityTotals
) -> tuple[defaultdict[str, Counter[str]], Counter[str]]:
    """Group -> entity -> mentions, and group -> items, by the first target that any item has."""
    mentions: defaultdict[str, Counter[str]] = defaultdict(Counter)
    items: Counter[str] = Counter()
    seen = {stratum.target for stratum in totals.strata}
    target = next((target for target in plan.targets if target in seen), None)
    strata = [stratum for stratum in totals.strata if stratum.target == target]
    times = _explanations(target or "", len(plan.model.classes))
    for row in totals.rows(strata):
        mentions[row.group][row.entity] = round(row.mentions / times)
    for group, count in totals.documents(strata).items():
        items[group] = round(count / times)
    return mentions, items


def _explanations(target: str, classes: int) -> int:
    """Return how many classes of one item a target explains."""
    kind, _, argument = target.partition(":")
    if kind == "top":
        return min(int(argument), classes) if classes else int(argument)
    return max(classes, 1) if kind == "all" else 1


_SHOWN = 5  #: entities of a group that were left out, and spellings of an entity
_ENTITIES = 50  #: of a group, with their spellings


def dropped_by_group(counts: Mapping[tuple[str, str], int]) -> tuple[Dropped, ...]:
    """Return what was left out as ambiguous, by group; `counts` are of (group, entity)."""
    groups: dict[str, Counter[str]] = {}
    for (group, entity), count in sorted(counts.items()):
        groups.setdefault(group, Counter())[entity] += count
    return tuple(
        Dropped(group=group, count=of.total(), entities=tuple(of.most_common(_SHOWN)))
        for group, of in groups.items()
    )


def _often(
    value: tuple[tuple[str, int], ...], _dropped: Dropped, redactor: Redactor
) -> tuple[tuple[str, int], ...]:
    return tuple((name, count) for name, count in value if count >= redactor.fewest)


def _spellings(
    value: Mapping[str, Mapping[str, int]], matching: GroupMatching, redactor: Redactor
) -> dict[str, dict[str, int]]:
    often = {
        entity: {name: count for name, count in some.items() if count >= redactor.fewest}
        for entity, some in value.items()
    }
    return {entity: some for entity, some in often.items() if some}


def _if_much(instead: Any) -> Rule:
    """Published where the mentions of the entity mentioned most, so its items, are not few."""

    def rule(value: Any, matching: GroupMatching, redactor: Redactor) -> Any:
        much = matching.most_share * matching.mentions >= redactor.fewest
        return value if much else instead

    return rule


RULES: Mapping[type, RedactionRules] = {
    Dropped: published("group", least="count", entities=_often),
    RareGroup: published("group", least="items"),
    GroupMatching: published(
        "group",
        stands=lambda matching, fewest: not 0 < matching.items < fewest,
        most=_if_much(""),
        most_share=_if_much(0.0),
        spellings=_spellings,
    ),
    MatchPrecision: published("group"),
}
