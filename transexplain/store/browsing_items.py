"""Reads items for pages: from a row on, until there are enough or the time is up; and failures."""

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sqlalchemy import select

from transexplain.store import parts
from transexplain.store.database import Database
from transexplain.store.leases import caution_of
from transexplain.store.part_reading import Part
from transexplain.store.ranked_items import LAST_ROW, ItemSearch, places_in
from transexplain.store.readers import iter_items
from transexplain.store.schema import item, result_part, shard
from transexplain.store.shard_digests import refuse_damaged_rows
from transexplain.types.items import Attribution, ItemFailure, ItemOutcome, Mention
from transexplain.types.scores import MetricScore

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


_Found = tuple[int, Any]  #: row of the dataset, and what was found there


@dataclass(frozen=True, kw_only=True, slots=True)
class Scanned:
    """What a scan of limited time found."""

    found: tuple[Any, ...]
    next_row: int | None  #: the scan goes on from here; None: it saw the run's last row
    seconds: float


def search(
    db: Database, run_id: str, wanted: ItemSearch, *, start: int, limit: int, seconds: float
) -> Scanned:
    """Explained items from row `start` on, as `ItemOutcome`, in the order of the dataset."""

    def of_part(part: Part) -> list[_Found]:
        places = places_in(part, wanted)
        rows = part.rows
        later = places[rows[places] >= start][: limit + 1]
        few = part.only(later)
        return list(zip(few.rows.tolist(), few.outcomes, strict=True))

    return _scan(db, run_id, of_part, start, limit, seconds)


def mentions_of(
    db: Database,
    run_id: str,
    group: str,
    entity: str,
    *,
    start: int,
    limit: int,
    seconds: float,
) -> Scanned:
    """Items that mention an entity, with all its mentions: (outcome, mentions) each."""

    def of_part(part: Part) -> list[_Found]:
        places = np.flatnonzero(part.mentioning(group, entity))
        places = places[part.rows[places] >= start][: limit + 1]
        if not len(places):
            return []
        few = part.only(places)
        found: dict[int, list[Mention]] = {}
        for place, one in few.mentions():
            if (one.group, one.entity) == (group, entity):
                found.setdefault(place, []).append(one)
        outcomes = few.outcomes
        return [(few.rows.tolist()[at], (outcomes[at], tuple(found[at]))) for at in sorted(found)]

    return _scan(db, run_id, of_part, start, limit, seconds)


def _scan(
    db: Database,
    run_id: str,
    of_part: Callable[[Part], list[_Found]],
    start: int,
    limit: int,
    seconds: float,
) -> Scanned:
    """Blocks of the run by row until `limit` were found or so much time went by."""
    begun = time.monotonic()

    def block(part: Part) -> tuple[int, list[_Found]]:
        return int(part.rows[-1]), of_part(part)

    inside = parts.read(db, run_id, block, rows=range(start, LAST_ROW), together=1)
    found: list[_Found] = []
    for last, some in inside:
        found += some
        if len(found) > limit:
            following = found.pop(limit)[0]
            break
        if time.monotonic() - begun > seconds:
            following = last + 1
            break
    else:
        following = None
    found = found[:limit]
    refuse_damaged_rows(db, run_id, [row for row, _ in found])
    return Scanned(
        found=tuple(one for _, one in found),
        next_row=following,
        seconds=time.monotonic() - begun,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class ItemRecord:
    """All that is stored of one explained item."""

    outcome: ItemOutcome
    attributions: tuple[Attribution, ...]
    mentions: tuple[Mention, ...]
    scores: tuple[MetricScore, ...]
    near: Neighbours


def item_record(db: Database, run_id: str, item_id: str) -> ItemRecord | ItemFailure | None:
    """The item with this id, or why it could not be explained; None: the run has none yet.

    The one part that holds it is decoded once.
    """

    def work(part: Part) -> ItemRecord | None:
        places = part.places_of({item_id})
        if not len(places):
            return None
        one = part.only(places)
        mentions = tuple(found for _, found in one.mentions())
        entities = dict.fromkeys(found.entity for found in mentions)
        return ItemRecord(
            outcome=one.outcomes[0],
            attributions=tuple(found for _, found in one.attributions()),
            mentions=mentions,
            scores=tuple(found for _, found in one.scores()),
            near=neighbours_in(part, int(places[0]), entities),
        )

    for found in parts.read(db, run_id, work, parts.holding(db, run_id, [item_id])):
        if found is not None:
            row = found.outcome.index
            refuse_damaged_rows(db, run_id, [row])
            return replace(found, near=across_parts(db, run_id, row, found.near))
    failed = iter_items(db, run_id, only_failed=True, item_ids=[item_id])
    return next((one for one in failed if isinstance(one, ItemFailure)), None)


_FAILED = ("index", "item_id", "error_kind", "error", "traceback")


def failed_page(db: Database, run_id: str, *, start: int, limit: int) -> list[ItemFailure]:
    """Items from row `start` on that could not be explained."""
    columns = [item.c[name] for name in _FAILED]
    query = (
        select(*columns)
        .where(item.c.run_id == run_id, item.c.index >= start)
        .order_by(item.c.index)
        .limit(limit)
    )
    with db.read() as connection:
        return [
            ItemFailure(
                item_id=name, index=row, kind=kind, message=error or "", traceback=trace or ""
            )
            for row, name, kind, error, trace in connection.execute(query)
        ]


@dataclass(frozen=True, kw_only=True, slots=True)
class TroubledShard:
    """A shard whose attempts failed, or that has items in quarantine."""

    index: int
    start: int
    stop: int
    state: str
    attempt: int
    worker: str | None
    error: str | None  #: of the last attempt that failed
    traceback: str | None  #: of that error; None: no Python error, or none kept
    quarantined: Mapping[str, str]  #: item id -> why it is not run again
    tracebacks: Mapping[str, str]  #: of items in quarantine that hung: where


def troubled_shards(db: Database, run_id: str, limit: int) -> list[TroubledShard]:
    """Shards that gave up, had an error or have items in quarantine."""
    names = ("index", "start", "stop", "state", "attempt", "worker", "error", "traceback")
    query = (
        select(*(shard.c[name] for name in names), shard.c.suspects)
        .where(
            shard.c.run_id == run_id,
            (shard.c.state == "dead") | shard.c.error.is_not(None) | shard.c.suspects.is_not(None),
        )
        .order_by(shard.c.index)
        .limit(limit)
    )
    with db.read() as connection:
        rows = connection.execute(query).mappings().all()
    return [
        TroubledShard(
            **{name: row[name] for name in names},
            quarantined=known.quarantined,
            tracebacks=known.tracebacks,
        )
        for row in rows
        for known in [caution_of(row["suspects"])]
    ]
