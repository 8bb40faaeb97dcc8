"""Totals of mentions of invented entities."""

from collections.abc import Mapping, Sequence
from typing import Any

from plain_records import new_mention

from transexplain.analysis.groups.entity_totals import EntityTotals, Stratum
from transexplain.analysis.groups.group_cells import references_of
from transexplain.analysis.groups.group_verdicts import (
    GroupVerdict,
    VerdictEvidence,
    group_verdicts,
)
from transexplain.analysis.groups.randomised_control import RandomisedTotals
from transexplain.types.items import Mention

POSITIVE = Stratum("predicted", "positive")


def mention(group: str, entity: str, relevance: float, item: str = "i") -> Mention:
    place = {"surface": entity, "end": len(entity), "class_name": "positive"}
    return new_mention(item_id=item, group=group, entity=entity, relevance=relevance, **place)


def totals_of(
    groups: Mapping[str, Sequence[float] | Mapping[str, Sequence[float]]],
    stratum: Stratum = POSITIVE,
    totals: EntityTotals | None = None,
) -> EntityTotals:
    """Each mention in a document of its own; a plain sequence is one mention per entity."""
    totals = totals or EntityTotals()
    for group, members in groups.items():
        entities = (
            members
            if isinstance(members, Mapping)
            else {f"{group}{i}": [value] for i, value in enumerate(members)}
        )
        for entity, values in entities.items():
            for value in values:
                totals.add(stratum, [mention(group, entity, value)], magnitude=2.0)
    return totals


def verdict_of(**evidence: Any) -> GroupVerdict:
    """The verdict on A against B."""
    plain: dict[str, Any] = {"counterfactuals": (), "outcomes": (), "relevance": (), "found": {}}
    [verdict] = group_verdicts(VerdictEvidence(**(plain | evidence)), references_of("B", "AB"))
    return verdict


def randomised(
    real: EntityTotals, draws: Sequence[EntityTotals] = (), items: int = 0, failed: int = 0
) -> RandomisedTotals:
    """The totals of both models over so many sampled items."""
    totals = RandomisedTotals()
    totals.count(items, failed)
    totals.real.merge(real)
    for number, draw in enumerate(draws):
        totals.of_draw(number).merge(draw)
    return totals
