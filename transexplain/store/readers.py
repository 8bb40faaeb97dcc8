"""Reading results item by item, a page at a time: memory does not grow with the run.

Every page is a short transaction of its own, so that a slow reader blocks nobody and one that
stops halfway leaves nothing open. Order is that of the dataset.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Row, select

from transexplain.evaluations import MetricScore
from transexplain.store import features as positions
from transexplain.store.codec import EncodedRelevance, decode
from transexplain.store.damage import reading
from transexplain.store.database import Database
from transexplain.store.pages import pages, pages_of
from transexplain.store.rows import LEDGER_ENTRIES
from transexplain.store.runs import require
from transexplain.store.schema import attribution, item, mention, score
from transexplain.types import (
    Attribution,
    ItemFailure,
    ItemOutcome,
    Ledger,
    Mention,
    PatchGrid,
)


def iter_items(
    db: Database,
    run_id: str,
    *,
    only_failed: bool = False,
    item_ids: Iterable[str] | None = None,
) -> Iterator[ItemOutcome | ItemFailure]:
    """Every saved item, or those of `item_ids`: outcome or failure; raises as `iter_mentions`."""
    _check(db, run_id)
    columns = [column for column in item.c if column.name not in ("run_id", "shard", "features")]
    query = select(*columns).where(item.c.run_id == run_id)
    if only_failed:
        query = query.where(item.c.error_kind.is_not(None))
    if item_ids is None:
        return map(_item, pages(db, query, (item.c.index,)))
    return map(_item, pages_of(db, run_id, query, (item.c.index,), item_ids))


def failures(db: Database, run_id: str) -> list[ItemFailure]:
    """Every item that could not be explained; raises ConfigurationError for an unknown run."""
    found = iter_items(db, run_id, only_failed=True)
    return [one for one in found if isinstance(one, ItemFailure)]


def iter_attributions(
    db: Database,
    run_id: str,
    *,
    item_ids: Iterable[str] | None = None,
    target: str | None = None,
) -> Iterator[Attribution]:
    """Attributions as they were saved, relevance in float32, in the order of the dataset.

    `item_ids` and `target` (as asked, e.g. `top:2`) narrow them; an id that has none is skipped.
    Raises ConfigurationError for an unknown run.
    """
    _check(db, run_id)
    query = (
        select(attribution, item.c.item_id, item.c.text, item.c.features)
        .join(item)
        .where(attribution.c.run_id == run_id)
    )
    if target is not None:
        query = query.where(attribution.c.target == target)
    if item_ids is None:
        return _attributions(pages(db, query, _ATTRIBUTION_KEY))
    return _attributions(pages_of(db, run_id, query, _ATTRIBUTION_KEY, item_ids))


def iter_explained(db: Database, run_id: str, *, target: str) -> Iterator[tuple[str, str]]:
    """The id and the explained class of every attribution of a target, without its relevance.

    Raises ConfigurationError for an unknown run.
    """
    _check(db, run_id)
    columns = (attribution.c.item, attribution.c.ordinal, attribution.c.class_name, item.c.item_id)
    query = (
        select(*columns)
        .join(item)
        .where(attribution.c.run_id == run_id, attribution.c.target == target)
    )
    return ((row.item_id, row.class_name) for row in pages(db, query, _ATTRIBUTION_KEY))


def iter_mentions(
    db: Database, run_id: str, *, item_ids: Iterable[str] | None = None
) -> Iterator[Mention]:
    """Every mention of an entity, once per explained target; ConfigurationError: unknown run.

    `item_ids` narrow them; an id that has none is skipped.
    """
    _check(db, run_id)
    columns = [column for column in mention.c if column.name != "run_id"]
    query = select(*columns, item.c.item_id).join(item).where(mention.c.run_id == run_id)
    if item_ids is None:
        return map(_mention, pages(db, query, _MENTION_KEY))
    return map(_mention, pages_of(db, run_id, query, _MENTION_KEY, item_ids))


def iter_scores(db: Database, run_id: str) -> Iterator[MetricScore]:
    """Every score of every item; raises ConfigurationError for an unknown run."""
    _check(db, run_id)
    columns = [column for column in score.c if column.name != "run_id"]
    query = select(*columns, item.c.item_id).join(item).where(score.c.run_id == run_id)
    return map(_score, pages(db, query, (score.c.item, score.c.ordinal)))


_ATTRIBUTION_KEY = (attribution.c.item, attribution.c.ordinal)
_MENTION_KEY = (mention.c.item, mention.c.ordinal)


def _check(db: Database, run_id: str) -> None:
    with db.read() as connection:
        require(connection, run_id)


def _item(row: Row[Any]) -> ItemOutcome | ItemFailure:
    value = row._mapping  # `row.index` would be the tuple's own method
    if row.error_kind is not None:
        return ItemFailure(
            item_id=row.item_id, index=value["index"], kind=row.error_kind, message=row.error
        )
    return ItemOutcome(
        item_id=row.item_id,
        index=value["index"],
        label=row.label,
        predicted=row.predicted,
        logits=row.logits,
        truncated=row.truncated,
        positions=row.positions,
        text=row.text,
        source=row.source,
        meta=row.meta or {},
    )


def _attributions(rows: Iterable[Row[Any]]) -> Iterator[Attribution]:
    last: tuple[bytes, positions.Features] | None = None
    for row in rows:
        # the targets of one item follow each other and share its features
        if last is None or last[0] != row.features:
            last = (row.features, positions.unpack(row.features))
        yield _attribution(row, last[1])


def _attribution(row: Row[Any], features: positions.Features) -> Attribution:
    return Attribution(
        item_id=row.item_id,
        method=row.method,
        target=row.target,
        rank=row.rank,
        class_index=row.class_index,
        class_name=row.class_name,
        logit=row.logit,
        relevance=_relevance(row, features),
        unit=row.unit,
        at=row.at,
        features=features,
        ledger=_ledger(row),
        text=row.text,
        prefix_relevance=row.prefix or (),
        notes=tuple(row.notes or ()),
    )


def _relevance(row: Row[Any], features: positions.Features) -> NDArray[np.float32]:
    flat = decode(EncodedRelevance(blob=row.relevance, scale=row.scale, dtype=row.dtype))
    with reading("relevance"):
        if flat.size != positions.count(features):
            raise ValueError(f"{flat.size} values for {positions.count(features)} positions")
    return flat.reshape(features.rows, features.cols) if isinstance(features, PatchGrid) else flat


def _ledger(row: Row[Any]) -> Ledger | None:
    if row.total is None:
        return None
    biases, rules = row.kinds or ({}, {})
    entries = {name: getattr(row, name) for name in LEDGER_ENTRIES}
    return Ledger(**entries, biases_by_kind=biases, rules_by_kind=rules)


def _score(row: Row[Any]) -> MetricScore:
    return MetricScore(
        item_id=row.item_id,
        method=row.method,
        target=row.target,
        metric=row.metric,
        value=row.value,
        curve=row.curve or (),
        reason=row.reason or "",
        detail=row.detail or {},
    )


def _mention(row: Row[Any]) -> Mention:
    names = ("item_id", "target", "rank", "class_name", "group", "entity", "surface")
    more = ("start", "end", "relevance")
    return Mention(**{name: row._mapping[name] for name in (*names, *more)})
