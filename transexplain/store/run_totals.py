"""Totals over a run that the database computes: one row per group, never per item."""

import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from math import inf
from typing import Any, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    LargeBinary,
    Select,
    Table,
    case,
    func,
    literal,
    select,
    type_coerce,
)

from transexplain.errors import DamagedRowError
from transexplain.store.columns import read_json
from transexplain.store.database import Database
from transexplain.store.rows import LEDGER_ENTRIES
from transexplain.store.runs import ConservationSummary, require
from transexplain.store.schema import attribution, item, mention, score, shard_aggregate

_TOGETHER = 16  #: aggregates that are read at once: a few megabytes
_BEGINNING = 1024  #: bytes, packed: the version comes first
_VERSION = re.compile(rb'\{"version":(\d+)')


def aggregates(db: Database, run_id: str) -> Iterator[dict[str, Any]]:
    """The aggregate of every saved shard, by shard index; a few are in memory, still packed.

    Raises ConfigurationError for an unknown run.
    """
    saved = select(shard_aggregate.c.shard).where(shard_aggregate.c.run_id == run_id)
    with db.read() as connection:
        require(connection, run_id)
        indices = sorted(connection.execute(saved).scalars())
    blocks = [indices[at : at + _TOGETHER] for at in range(0, len(indices), _TOGETHER)]
    return _ahead(lambda block: _unpacked(db, run_id, block), blocks)


def _ahead(
    read: Callable[[list[int]], list[bytes]], blocks: Iterable[list[int]]
) -> Iterator[dict[str, Any]]:
    """The documents of all blocks; the next one is read and unpacked while these are looked at."""
    with ThreadPoolExecutor(1, thread_name_prefix="aggregates") as reader:
        coming: Future[list[bytes]] | None = None
        for block in (*blocks, None):
            here, coming = coming, None if block is None else reader.submit(read, block)
            if here is not None:
                yield from map(read_json, here.result())


def _unpacked(db: Database, run_id: str, indices: list[int]) -> list[bytes]:
    """The aggregates of these shards as JSON; raises KeyError where one is gone meanwhile."""
    packed = type_coerce(shard_aggregate.c.payload, LargeBinary)
    query = (
        select(packed)
        .where(shard_aggregate.c.run_id == run_id, shard_aggregate.c.shard.in_(indices))
        .order_by(shard_aggregate.c.shard)
    )
    with db.read() as connection:
        found = connection.execute(query).scalars().all()
    if len(found) != len(indices):
        raise KeyError(f"of {len(indices)} shards' aggregates {len(found)} are there")
    return [zlib.decompress(one) for one in found]


def aggregate_versions(db: Database, run_id: str) -> frozenset[int]:
    """The versions that saved aggregates say they are of; only their beginnings are read."""
    beginning = func.substr(type_coerce(shard_aggregate.c.payload, LargeBinary), 1, _BEGINNING)
    query = select(type_coerce(beginning, LargeBinary)).where(shard_aggregate.c.run_id == run_id)
    with db.read() as connection:
        packed = connection.execute(query).scalars().all()
    found = (_VERSION.match(zlib.decompressobj().decompress(one)) for one in packed)
    return frozenset(int(one[1]) for one in found if one)


def accuracy(db: Database, run_id: str) -> tuple[int, int] | None:
    """Items predicted as labelled, and items with a label; None where no item has one.

    Raises ConfigurationError for an unknown run.
    """
    right = func.sum(case((item.c.label == item.c.predicted, 1), else_=0))
    query = select(right, func.count()).where(
        item.c.run_id == run_id, item.c.label.is_not(None), item.c.error_kind.is_(None)
    )
    with db.read() as connection:
        require(connection, run_id)
        correct, labelled = connection.execute(query).one()
    return (int(correct), labelled) if labelled else None


def by_raw_label(db: Database, run_id: str) -> list[tuple[str, str | None, int]]:
    """Of explained items by their label in the dataset: (label, class or None, items).

    The most frequent first. Raises ConfigurationError for an unknown run.
    """
    query = (
        select(item.c.raw_label, item.c.label, func.count())
        .where(item.c.run_id == run_id, item.c.error_kind.is_(None), item.c.raw_label.is_not(None))
        .group_by(item.c.raw_label, item.c.label)
        .order_by(func.count().desc(), item.c.raw_label)
    )
    with db.read() as connection:
        require(connection, run_id)
        return [(raw, name, count) for raw, name, count in connection.execute(query)]


def by_positions(db: Database, run_id: str) -> Iterator[tuple[int, int, int, int, int]]:
    """Of explained items by their number of positions: (positions, items, labelled, right, cut).

    Shortest first, a row for each length. Raises ConfigurationError for an unknown run.
    """
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
        .order_by(item.c.positions)
    )
    with db.read() as connection:
        require(connection, run_id)
        rows = connection.execute(query).all()
    return ((length, many, known, int(right), int(cut)) for length, many, known, right, cut in rows)


def truncated(db: Database, run_id: str) -> int:
    """Items that were longer than the model reads; raises ConfigurationError for an unknown run."""
    query = select(func.count()).where(item.c.run_id == run_id, item.c.truncated)
    with db.read() as connection:
        require(connection, run_id)
        return int(connection.execute(query).scalar_one())


def other_predictions(db: Database, before: str, after: str, *, same_data: bool) -> tuple[int, int]:
    """Items that both runs explained, and how many of them were predicted differently.

    Items are the same where their ids are and, unless both runs have the `same_data`, their
    stored texts, too. Raises ConfigurationError for an unknown run.
    """
    old, new = item.alias("old"), item.alias("new")
    different = func.coalesce(func.sum(case((old.c.predicted != new.c.predicted, 1), else_=0)), 0)
    query = (
        select(func.count(), different)
        .select_from(new)
        .join(old, (old.c.item_id == new.c.item_id) & (old.c.run_id == before))
        .where(new.c.run_id == after, new.c.error_kind.is_(None), old.c.error_kind.is_(None))
    )
    if not same_data:
        query = query.where(old.c.text == new.c.text)  # false where one is not stored
    with db.read() as connection:
        require(connection, before)
        require(connection, after)
        common, other = connection.execute(query).one()
    return int(common), int(other)


def conservation(
    db: Database, run_id: str, tolerance: float | None = None
) -> ConservationSummary | None:
    """How well the ledgers close, and how many do not to `tolerance`; None where there is none.

    Raises ConfigurationError for an unknown run.
    """
    entries = [attribution.c[name] for name in LEDGER_ENTRIES]
    query = select(
        func.count().label("n"),
        func.max(RELATIVE_GAP).label("worst"),
        func.avg(RELATIVE_GAP).label("mean"),
        func.sum(case(((inf if tolerance is None else tolerance) < RELATIVE_GAP, 1), else_=0)),
        *(func.sum(entry) for entry in entries),
        *(func.sum(func.abs(entry)) for entry in entries),
    ).where(attribution.c.run_id == run_id, attribution.c.total.is_not(None))
    with db.read() as connection:
        require(connection, run_id)
        n, worst, mean, above, *sums = connection.execute(query).one()
        if not n:
            return None
        worst_item = _worst_item(connection, run_id)
    width = len(LEDGER_ENTRIES)
    return ConservationSummary(
        n=n,
        max_relative_gap=worst,
        mean_relative_gap=mean,
        above=int(above),
        worst_item=worst_item,
        sums=dict(zip(LEDGER_ENTRIES, sums[:width], strict=True)),
        absolute=dict(zip(LEDGER_ENTRIES, sums[width:], strict=True)),
    )


#: as `Ledger.relative_gap`
RELATIVE_GAP = case(
    (attribution.c.magnitude == 0, func.abs(attribution.c.gap)),
    else_=func.abs(attribution.c.gap) / func.nullif(attribution.c.magnitude, 0),
)


def _worst_item(connection: Connection, run_id: str) -> str:
    query = (
        select(item.c.item_id)
        .join(attribution)
        .where(attribution.c.run_id == run_id, attribution.c.total.is_not(None))
        .order_by(RELATIVE_GAP.desc(), attribution.c.item)
        .limit(1)
    )
    found = connection.execute(query).scalar_one_or_none()
    if found is None:
        raise DamagedRowError(
            f"run {run_id}: its attributions belong to no item; rows of the table item were "
            "deleted by hand. Run the audit again"
        )
    return str(found)


def aggregate(db: Database, run_id: str, index: int) -> dict[str, Any]:
    """The aggregate of one shard; raises KeyError where there is none."""
    query = select(shard_aggregate.c.payload).where(
        shard_aggregate.c.run_id == run_id, shard_aggregate.c.shard == index
    )
    with db.read() as connection:
        payload: dict[str, Any] | None = connection.execute(query).scalar_one_or_none()
    if payload is None:
        raise KeyError(f"shard {index} has no aggregate")
    return payload


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
