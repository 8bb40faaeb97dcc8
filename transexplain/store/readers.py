"""Reads results item by item, a block or a page at a time: memory does not grow with the run.

What begins with `iter` raises ConfigurationError for an unknown run.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import merge
from itertools import chain
from operator import attrgetter
from typing import TypeVar

from sqlalchemy import ColumnElement, select

from transexplain.store import blocks
from transexplain.store.blocks import Block
from transexplain.store.database import Database
from transexplain.store.runs import require
from transexplain.store.schema import failure, item
from transexplain.types.items import Attribution, ItemFailure, ItemOutcome, Mention
from transexplain.types.pairs import texts_of
from transexplain.types.scores import MetricScore

_Value = TypeVar("_Value")


def iter_items(
    db: Database,
    run_id: str,
    *,
    only_failed: bool = False,
    item_ids: Iterable[str] | None = None,
) -> Iterator[ItemOutcome | ItemFailure]:
    """Every saved item, or those of `item_ids`: outcome or failure; raises as `iter_mentions`."""
    ids = None if item_ids is None else list(dict.fromkeys(item_ids))
    with db.read() as connection:
        require(connection, run_id)
    failed: Iterator[ItemOutcome | ItemFailure] = _failed(db, run_id, ids)
    if only_failed:
        return failed
    explained = _records(db, run_id, lambda block: enumerate(block.outcomes), ids)
    return merge(failed, explained, key=attrgetter("index"))


def iter_answers(
    db: Database, run_id: str
) -> Iterator[tuple[str, tuple[float, ...], Mapping[str, str]]]:
    """(predicted class, logits (C,), metadata) of every explained item, without its text."""
    return _records(db, run_id, lambda block: enumerate(block.answers()))


def iter_attributions(
    db: Database,
    run_id: str,
    *,
    item_ids: Iterable[str] | None = None,
    target: str | None = None,
) -> Iterator[Attribution]:
    """Attributions as they were saved, relevance in float32, in the order of the dataset.

    `item_ids` and `target` (as requested, e.g. `top:2`) narrow them; an id without attributions is
    skipped.
    """
    return _records(db, run_id, lambda block: block.attributions(target), item_ids)


def iter_explained(db: Database, run_id: str, *, target: str) -> Iterator[tuple[str, str]]:
    """The id and the explained class of every attribution of a target, without its relevance."""
    return _records(db, run_id, lambda block: block.classes(target))


def iter_mentions(
    db: Database, run_id: str, *, item_ids: Iterable[str] | None = None
) -> Iterator[Mention]:
    """Every mention of an entity, once per explained target; ConfigurationError: unknown run.

    `item_ids` narrow them; an id that has none is skipped.
    """
    return _records(db, run_id, Block.mentions, item_ids)


def iter_scores(db: Database, run_id: str) -> Iterator[MetricScore]:
    """Every score of every item."""
    return _records(db, run_id, Block.scores)


def _records(
    db: Database,
    run_id: str,
    records: Callable[[Block], Iterable[tuple[int, _Value]]],
    item_ids: Iterable[str] | None = None,
) -> Iterator[_Value]:
    """What `records` gives with the place of its item, in the order of the dataset."""

    def work(block: Block) -> list[_Value]:
        return [record for _, record in records(block)]

    rows = None if item_ids is None else blocks.rows_of_ids(db, run_id, item_ids)
    return chain.from_iterable(blocks.read(db, run_id, work, rows))


_PAGE = 512  #: rows that are fetched together


def _failed(db: Database, run_id: str, item_ids: list[str] | None) -> Iterator[ItemFailure]:
    """Failures by row, of these items or of all; a page of rows is fetched at a time."""
    if item_ids is not None:
        pages = range(0, len(item_ids), _PAGE)
        chosen = [failure.c.item_id.in_(item_ids[start : start + _PAGE]) for start in pages]
        some = (stored_failures(db, run_id, condition) for condition in chosen)
        yield from sorted(chain.from_iterable(some), key=attrgetter("index"))
        return
    after = -1
    while True:
        page = stored_failures(db, run_id, failure.c.idx > after, limit=_PAGE)
        yield from page
        if len(page) < _PAGE:
            return
        after = page[-1].index


def stored_failures(
    db: Database, run_id: str, condition: ColumnElement[bool], limit: int | None = None
) -> list[ItemFailure]:
    """The first failures of a run that fulfil a condition, by row; all without a `limit`."""
    query = select(failure).where(failure.c.run_id == run_id, condition).order_by(failure.c.idx)
    with db.read() as connection:
        return [
            ItemFailure(
                item_id=row["item_id"],
                index=row["idx"],
                kind=row["kind"],
                message=row["error"],
                traceback=row["traceback"] or "",
            )
            for row in connection.execute(query.limit(limit)).mappings()
        ]


def explained_rows(
    db: Database, run_id: str, rows: range | None = None
) -> Iterator[tuple[int, str]]:
    """(row, item id) of every item that was explained, by row; of these `rows` alone if given.

    Read as the iterator advances, never all at once.
    """

    columns = (item.c.idx, item.c.item_id)
    for some in blocks.pages(db, run_id, rows, columns):
        yield from map(tuple, some)


#: what an earlier and a later run say about an item that both explained
ItemPair = tuple[ItemOutcome, ItemOutcome]


def iter_pairs(db: Database, before: str, after: str) -> Iterator[list[ItemPair]]:
    """Pages of the items that both runs explained, in the order of the later run's dataset."""
    yield from _both(db, before, after, _outcomes)


#: the class that an item is given, and its text, or both of a pair, as stored; (): it is not
Prediction = tuple[str, tuple[str, ...]]


def iter_predictions(
    db: Database, before: str, after: str
) -> Iterator[tuple[Prediction, Prediction]]:
    """The earlier and the later prediction of each item that both runs explained."""

    def of_block(block: Block) -> dict[str, Prediction]:
        texts = map(texts_of, block.texts, block.seconds)
        return dict(zip(block.ids, zip(block.predicted, texts, strict=True), strict=True))

    for page in _both(db, before, after, of_block):
        yield from page


def _outcomes(block: Block) -> dict[str, ItemOutcome]:
    return {outcome.item_id: outcome for outcome in block.outcomes}


def _both(
    db: Database,
    before: str,
    after: str,
    of_block: Callable[[Block], dict[str, _Value]],
) -> Iterator[list[tuple[_Value, _Value]]]:
    """Pages of what is wanted of the items of both runs, in the order of the later one."""
    with db.read() as connection:
        require(connection, before)
    for later in blocks.read(db, after, of_block):
        rows = blocks.rows_of_ids(db, before, later)
        earlier: dict[str, _Value] = {}
        for some in blocks.read(db, before, of_block, rows):
            earlier |= some
        if earlier:
            yield [(earlier[name], later[name]) for name in later if name in earlier]
