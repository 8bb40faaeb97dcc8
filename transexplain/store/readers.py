"""Reads results item by item, a page at a time, so that memory does not grow with the run."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Column, ColumnElement, Row, Select, and_, or_, select, tuple_

from transexplain.store import codec
from transexplain.store.codec import EncodedRelevance, decode
from transexplain.store.columns import reading
from transexplain.store.database import Database
from transexplain.store.rows import LEDGER_ENTRIES
from transexplain.store.runs import require
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


def pages_of(
    db: Database, run_id: str, query: Select[Any], key: _Key, item_ids: Iterable[str]
) -> Iterator[Row[Any]]:
    """As `pages`, of the items with these ids."""
    for some in _chunks(_indices(db, run_id, item_ids)):
        yield from pages(db, query, key, some)


def _after(key: _Key, last: tuple[int, ...], items: Sequence[int]) -> ColumnElement[bool]:
    """The remaining `items` by name: PostgreSQL would read all rows of a run after `last`."""
    later = key[0].in_([one for one in items if one > last[0]])
    if len(key) == 1:
        return later
    return or_(later, and_(key[0] == last[0], tuple_(*key[1:]) > last[1:]))


def _indices(db: Database, run_id: str, item_ids: Iterable[str]) -> list[int]:
    found: list[int] = []
    for some in _chunks(list(dict.fromkeys(item_ids))):
        query = select(item.c.index).where(item.c.run_id == run_id, item.c.item_id.in_(some))
        with db.read() as connection:
            found += connection.execute(query).scalars()
    return sorted(found)


def _chunks(values: Sequence[_Value]) -> Iterator[Sequence[_Value]]:
    return (values[start : start + _PAGE] for start in range(0, len(values), _PAGE))


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


def iter_answers(
    db: Database, run_id: str
) -> Iterator[tuple[str, tuple[float, ...], Mapping[str, str]]]:
    """(predicted class, logits (C,), metadata) of every explained item, without its text.

    Raises ConfigurationError for an unknown run.
    """
    _check(db, run_id)
    query = select(item.c.index, item.c.predicted, item.c.logits, item.c.meta).where(
        item.c.run_id == run_id, item.c.error_kind.is_(None)
    )
    return (
        (row.predicted, row.logits, row.meta or {}) for row in pages(db, query, (item.c.index,))
    )


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

    `item_ids` and `target` (as requested, e.g. `top:2`) narrow them; an id without attributions is
    skipped. Raises ConfigurationError for an unknown run.
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
        raw_label=row.raw_label,
    )


def _attributions(rows: Iterable[Row[Any]]) -> Iterator[Attribution]:
    last: tuple[bytes, codec.Features] | None = None
    for row in rows:
        # the targets of one item follow each other and share its features
        if last is None or last[0] != row.features:
            last = (row.features, codec.unpack(row.features))
        yield _attribution(row, last[1])


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


_PAIRS_AT_ONCE = 128  # items


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What one run says about an item."""

    label: str | None
    predicted: str
    logits: tuple[float, ...]  #: (C,)


@dataclass(frozen=True, kw_only=True, slots=True)
class ItemPair:
    """One item that two runs explained."""

    item_id: str
    before: Answer
    after: Answer
    text_before: str | None  #: as the earlier run stored it
    text: str | None  #: as the later run stored it


def iter_pairs(db: Database, before: str, after: str) -> Iterator[tuple[ItemPair, ...]]:
    """Pages of the items that both runs explained, in the order of the later run's dataset.

    Raises ConfigurationError for an unknown run.
    """
    old, new = item.alias("old"), item.alias("new")
    names = ("label", "predicted", "logits")
    query = (
        select(
            new.c.index.label("place"),
            new.c.item_id,
            old.c.text.label("text_before"),
            new.c.text,
            *(old.c[name].label(f"old_{name}") for name in names),
            *(new.c[name].label(f"new_{name}") for name in names),
        )
        .select_from(new)
        .join(old, (old.c.item_id == new.c.item_id) & (old.c.run_id == before))
        .where(new.c.run_id == after, new.c.error_kind.is_(None), old.c.error_kind.is_(None))
        .order_by(new.c.index)
        .limit(_PAIRS_AT_ONCE)
    )
    with db.read() as connection:
        require(connection, before)
        require(connection, after)
    page = query
    while True:
        with db.read() as connection:
            rows = connection.execute(page).all()
        if rows:
            yield tuple(map(_pair, rows))
        if len(rows) < _PAIRS_AT_ONCE:
            return
        page = query.where(new.c.index > rows[-1].place)


def _pair(row: Row[Any]) -> ItemPair:
    return ItemPair(
        item_id=row.item_id,
        text_before=row.text_before,
        text=row.text,
        before=Answer(label=row.old_label, predicted=row.old_predicted, logits=row.old_logits),
        after=Answer(label=row.new_label, predicted=row.new_predicted, logits=row.new_logits),
    )
