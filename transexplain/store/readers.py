"""Reads results item by item, a block or a page at a time: memory does not grow with the run."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import merge
from operator import itemgetter
from typing import Any, TypeVar

from sqlalchemy import Row, select

from transexplain.store import blocks
from transexplain.store.blocks import Block
from transexplain.store.database import Database
from transexplain.store.runs import require
from transexplain.store.schema import failure
from transexplain.types.items import Attribution, ItemFailure, ItemOutcome, Mention
from transexplain.types.pairs import texts_of
from transexplain.types.scores import MetricScore

_Value = TypeVar("_Value")
_Placed = Iterator[tuple[int, _Value]]  #: with the row of the item in the dataset


def iter_items(
    db: Database,
    run_id: str,
    *,
    only_failed: bool = False,
    item_ids: Iterable[str] | None = None,
) -> Iterator[ItemOutcome | ItemFailure]:
    """Every saved item, or those of `item_ids`: outcome or failure; raises as `iter_mentions`."""
    ids = _wanted(db, run_id, item_ids)
    failed: _Placed[ItemOutcome | ItemFailure] = _failed(db, run_id, ids)
    if only_failed:
        return map(itemgetter(1), failed)
    inside = _placed(db, run_id, lambda block: enumerate(block.outcomes), ids)
    return map(itemgetter(1), merge(failed, inside, key=itemgetter(0)))


def iter_answers(
    db: Database, run_id: str
) -> Iterator[tuple[str, tuple[float, ...], Mapping[str, str]]]:
    """(predicted class, logits (C,), metadata) of every explained item, without its text.

    Raises ConfigurationError for an unknown run.
    """
    _check(db, run_id)
    return _records(db, run_id, lambda block: enumerate(block.answers()))


def failures(db: Database, run_id: str) -> list[ItemFailure]:
    """Every item that could not be explained; raises ConfigurationError for an unknown run."""
    ends = iter_items(db, run_id, only_failed=True)
    return [end for end in ends if isinstance(end, ItemFailure)]


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
    ids = _wanted(db, run_id, item_ids)
    return _records(db, run_id, lambda block: block.attributions(target), ids)


def iter_explained(db: Database, run_id: str, *, target: str) -> Iterator[tuple[str, str]]:
    """The id and the explained class of every attribution of a target, without its relevance.

    Raises ConfigurationError for an unknown run.
    """
    _check(db, run_id)
    return _records(db, run_id, lambda block: block.classes(target))


def iter_mentions(
    db: Database, run_id: str, *, item_ids: Iterable[str] | None = None
) -> Iterator[Mention]:
    """Every mention of an entity, once per explained target; ConfigurationError: unknown run.

    `item_ids` narrow them; an id that has none is skipped.
    """
    ids = _wanted(db, run_id, item_ids)
    return _records(db, run_id, Block.mentions, ids)


def iter_scores(db: Database, run_id: str) -> Iterator[MetricScore]:
    """Every score of every item; raises ConfigurationError for an unknown run."""
    _check(db, run_id)
    return _records(db, run_id, Block.scores)


def _check(db: Database, run_id: str) -> None:
    with db.read() as connection:
        require(connection, run_id)


def _wanted(db: Database, run_id: str, item_ids: Iterable[str] | None) -> list[str] | None:
    """The ids, each once; None: all. Raises ConfigurationError for an unknown run."""
    _check(db, run_id)
    return None if item_ids is None else list(dict.fromkeys(item_ids))


def _placed(
    db: Database,
    run_id: str,
    records: Callable[[Block], Iterable[tuple[int, _Value]]],
    item_ids: list[str] | None = None,
) -> _Placed[_Value]:
    """(row in the dataset, record) of what `records` gives with the place of its item."""

    def work(block: Block) -> list[tuple[int, _Value]]:
        rows = block.rows.tolist()
        return [(rows[place], record) for place, record in records(block)]

    wanted = None if item_ids is None else blocks.rows_of_ids(db, run_id, item_ids)
    for some in blocks.read(db, run_id, work, wanted):
        yield from some


def _records(
    db: Database,
    run_id: str,
    records: Callable[[Block], Iterable[tuple[int, _Value]]],
    item_ids: list[str] | None = None,
) -> Iterator[_Value]:
    """What `records` gives, in the order of the dataset."""
    return map(itemgetter(1), _placed(db, run_id, records, item_ids))


_PAGE = 512  #: rows that are fetched together
_FAILURE = tuple(failure.c[name] for name in ("idx", "item_id", "kind", "error", "traceback"))


def _failed(db: Database, run_id: str, item_ids: list[str] | None) -> _Placed[ItemFailure]:
    """Failures by row, of these items or of all; a page of rows is fetched at a time."""
    query = select(*_FAILURE).where(failure.c.run_id == run_id).order_by(failure.c.idx)
    if item_ids is not None:
        rows: list[Row[Any]] = []
        for start in range(0, len(item_ids), _PAGE):
            some = query.where(failure.c.item_id.in_(item_ids[start : start + _PAGE]))
            with db.read() as connection:
                rows += connection.execute(some).all()
        yield from sorted(map(_failure, rows), key=itemgetter(0))
        return
    after = -1
    while True:
        with db.read() as connection:
            page = connection.execute(query.where(failure.c.idx > after).limit(_PAGE)).all()
        yield from map(_failure, page)
        if len(page) < _PAGE:
            return
        after = page[-1].idx


def _failure(row: Row[Any]) -> tuple[int, ItemFailure]:
    index, item_id, kind, message, traceback = tuple(row)
    failed = ItemFailure(
        item_id=item_id, index=index, kind=kind, message=message, traceback=traceback or ""
    )
    return index, failed


#: what an earlier and a later run say about an item that both explained
ItemPair = tuple[ItemOutcome, ItemOutcome]


def iter_pairs(db: Database, before: str, after: str) -> Iterator[list[ItemPair]]:
    """Pages of the items that both runs explained, in the order of the later run's dataset.

    Raises ConfigurationError for an unknown run.
    """
    yield from _both(db, before, after, _outcomes)


#: the class that an item is given, and its text, or both of a pair, as stored; (): it is not
Prediction = tuple[str, tuple[str, ...]]


def iter_predictions(
    db: Database, before: str, after: str
) -> Iterator[tuple[Prediction, Prediction]]:
    """The earlier and the later prediction of each item that both runs explained.

    Raises ConfigurationError for an unknown run.
    """

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
    _check(db, before)
    _check(db, after)
    for later in blocks.read(db, after, of_block):
        rows = blocks.rows_of_ids(db, before, later)
        earlier: dict[str, _Value] = {}
        for some in blocks.read(db, before, of_block, rows):
            earlier |= some
        if earlier:
            yield [(earlier[name], later[name]) for name in later if name in earlier]


def explained_items(db: Database, run_id: str) -> Iterator[ItemOutcome]:
    """Every item that was explained; raises ConfigurationError for an unknown run."""
    _check(db, run_id)
    return _records(db, run_id, lambda block: enumerate(block.outcomes))
