"""Finds the strongest explanations and the most wrong answers of a run, by index."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, func, select

from transexplain.store.codec import EncodedRelevance, decode
from transexplain.store.database import Database
from transexplain.store.recorded import failure_kinds
from transexplain.store.runs import require
from transexplain.store.schema import attribution, item, run
from transexplain.types.items import Attribution, ItemFailure, ItemOutcome
from transexplain.types.words import size_of


def stored_size(attribution: Attribution, encoded: EncodedRelevance, text: str | None) -> float:
    """The size of `attribution` as it will be read back: from its payload and its item's text."""
    relevance = decode(encoded).reshape(attribution.relevance.shape)
    return size_of(replace(attribution, relevance=relevance, text=text))


def margin_of(outcome: ItemOutcome, places: Mapping[str, int]) -> float | None:
    """By how much the predicted class beats the labelled one, in logits; None: it is not wrong.

    `places` are the indices of the classes' logits; a class without one has no margin, which is 0.
    """
    if outcome.label is None or outcome.label == outcome.predicted:
        return None
    label, predicted = places.get(outcome.label), places.get(outcome.predicted)
    if label is None or predicted is None or not outcome.logits:
        return 0.0
    return outcome.logits[predicted] - outcome.logits[label]


def places_of(connection: Connection, run_id: str) -> dict[str, int]:
    """The index of the logit of every class of a run's model, by its name; no run: none."""
    plan = connection.execute(select(run.c.plan).where(run.c.id == run_id)).scalar_one_or_none()
    names = plan["model"]["classes"] if plan else ()
    return {name: index for index, name in enumerate(names)}


def sized(db: Database, run_id: str) -> int:
    """How many explanations have their size on record; those of older versions have not.

    Raises ConfigurationError for an unknown run.
    """
    query = select(func.count()).where(
        attribution.c.run_id == run_id, attribution.c.size.is_not(None)
    )
    with db.read() as connection:
        require(connection, run_id)
        return int(connection.execute(query).scalar_one())


def strongest(db: Database, run_id: str, count: int) -> list[str]:
    """Items of the `count` explanations with the largest sizes, each once, the largest first.

    Among equals, those that come first in the dataset.
    """
    query = (
        select(item.c.item_id)
        .select_from(attribution.join(item))
        .where(attribution.c.run_id == run_id, attribution.c.size.is_not(None))
        .order_by(attribution.c.size.desc(), attribution.c.item, attribution.c.ordinal)
    )
    return list(dict.fromkeys(_names(db, query.limit(count))))


def wrong(db: Database, run_id: str, count: int) -> list[str]:
    """The `count` items whose predicted class beats the label's by most, that first.

    Among equals, those that come first in the dataset.
    """
    query = (
        select(item.c.item_id)
        .where(item.c.run_id == run_id, item.c.margin.is_not(None))
        .order_by(item.c.margin.desc(), item.c.index)
    )
    return _names(db, query.limit(count))


def first(db: Database, run_id: str, count: int) -> list[str]:
    """The first `count` items of the dataset that have a result."""
    query = (
        select(item.c.item_id)
        .where(item.c.run_id == run_id, item.c.error_kind.is_(None))
        .order_by(item.c.index)
    )
    return _names(db, query.limit(count))


def sizes_at(db: Database, run_id: str, above: int) -> tuple[float, float] | None:
    """The size that `above` explanations reach or exceed, and the largest; None: there are none."""
    sizes = (
        select(attribution.c.size)
        .where(attribution.c.run_id == run_id, attribution.c.size.is_not(None))
        .order_by(attribution.c.size.desc())
        .limit(1)
    )
    with db.read() as connection:
        largest = connection.execute(sizes).scalar_one_or_none()
        if largest is None:
            return None
        return connection.execute(sizes.offset(max(0, above - 1))).scalar_one(), largest


def failure_examples(
    db: Database, run_id: str, count: int
) -> Mapping[str, tuple[int, Sequence[ItemFailure]]]:
    """Kind of failure -> how many items, and the first `count` of them."""
    found: dict[str, tuple[int, list[ItemFailure]]] = {}
    for kind, number in failure_kinds(db, run_id).items():
        query = (
            select(item.c.item_id, item.c.index, item.c.error)
            .where(item.c.run_id == run_id, _failed(), item.c.error_kind == kind)
            .order_by(item.c.index)
            .limit(count)
        )
        with db.read() as connection:
            rows = connection.execute(query).all()
        found[kind] = (
            number,
            [ItemFailure(item_id=i, index=n, kind=kind, message=why) for i, n, why in rows],
        )
    return found


def _failed() -> ColumnElement[bool]:
    """As the index of failures is made, so that it is used."""
    return item.c.error_kind.is_not(None)


def _names(db: Database, query: Select[Any]) -> list[str]:
    with db.read() as connection:
        return [str(name) for name in connection.execute(query).scalars()]
