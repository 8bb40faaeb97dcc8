"""Totals of mentions of invented entities."""

from collections.abc import Mapping, Sequence

from transexplain.analysis.groups.entity_totals import EntityTotals, Stratum
from transexplain.types.items import Mention

POSITIVE = Stratum("predicted", "positive")


def mention(group: str, entity: str, relevance: float, item: str = "i") -> Mention:
    return Mention(
        item_id=item,
        target="predicted",
        rank=0,
        class_name="positive",
        group=group,
        entity=entity,
        surface=entity,
        start=0,
        end=len(entity),
        relevance=relevance,
    )


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
