"""Which items an audit draws to replace their mentions: as many as were asked for, about."""

from collections import Counter

from orchestrator.sections import GroupsSection
from transexplain.bias.finding import EntityFinder
from transexplain.data.reader import read_shard
from transexplain.plans import AuditPlan, Shard, SwapPlan
from transexplain.types import Item

_READ = 5_000  #: rows from which it is told how many mention somebody


def swap_plan(plan: AuditPlan, section: GroupsSection | None) -> SwapPlan | None:
    """The share of rows at which about `groups.swap` items with a mention are drawn.

    None where no mention can be replaced: pictures, no terms, one group, none mentioned. Raises
    DataSourceError where the snapshot is gone.
    """
    listed = [group for group in plan.groups if group.terms]
    wanted = section.swap if section else 0
    if not wanted or plan.dataset.modality != "text" or len(listed) < 2:
        return None
    finder, rows = EntityFinder(plan), min(plan.dataset.rows, _READ)
    counts: Counter[str] = Counter()
    hits = 0
    for item in read_shard(plan.dataset, Shard(index=0, start=0, stop=rows)):
        if isinstance(item, Item) and isinstance(item.content, str):
            found = finder.find(item.content, item.annotations, item.meta).matches
            hits += bool(found)
            counts.update(match.entity for match in found)
    if not hits:
        return None
    return SwapPlan(share=min(1.0, wanted * rows / (hits * plan.dataset.rows)), counts=dict(counts))
