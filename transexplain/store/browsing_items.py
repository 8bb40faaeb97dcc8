"""Reads items for pages: from a row on, until there are enough or the time is up; and failures."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sqlalchemy import select

from transexplain.store import parts
from transexplain.store.browsing_neighbours import (
    Neighbours,
    across_parts,
    neighbours_in,
)
from transexplain.store.database import Database
from transexplain.store.item_matching import (
    LAST_ROW,
    ItemSearch,
    places_in,
)
from transexplain.store.leases import caution_of
from transexplain.store.part_reading import Part
from transexplain.store.readers import iter_items
from transexplain.store.schema import item, shard
from transexplain.store.shard_digests import refuse_damaged_rows
from transexplain.types.items import Attribution, ItemFailure, ItemOutcome, Mention
from transexplain.types.scores import MetricScore

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
