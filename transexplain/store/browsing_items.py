"""Reads items for pages: from a row on, until there are enough or the time is up; and failures."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from heapq import merge
from operator import itemgetter
from typing import Any

import numpy as np
from sqlalchemy import select

from transexplain.store import parts, stored_rows
from transexplain.store.database import Database
from transexplain.store.leases import caution_of
from transexplain.store.part_reading import Part
from transexplain.store.schema import item, shard
from transexplain.types.items import Attribution, ItemFailure, ItemOutcome, Mention
from transexplain.types.scores import MetricScore

_Found = tuple[int, Any]  #: row of the dataset, and what was found there
_LAST = 2**31 - 1  #: no row lies behind


@dataclass(frozen=True, kw_only=True, slots=True)
class ItemSearch:
    """What an item has to be; what is empty is not looked at."""

    text: str = ""  #: part of its text, in any case
    predicted: str = ""
    label: str = ""  #: class, or as the dataset spells it
    group: str = ""  #: that it mentions
    entity: str = ""  #: that it mentions, of `group` where one is given


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
        places = _places(part, wanted)
        rows = part.rows
        later = places[rows[places] >= start][: limit + 1]
        few = part.only(later)
        return list(zip(few.rows.tolist(), few.outcomes, strict=True))

    def of_rows() -> Iterator[list[_Found]]:
        for block in _row_blocks(db, run_id, start):
            mentioned = _mentioned_in_rows(db, run_id, wanted, block)
            yield [
                (row, one)
                for row, one in block
                if isinstance(one, ItemOutcome)
                and _is(one, wanted)
                and (mentioned is None or one.item_id in mentioned)
            ]

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
        few = part.only(places[part.rows[places] >= start][: limit + 1])
        found: dict[int, list[Mention]] = {}
        for place, one in few.mentions():
            if (one.group, one.entity) == (group, entity):
                found.setdefault(place, []).append(one)
        outcomes = few.outcomes
        return [(few.rows.tolist()[at], (outcomes[at], tuple(found[at]))) for at in sorted(found)]

    def of_rows() -> Iterator[list[_Found]]:
        for block in _row_blocks(db, run_id, start):
            ids = [one.item_id for _, one in block]
            found: dict[int, list[Mention]] = {}
            for row, mention in stored_rows.mentions(db, run_id, ids):
                if (mention.group, mention.entity) == (group, entity):
                    found.setdefault(row, []).append(mention)
            yield [(row, (one, tuple(found[row]))) for row, one in block if row in found]

    return _scan(db, run_id, of_part, of_rows, start, limit, seconds)


def predictions(
    db: Database, run_id: str, *, start: int, seconds: float
) -> tuple[Mapping[tuple[str, str], int], int | None]:
    """(label, predicted) -> explained items, from row `start` on; and the row to go on from.

    The label is the class, or "" where it is none.
    """

    def of_part(part: Part) -> list[_Found]:
        keep = part.rows >= start
        pairs = zip(part.labels, part.predicted, keep.tolist(), strict=True)
        counts: dict[tuple[str, str], int] = {}
        for label, predicted, inside in pairs:
            if inside:
                key = (label or "", predicted)
                counts[key] = counts.get(key, 0) + 1
        return [(int(part.rows[-1]), counts)]

    def of_rows() -> Iterator[list[_Found]]:
        for block in _row_blocks(db, run_id, start):
            counts: dict[tuple[str, str], int] = {}
            for _, one in block:
                if isinstance(one, ItemOutcome):
                    key = (one.label or "", one.predicted)
                    counts[key] = counts.get(key, 0) + 1
            yield [(block[-1][0], counts)]

    made = _scan(db, run_id, of_part, of_rows, start, _LAST, seconds)
    total: dict[tuple[str, str], int] = {}
    for counts in made.found:
        for key, count in counts.items():
            total[key] = total.get(key, 0) + count
    return total, made.next_row


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

    inside = parts.read(db, run_id, block, rows=range(start, _LAST), together=1)
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


def _row_blocks(db: Database, run_id: str, start: int) -> Iterator[list[Any]]:
    """Items that versions before parts saved as rows, a page at a time."""
    while True:
        block = list(stored_rows.items_from(db, run_id, start))
        if not block:
            return
        yield block
        start = block[-1][0] + 1


def _mentioned_in_rows(
    db: Database, run_id: str, wanted: ItemSearch, block: list[Any]
) -> set[str] | None:
    if not (wanted.group or wanted.entity):
        return None
    ids = [one.item_id for _, one in block]
    return {
        one.item_id
        for _, one in stored_rows.mentions(db, run_id, ids)
        if wanted.group in ("", one.group) and wanted.entity in ("", one.entity)
    }


def _is(one: ItemOutcome, wanted: ItemSearch) -> bool:
    if wanted.predicted and one.predicted != wanted.predicted:
        return False
    if wanted.label and wanted.label not in (one.label, one.raw_label):
        return False
    return not wanted.text or wanted.text.casefold() in (one.text or "").casefold()


def _places(part: Part, wanted: ItemSearch) -> Any:
    """Where the items of a part stand that are what is wanted, ascending."""
    keep = np.ones(len(part), dtype=bool)
    if wanted.group or wanted.entity:
        keep &= part.mentioning(wanted.group or None, wanted.entity or None)
    if wanted.predicted:
        keep &= part.named("predicted", wanted.predicted)
    if wanted.label:
        keep &= part.named("label", wanted.label) | part.named("raw_label", wanted.label)
    if wanted.text and keep.any():
        needle = wanted.text.casefold()
        texts = part.texts
        for place in np.flatnonzero(keep).tolist():
            keep[place] = needle in (texts[place] or "").casefold()
    return np.flatnonzero(keep)


@dataclass(frozen=True, kw_only=True, slots=True)
class ItemRecord:
    """All that is stored of one explained item."""

    outcome: ItemOutcome
    attributions: tuple[Attribution, ...]
    mentions: tuple[Mention, ...]
    scores: tuple[MetricScore, ...]


def item_record(db: Database, run_id: str, item_id: str) -> ItemRecord | ItemFailure | None:
    """The item with this id, or why it could not be explained; None: the run has none yet.

    The one part that holds it is decoded once.
    """

    def work(part: Part) -> ItemRecord | None:
        one = part.only(part.places_of({item_id}))
        if not len(one):
            return None
        return ItemRecord(
            outcome=one.outcomes[0],
            attributions=tuple(found for _, found in one.attributions()),
            mentions=tuple(found for _, found in one.mentions()),
            scores=tuple(found for _, found in one.scores()),
        )

    for found in parts.read(db, run_id, work, parts.holding(db, run_id, [item_id])):
        if found is not None:
            return found
    for _, old in stored_rows.items(db, run_id, [item_id]):
        if isinstance(old, ItemFailure):
            return old
        return ItemRecord(
            outcome=old,
            attributions=tuple(one for _, one in stored_rows.attributions(db, run_id, [item_id])),
            mentions=tuple(one for _, one in stored_rows.mentions(db, run_id, [item_id])),
            # old rows of scores are read whole: evaluations alone have them
            scores=(),
        )
    return None


def failed_page(db: Database, run_id: str, *, start: int, limit: int) -> list[ItemFailure]:
    """Items from row `start` on that could not be explained."""
    columns = [item.c[name] for name in ("index", "item_id", "error_kind", "error")]
    query = (
        select(*columns)
        .where(item.c.run_id == run_id, item.c.error_kind.is_not(None), item.c.index >= start)
        .order_by(item.c.index)
        .limit(limit)
    )
    with db.read() as connection:
        return [
            ItemFailure(item_id=name, index=row, kind=kind, message=error or "")
            for row, name, kind, error in connection.execute(query)
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
    error: str | None  #: of the last attempt that failed, with its traceback where one was kept
    quarantined: Mapping[str, str]  #: item id -> why it is not run again


def troubled_shards(db: Database, run_id: str, limit: int) -> list[TroubledShard]:
    """Shards that gave up, had an error or have items in quarantine."""
    names = ("index", "start", "stop", "state", "attempt", "worker", "error", "suspects")
    query = (
        select(*(shard.c[name] for name in names))
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
            **{name: row[name] for name in names[:-1]},
            quarantined=caution_of(row["suspects"]).quarantined,
        )
        for row in rows
    ]
