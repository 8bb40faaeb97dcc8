"""Totals that the database computes over the rows of versions before `result_part`."""

from collections.abc import Sequence
from math import inf
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, Table, case, func, literal, select

from transexplain.errors import DamagedRowError
from transexplain.store.rows import LEDGER_ENTRIES
from transexplain.store.schema import attribution, item, mention, score

ALL = ""  #: stands for every item; no group is called so

#: as `Ledger.relative_gap`
RELATIVE_GAP = case(
    (attribution.c.magnitude == 0, func.abs(attribution.c.gap)),
    else_=func.abs(attribution.c.gap) / func.nullif(attribution.c.magnitude, 0),
)


def lengths(connection: Connection, run_id: str) -> list[tuple[int, int, int, int, int]]:
    """Of explained items by their positions: (positions, items, labelled, right, truncated)."""
    query = (
        select(
            item.c.positions,
            func.count(),
            func.count(item.c.label),
            func.sum(case((item.c.label == item.c.predicted, 1), else_=0)),
            func.sum(case((item.c.truncated, 1), else_=0)),
        )
        .where(item.c.run_id == run_id, item.c.error_kind.is_(None), item.c.positions.is_not(None))
        .group_by(item.c.positions)
    )
    rows = connection.execute(query).all()
    return [(length, many, known, int(right), int(cut)) for length, many, known, right, cut in rows]


def raw_labels(connection: Connection, run_id: str) -> list[tuple[str, str | None, int]]:
    """Of explained items by their label in the dataset: (label, class or None, items)."""
    query = (
        select(item.c.raw_label, item.c.label, func.count())
        .where(item.c.run_id == run_id, item.c.error_kind.is_(None), item.c.raw_label.is_not(None))
        .group_by(item.c.raw_label, item.c.label)
    )
    return [(raw, name, count) for raw, name, count in connection.execute(query)]


def ledgers(
    connection: Connection, run_id: str, tolerance: float | None
) -> tuple[int, float, float, int, list[float], list[float]] | None:
    """(count, worst gap, sum of gaps, gaps above `tolerance`, sums, sums of sizes); None: none."""
    entries = [attribution.c[name] for name in LEDGER_ENTRIES]
    query = select(
        func.count().label("n"),
        func.max(RELATIVE_GAP),
        func.sum(RELATIVE_GAP),
        func.sum(case(((inf if tolerance is None else tolerance) < RELATIVE_GAP, 1), else_=0)),
        *(func.sum(entry) for entry in entries),
        *(func.sum(func.abs(entry)) for entry in entries),
    ).where(attribution.c.run_id == run_id, attribution.c.total.is_not(None))
    n, worst, gaps, above, *sums = connection.execute(query).one()
    width = len(LEDGER_ENTRIES)
    return (n, worst, gaps, int(above), sums[:width], sums[width:]) if n else None


def explained_sums(connection: Connection, run_id: str) -> Sequence[tuple[int, float, float]]:
    """Of every attribution with a ledger: row of its item, logit, relevance of all positions."""
    query = (
        select(item.c.index, attribution.c.logit, attribution.c.inputs + attribution.c.special)
        .join(item)
        .where(attribution.c.run_id == run_id, attribution.c.total.is_not(None))
        .order_by(item.c.index)
    )
    return [(row, logit, summed) for row, logit, summed in connection.execute(query)]


def worst_ledger(connection: Connection, run_id: str) -> tuple[int, str]:
    """Row and id of the item with the largest relative gap, the first among equals."""
    query = (
        select(item.c.index, item.c.item_id)
        .join(attribution)
        .where(attribution.c.run_id == run_id, attribution.c.total.is_not(None))
        .order_by(RELATIVE_GAP.desc(), attribution.c.item)
        .limit(1)
    )
    found = connection.execute(query).one_or_none()
    if found is None:
        raise DamagedRowError(
            f"run {run_id}: its attributions belong to no item; rows of the table item were "
            "deleted by hand. Run the audit again"
        )
    return int(found[0]), str(found[1])


def gap_sums(connection: Connection, run_id: str) -> list[tuple[str, int, int, float]]:
    """By group and over `ALL`: (group, items with ledgers, ledgers, sum of relative gaps)."""
    wanted = (func.count(attribution.c.item.distinct()), func.count(), func.sum(RELATIVE_GAP))
    return [
        (group, items, count, summed)
        for query in _queries(attribution, run_id, wanted, ())
        for group, items, count, summed in connection.execute(
            query.where(attribution.c.total.is_not(None))
        )
        if items
    ]


def score_sums(
    connection: Connection, run_id: str, method: str
) -> list[tuple[str, str, str, int, float]]:
    """By group or `ALL`, target and metric: these, how many scores of a method, and their sum."""
    wanted, by = (func.count(), func.sum(score.c.value)), (score.c.target, score.c.metric)
    return [
        (group, target, metric, count, summed)
        for query in _queries(score, run_id, wanted, by)
        for group, count, summed, target, metric in connection.execute(
            query.where(score.c.method == method, score.c.value.is_not(None))
        )
    ]


def mentioning(connection: Connection, run_id: str, groups: Sequence[str]) -> list[int]:
    """Rows of the items that mention any of these groups, ascending."""
    query = (
        select(mention.c.item)
        .where(mention.c.run_id == run_id, mention.c.group.in_(groups))
        .distinct()
        .order_by(mention.c.item)
    )
    return list(connection.scalars(query))


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
