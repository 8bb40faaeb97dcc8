"""Two runs item by item: what both explained, a page at a time, whatever the order of their data.

Items are paired by their ids; whether their contents are the same, too, is for the reader to say.
Memory holds one page, however large the runs are.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, select

from transexplain.store.database import Database
from transexplain.store.runs import require
from transexplain.store.schema import item

_PAGE = 128  # items


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
        .limit(_PAGE)
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
        if len(rows) < _PAGE:
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
