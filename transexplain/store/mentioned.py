"""Explanations of the items that mention each group, as the database adds them up."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Select, Table, func, literal, select

from transexplain.store.database import Database
from transexplain.store.runs import require
from transexplain.store.schema import attribution, item, mention, score
from transexplain.store.totals import RELATIVE_GAP

_PAGE = 500  # items
ALL = ""  #: stands for every item; no group is called so


class MeanOfItems(NamedTuple):
    """A mean, and how many different items it is of."""

    items: int
    mean: float


def mean_gaps(db: Database, run_id: str) -> dict[str, MeanOfItems]:
    """Mean relative gap of the ledgers, by group and over `ALL` items; no ledger: no entry.

    An item that mentions a group twice counts once. Raises ConfigurationError for an unknown run.
    """
    wanted = (func.count(attribution.c.item.distinct()), func.avg(RELATIVE_GAP))
    with db.read() as connection:
        require(connection, run_id)
        return {
            group: MeanOfItems(count, mean)
            for query in _queries(attribution, run_id, wanted, ())
            for group, count, mean in connection.execute(
                query.where(attribution.c.total.is_not(None))
            )
            if count
        }


def mean_scores(db: Database, run_id: str, method: str) -> dict[tuple[str, str, str], MeanOfItems]:
    """(group or `ALL`, target, metric) -> mean of a method's scores over the measured items.

    Scores that could not be computed do not count. Raises ConfigurationError for an unknown run.
    """
    wanted, by = (func.count(), func.avg(score.c.value)), (score.c.target, score.c.metric)
    with db.read() as connection:
        require(connection, run_id)
        return {
            (group, target, metric): MeanOfItems(count, mean)
            for query in _queries(score, run_id, wanted, by)
            for group, count, mean, target, metric in connection.execute(
                query.where(score.c.method == method, score.c.value.is_not(None))
            )
        }


def items_of(db: Database, run_id: str, groups: Sequence[str], most: int) -> list[str]:
    """Ids of items that mention any of these groups, in the order of the data.

    Of more than `most` those that lie as far apart as they can. Raises ConfigurationError for an
    unknown run.
    """
    places = (
        select(mention.c.item)
        .where(mention.c.run_id == run_id, mention.c.group.in_(groups))
        .distinct()
        .order_by(mention.c.item)
    )
    with db.read() as connection:
        require(connection, run_id)
        found = list(connection.scalars(places))
        step = max(len(found) / most, 1.0)
        kept = [found[int(place * step)] for place in range(min(len(found), most))]
        ids: list[str] = []
        for start in range(0, len(kept), _PAGE):
            page = kept[start : start + _PAGE]
            query = select(item.c.item_id).where(item.c.run_id == run_id, item.c.index.in_(page))
            ids += connection.scalars(query.order_by(item.c.index))
        return ids


def _queries(
    table: Table,
    run_id: str,
    wanted: tuple[ColumnElement[Any], ...],
    by: tuple[ColumnElement[Any], ...],
) -> tuple[Select[Any], Select[Any]]:
    """Rows (group, *wanted, *by) of a table: over all items, and of those that mention a group."""
    every = select(literal(ALL), *wanted, *by).where(table.c.run_id == run_id)
    mentions = (
        select(mention.c.item, mention.c.group)
        .where(mention.c.run_id == run_id)
        .distinct()
        .subquery()
    )
    some = (
        select(mentions.c.group, *wanted, *by)
        .select_from(table.join(mentions, mentions.c.item == table.c.item))
        .where(table.c.run_id == run_id)
        .group_by(mentions.c.group, *by)
    )
    return (every.group_by(*by) if by else every), some
