"""Reads results that lie in rows: failed items, and all that versions before `result_part` wrote.

Each comes with the row of its item in the dataset; a page of rows is fetched at a time.
"""

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Column, ColumnElement, Row, Select, and_, or_, select, tuple_

from transexplain.store import codec
from transexplain.store.codec import EncodedRelevance, decode
from transexplain.store.columns import reading
from transexplain.store.database import Database
from transexplain.store.rows import LEDGER_ENTRIES
from transexplain.store.schema import attribution, item, mention, score
from transexplain.types.items import (
    Attribution,
    ItemFailure,
    ItemOutcome,
    Ledger,
    Mention,
    PatchGrid,
)
from transexplain.types.scores import MetricScore

_PAGE = 512  #: rows
_Value = TypeVar("_Value")
_Key = Sequence[Column[int]]
_ATTRIBUTION_KEY = (attribution.c.item, attribution.c.ordinal)
_MENTION_KEY = (mention.c.item, mention.c.ordinal)
_SCORE_KEY = (score.c.item, score.c.ordinal)


def pages(
    db: Database, query: Select[Any], key: _Key, items: Sequence[int] | None = None
) -> Iterator[Row[Any]]:
    """The rows of `query` by ascending `key`, of these `items` alone where any are given.

    Then the first column of `key` is the item.
    """
    query = query.order_by(*key).limit(_PAGE)
    page = query if items is None else query.where(key[0].in_(items))
    while True:
        with db.read() as connection:
            rows = connection.execute(page).all()
        yield from rows
        if len(rows) < _PAGE:
            return
        last = tuple(rows[-1]._mapping[column] for column in key)
        after = tuple_(*key) > last if items is None else _after(key, last, items)
        page = query.where(after)


def _after(key: _Key, last: tuple[int, ...], items: Sequence[int]) -> ColumnElement[bool]:
    """The remaining `items` by name: PostgreSQL would read all rows of a run after `last`."""
    later = key[0].in_([one for one in items if one > last[0]])
    if len(key) == 1:
        return later
    return or_(later, and_(key[0] == last[0], tuple_(*key[1:]) > last[1:]))


def _paged(
    db: Database, run_id: str, query: Select[Any], key: _Key, item_ids: Sequence[str] | None
) -> Iterator[Row[Any]]:
    """As `pages`, of the items with these ids or of all."""
    if item_ids is None:
        yield from pages(db, query, key)
        return
    for some in _chunks(_indices(db, run_id, item_ids)):
        yield from pages(db, query, key, some)


def _indices(db: Database, run_id: str, item_ids: Sequence[str]) -> list[int]:
    found: list[int] = []
    for some in _chunks(item_ids):
        query = select(item.c.index).where(item.c.run_id == run_id, item.c.item_id.in_(some))
        with db.read() as connection:
            found += connection.execute(query).scalars()
    return sorted(found)


def _chunks(values: Sequence[_Value]) -> Iterator[Sequence[_Value]]:
    return (values[start : start + _PAGE] for start in range(0, len(values), _PAGE))


def items(
    db: Database,
    run_id: str,
    item_ids: Sequence[str] | None = None,
    *,
    failed: bool | None = None,
) -> Iterator[tuple[int, ItemOutcome | ItemFailure]]:
    """Items by row: the failed ones, the explained ones, or (None) both."""
    columns = [column for column in item.c if column.name not in ("run_id", "shard", "features")]
    query = select(*columns).where(item.c.run_id == run_id)
    if failed is not None:
        kind = item.c.error_kind
        query = query.where(kind.is_not(None) if failed else kind.is_(None))
    for row in _paged(db, run_id, query, (item.c.index,), item_ids):
        yield row._mapping["index"], _item(row)


def items_from(
    db: Database, run_id: str, start: int
) -> list[tuple[int, ItemOutcome | ItemFailure]]:
    """A page of items from row `start` of the dataset on."""
    columns = [column for column in item.c if column.name not in ("run_id", "shard", "features")]
    query = (
        select(*columns)
        .where(item.c.run_id == run_id, item.c.index >= start)
        .order_by(item.c.index)
        .limit(_PAGE)
    )
    with db.read() as connection:
        rows = connection.execute(query).all()
    return [(row._mapping["index"], _item(row)) for row in rows]


def answers(
    db: Database, run_id: str
) -> Iterator[tuple[int, tuple[str, tuple[float, ...], dict[str, str]]]]:
    """Predicted class, logits (C,) and metadata of every explained item."""
    query = select(item.c.index, item.c.predicted, item.c.logits, item.c.meta).where(
        item.c.run_id == run_id, item.c.error_kind.is_(None)
    )
    for row in pages(db, query, (item.c.index,)):
        yield row._mapping["index"], (row.predicted, row.logits, row.meta or {})


def attributions(
    db: Database, run_id: str, item_ids: Sequence[str] | None = None, target: str | None = None
) -> Iterator[tuple[int, Attribution]]:
    """Attributions as they were saved, of all targets or of one."""
    query = (
        select(attribution, item.c.item_id, item.c.text, item.c.features)
        .join(item)
        .where(attribution.c.run_id == run_id)
    )
    if target is not None:
        query = query.where(attribution.c.target == target)
    last: tuple[bytes, codec.Features] | None = None
    for row in _paged(db, run_id, query, _ATTRIBUTION_KEY, item_ids):
        # the targets of one item follow each other and share its features
        if last is None or last[0] != row.features:
            last = (row.features, codec.unpack(row.features))
        yield row.item, _attribution(row, last[1])


def any_explained(db: Database, run_id: str) -> bool:
    """Whether a run has explained items in rows: a version before wrote them."""
    query = select(item.c.index).where(item.c.run_id == run_id, item.c.error_kind.is_(None))
    with db.read() as connection:
        return connection.execute(query.limit(1)).first() is not None


def explained(db: Database, run_id: str, target: str) -> Iterator[tuple[int, tuple[str, str]]]:
    """The id and the explained class of every attribution of a target."""
    columns = (*_ATTRIBUTION_KEY, attribution.c.class_name, item.c.item_id)
    query = (
        select(*columns)
        .join(item)
        .where(attribution.c.run_id == run_id, attribution.c.target == target)
    )
    for row in pages(db, query, _ATTRIBUTION_KEY):
        yield row.item, (row.item_id, row.class_name)


def mentions(
    db: Database, run_id: str, item_ids: Sequence[str] | None = None
) -> Iterator[tuple[int, Mention]]:
    """Every mention of an entity."""
    columns = [column for column in mention.c if column.name != "run_id"]
    query = select(*columns, item.c.item_id).join(item).where(mention.c.run_id == run_id)
    for row in _paged(db, run_id, query, _MENTION_KEY, item_ids):
        yield row.item, _mention(row)


def scores(db: Database, run_id: str) -> Iterator[tuple[int, MetricScore]]:
    """Every score of every item."""
    columns = [column for column in score.c if column.name != "run_id"]
    query = select(*columns, item.c.item_id).join(item).where(score.c.run_id == run_id)
    for row in pages(db, query, _SCORE_KEY):
        yield row.item, _score(row)


def _item(row: Row[Any]) -> ItemOutcome | ItemFailure:
    value = row._mapping  # `row.index` would be the tuple's own method
    if row.error_kind is not None:
        return ItemFailure(
            item_id=row.item_id,
            index=value["index"],
            kind=row.error_kind,
            message=row.error,
            traceback=row.traceback or "",
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
        raw_label=row.raw_label,
    )


def _attribution(row: Row[Any], features: codec.Features) -> Attribution:
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


def _relevance(row: Row[Any], features: codec.Features) -> NDArray[np.float32]:
    flat = decode(EncodedRelevance(blob=row.relevance, scale=row.scale, dtype=row.dtype))
    with reading("relevance"):
        if flat.size != codec.count(features):
            raise ValueError(f"{flat.size} values for {codec.count(features)} positions")
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
