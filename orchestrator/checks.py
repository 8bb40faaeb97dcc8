"""Which items an audit draws to look at who they mention again: about as many as were asked for."""

from collections import Counter
from dataclasses import dataclass, field

from orchestrator.sections import GroupsSection
from transexplain.bias.finding import EntityFinder
from transexplain.data.reader import read_shard
from transexplain.plans import AuditPlan, CheckPlan, Shard
from transexplain.types import Item

#: rows from which it is told how many mention somebody; pictures are opened to be read
_READ, _READ_PICTURES = 5_000, 200


@dataclass(slots=True)
class _Seen:
    """Who is mentioned in the first rows of the data."""

    mentioning: int = 0  #: items whose text mentions somebody
    whole: int = 0  #: items that are in a group in any way
    counts: Counter[str] = field(default_factory=Counter)


def check_plan(plan: AuditPlan, section: GroupsSection | None) -> CheckPlan | None:
    """The share of rows at which about `groups.check` items that mention somebody are drawn.

    Where no text mentions anybody, as in pictures and groups of a column, items that are in a
    group are drawn. None where there are none of these either, or nothing was asked for. Mentions
    can be replaced where two groups have terms. Raises DataSourceError where the snapshot is gone.
    """
    wanted = section.check if section else 0
    if not wanted or not plan.groups:
        return None
    most = _READ if plan.dataset.modality == "text" else _READ_PICTURES
    rows = min(plan.dataset.rows, most)
    seen = _seen(plan, rows)
    hits = seen.mentioning or seen.whole
    # an explainer cannot read the states of a model that it did not learn from
    randomised = section is not None and section.randomised and plan.approximates is None
    if not hits or not (seen.mentioning or randomised):
        return None
    return CheckPlan(
        share=min(1.0, wanted * rows / (hits * plan.dataset.rows)),
        whole=not seen.mentioning,
        swap=bool(seen.mentioning) and sum(bool(group.terms) for group in plan.groups) > 1,
        randomised=randomised,
        counts=dict(seen.counts),
    )


def _seen(plan: AuditPlan, rows: int) -> _Seen:
    finder, seen = EntityFinder(plan), _Seen()
    named = {group.name for group in plan.groups}
    for item in read_shard(plan.dataset, Shard(index=0, start=0, stop=rows)):
        if not isinstance(item, Item):
            continue
        text = item.content if isinstance(item.content, str) else None
        found = finder.find(text, item.annotations, item.meta)
        marked = any(one.group in named for one in item.annotations)
        seen.mentioning += bool(found.matches)
        seen.whole += marked or found.whole is not None
        seen.counts.update(match.entity for match in found.matches)
    return seen
