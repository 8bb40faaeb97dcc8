"""Rows a page at a time, each page a short transaction that starts after the last key read."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

from sqlalchemy import Column, ColumnElement, Row, Select, and_, or_, select, tuple_

from transexplain.store.database import Database
from transexplain.store.schema import item

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
    """What is left of `items` by name: PostgreSQL would read all rows of a run after `last`."""
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
