"""Reads items for pages: from a row on, until there are enough or the time is up; and failures."""

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
from sqlalchemy import select

from transexplain.store import blocks
from transexplain.store.blocks import Block
from transexplain.store.database import Database
from transexplain.store.ranked_items import LAST_ROW, ItemSearch, places_in
from transexplain.store.readers import iter_items, stored_failures
from transexplain.store.schema import failure, item, shard
from transexplain.store.shard_digests import refuse_damaged_rows
from transexplain.store.shards import caution_of
from transexplain.types.items import Attribution, ItemFailure, ItemOutcome, Mention
from transexplain.types.scores import MetricScore

_ALIKE = 5  #: items
_ENTITIES = 3  #: that are looked for
_NEAR = 100  #: items before and behind one, among which others are looked for


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
    alike: tuple[Alike, ...] = ()  #: of the `_NEAR` before and behind it, by ascending row


def neighbours_in(block: Block, place: int, entities: Collection[str]) -> Neighbours:
    """Of the item at a place of a block, which mentions these entities."""
    ids, last = block.ids, len(block) - 1
    reasons: dict[int, str] = {}
    for entity in list(entities)[:_ENTITIES]:
        for other in np.flatnonzero(block.mentioning(None, entity)).tolist():
            reasons.setdefault(other, entity)
    reasons.pop(place, None)
    if not reasons:
        pairs = list(zip(block.labels, block.predicted, strict=True))
        reasons = {n: "" for n, pair in enumerate(pairs) if pair == pairs[place] and n != place}
    nearest = sorted(sorted(reasons, key=lambda other: abs(other - place))[:_ALIKE])
    outcomes = block.only(np.array(nearest, dtype=np.int64)).outcomes if nearest else []
    return Neighbours(
        before=ids[place - 1] if place > 0 else None,
        after=ids[place + 1] if place < last else None,
        alike=tuple(
            Alike(outcome=outcome, entity=reasons[other])
            for other, outcome in zip(nearest, outcomes, strict=True)
        ),
    )


def _around(db: Database, run_id: str, row: int) -> range:
    """Rows of the dataset from `_NEAR` explained items before this one to as many behind it."""
    bounds = []
    for inside, order in ((item.c.idx < row, item.c.idx.desc()), (item.c.idx > row, item.c.idx)):
        query = select(item.c.idx).where(item.c.run_id == run_id, inside).order_by(order)
        with db.read() as connection:
            rows = connection.scalars(query.limit(_NEAR)).all()
        bounds.append(rows[-1] if rows else row)
    return range(bounds[0], bounds[1] + 1)


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

    def of_block(block: Block) -> list[_Found]:
        few = block.only(places_in(block, wanted)[: limit + 1])
        return list(zip(few.rows.tolist(), few.outcomes, strict=True))

    return _scan(db, run_id, of_block, start, limit, seconds)


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

    def of_block(block: Block) -> list[_Found]:
        places = np.flatnonzero(block.mentioning(group, entity))[: limit + 1]
        if not len(places):
            return []
        few = block.only(places)
        mentions: dict[int, list[Mention]] = {}
        for place, mention in few.mentions():
            if (mention.group, mention.entity) == (group, entity):
                mentions.setdefault(place, []).append(mention)
        outcomes = few.outcomes
        return [
            (few.rows.tolist()[at], (outcomes[at], tuple(mentions[at]))) for at in sorted(mentions)
        ]

    return _scan(db, run_id, of_block, start, limit, seconds)


def _scan(
    db: Database,
    run_id: str,
    of_block: Callable[[Block], list[_Found]],
    start: int,
    limit: int,
    seconds: float,
) -> Scanned:
    """Blocks of the run by row until `limit` were found or so much time went by."""
    begun = time.monotonic()

    def found(block: Block) -> tuple[int, list[_Found]]:
        return int(block.rows[-1]), of_block(block)

    inside = blocks.read(db, run_id, found, range(start, LAST_ROW))
    matches: list[_Found] = []
    for last, some in inside:
        matches += some
        if len(matches) > limit:
            following = matches.pop(limit)[0]
            break
        if time.monotonic() - begun > seconds:
            following = last + 1
            break
    else:
        following = None
    matches = matches[:limit]
    refuse_damaged_rows(db, run_id, [row for row, _ in matches])
    return Scanned(
        found=tuple(one for _, one in matches),
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
    """The item with this id, or why it could not be explained; None: the run has none yet."""

    def work(block: Block) -> ItemRecord | None:
        places = block.places_of({item_id})
        if not len(places):
            return None
        alone = block.only(places)
        mentions = tuple(mention for _, mention in alone.mentions())
        entities = dict.fromkeys(mention.entity for mention in mentions)
        return ItemRecord(
            outcome=alone.outcomes[0],
            attributions=tuple(attribution for _, attribution in alone.attributions()),
            mentions=mentions,
            scores=tuple(score for _, score in alone.scores()),
            near=neighbours_in(block, int(places[0]), entities),
        )

    for row in blocks.rows_of_ids(db, run_id, [item_id]):
        for record in blocks.read(db, run_id, work, _around(db, run_id, row)):
            if record is not None:
                refuse_damaged_rows(db, run_id, [row])
                return record
    failed = iter_items(db, run_id, only_failed=True, item_ids=[item_id])
    return next((failure for failure in failed if isinstance(failure, ItemFailure)), None)


def failed_page(db: Database, run_id: str, *, start: int, limit: int) -> list[ItemFailure]:
    """Items from row `start` on that could not be explained."""
    return stored_failures(db, run_id, failure.c.idx >= start, limit)


def troubled_shards(db: Database, run_id: str, limit: int) -> list[dict[str, Any]]:
    """Shards that gave up, had an error or have items in quarantine.

    `quarantined`: item id -> why it is not run again; `tracebacks`: where those that hung did.
    """
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
        {
            **{name: row[name] for name in names},
            "quarantined": caution.quarantined,
            "tracebacks": caution.tracebacks,
        }
        for row in rows
        for caution in [caution_of(row["suspects"])]
    ]
