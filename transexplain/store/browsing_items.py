"""Reads items for pages: from a row on, until there are enough or the time is up; and failures."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from heapq import merge
from operator import itemgetter
from typing import Any

import numpy as np
from sqlalchemy import select

from transexplain.store import parts, stored_rows
from transexplain.store.browsing_neighbours import (
    Neighbours,
    across_parts,
    neighbours_in,
    neighbours_of_row,
)
from transexplain.store.database import Database
from transexplain.store.item_matching import (
    LAST_ROW,
    ItemSearch,
    places_in,
    row_blocks,
    wanted_rows,
)
from transexplain.store.leases import caution_of
from transexplain.store.part_reading import Part
from transexplain.store.schema import item, shard
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

    def of_rows() -> Iterator[list[_Found]]:
        for block in row_blocks(db, run_id, start):
            yield wanted_rows(db, run_id, wanted, block)

    return _scan(db, run_id, of_part, of_rows, start, limit, seconds)


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

    def of_rows() -> Iterator[list[_Found]]:
        for block in row_blocks(db, run_id, start):
            ids = [one.item_id for _, one in block]
            found: dict[int, list[Mention]] = {}
            for row, mention in stored_rows.mentions(db, run_id, ids):
                if (mention.group, mention.entity) == (group, entity):
                    found.setdefault(row, []).append(mention)
            yield [(row, (one, tuple(found[row]))) for row, one in block if row in found]

    return _scan(db, run_id, of_part, of_rows, start, limit, seconds)


def _scan(
    db: Database,
    run_id: str,
    of_part: Callable[[Part], list[_Found]],
    of_rows: Callable[[], Iterator[list[_Found]]],
    start: int,
    limit: int,
    seconds: float,
) -> Scanned:
    """Blocks of the run by row until `limit` were found or so much time went by."""
    begun = time.monotonic()

    def block(part: Part) -> tuple[int, list[_Found]]:
        return int(part.rows[-1]), of_part(part)

    inside = parts.read(db, run_id, block, rows=range(start, LAST_ROW), together=1)
    older = ((rows[-1][0], rows) for rows in of_rows() if rows) if _has_rows(db, run_id) else ()
    found: list[_Found] = []
    for last, some in merge(inside, older, key=itemgetter(0)):
        found += some
        if len(found) > limit:
            shown = found[:limit]
            return _scanned(shown, found[limit][0], begun)
        if time.monotonic() - begun > seconds:
            return _scanned(found, last + 1, begun)
    return _scanned(found, None, begun)


def _scanned(found: list[_Found], next_row: int | None, begun: float) -> Scanned:
    return Scanned(
        found=tuple(one for _, one in found),
        next_row=next_row,
        seconds=time.monotonic() - begun,
    )


def _has_rows(db: Database, run_id: str) -> bool:
    return stored_rows.any_explained(db, run_id)


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
            return replace(found, near=across_parts(db, run_id, row, found.near))
    for _, old in stored_rows.items(db, run_id, [item_id]):
        if isinstance(old, ItemFailure):
            return old
        return ItemRecord(
            outcome=old,
            attributions=tuple(one for _, one in stored_rows.attributions(db, run_id, [item_id])),
            mentions=tuple(one for _, one in stored_rows.mentions(db, run_id, [item_id])),
            # old rows of scores are read whole: evaluations alone have them
            scores=(),
            near=neighbours_of_row(db, run_id, old.index),
        )
    return None


_FAILED = ("index", "item_id", "error_kind", "error", "traceback")


def failed_page(db: Database, run_id: str, *, start: int, limit: int) -> list[ItemFailure]:
    """Items from row `start` on that could not be explained."""
    columns = [item.c[name] for name in _FAILED]
    query = (
        select(*columns)
        .where(item.c.run_id == run_id, item.c.error_kind.is_not(None), item.c.index >= start)
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
