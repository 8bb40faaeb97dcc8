"""Finds the items around one: before and after it in the data, and those near it that are alike."""

from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np
from sqlalchemy import select

from transexplain.store import parts
from transexplain.store.database import Database
from transexplain.store.item_matching import LAST_ROW
from transexplain.store.part_reading import Part
from transexplain.store.schema import result_part
from transexplain.types.items import ItemOutcome

_ALIKE = 5  #: items
_ENTITIES = 3  #: that are looked for


@dataclass(frozen=True, kw_only=True, slots=True)
class Alike:
    """An item near another one."""

    outcome: ItemOutcome
    entity: str  #: that both mention; "": both have the same label and prediction


@dataclass(frozen=True, kw_only=True, slots=True)
class Neighbours:
    """Ids of the explained items before and after one, and some that are alike."""

    before: str | None = None
    after: str | None = None
    alike: tuple[Alike, ...] = ()  #: of its part alone, by ascending row


def neighbours_in(part: Part, place: int, entities: Collection[str]) -> Neighbours:
    """Of the item at a place of a part, which mentions these entities."""
    ids, last = part.ids, len(part) - 1
    reasons: dict[int, str] = {}
    for entity in list(entities)[:_ENTITIES]:
        for other in np.flatnonzero(part.mentioning(None, entity)).tolist():
            reasons.setdefault(other, entity)
    reasons.pop(place, None)
    if not reasons:
        labels, predicted = part.labels, part.predicted
        wanted = labels[place], predicted[place]
        same = (n for n, one in enumerate(zip(labels, predicted, strict=True)) if one == wanted)
        reasons = {other: "" for other in same if other != place}
    nearest = sorted(sorted(reasons, key=lambda other: abs(other - place))[:_ALIKE])
    outcomes = part.only(np.array(nearest, dtype=np.int64)).outcomes if nearest else []
    return Neighbours(
        before=ids[place - 1] if place > 0 else None,
        after=ids[place + 1] if place < last else None,
        alike=tuple(
            Alike(outcome=one, entity=reasons[other])
            for other, one in zip(nearest, outcomes, strict=True)
        ),
    )


def across_parts(db: Database, run_id: str, row: int, found: Neighbours) -> Neighbours:
    """With the neighbours that lie in another part than the item in this row."""
    if found.before is None and row > 0:
        found = replace(found, before=_last_before(db, run_id, row))
    if found.after is None:
        later = range(row + 1, LAST_ROW)
        first = parts.read(db, run_id, lambda part: part.ids[0], rows=later, together=1)
        found = replace(found, after=next(first, None))
    return found


def _last_before(db: Database, run_id: str, row: int) -> str | None:
    key = (result_part.c.shard, result_part.c.part)
    query = (
        select(*key)
        .where(result_part.c.run_id == run_id, result_part.c.last < row)
        .order_by(*(one.desc() for one in key))
        .limit(1)
    )
    with db.read() as connection:
        found = connection.execute(query).first()
    if found is None:
        return None
    return next(
        parts.read(db, run_id, lambda part: part.ids[-1], [(found.shard, found.part)]), None
    )
