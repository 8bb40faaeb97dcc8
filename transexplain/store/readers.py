"""Reads results item by item, a part or a page at a time: memory does not grow with the run."""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import islice
from operator import itemgetter
from typing import Any, Generic, TypeVar

import numpy as np
from sqlalchemy import Row, select

from transexplain.store import part_columns as col
from transexplain.store import parts
from transexplain.store.database import Database
from transexplain.store.part_reading import Key, Part
from transexplain.store.runs import require
from transexplain.store.schema import item
from transexplain.types.items import Attribution, ItemFailure, ItemOutcome, Mention
from transexplain.types.pairs import texts_of
from transexplain.types.scores import MetricScore

_HELD = 64  #: parts that are kept decoded: neighbours in one run are mostly neighbours in the other
Answer = TypeVar("Answer")


class AnswerLookup(Generic[Answer]):
    """The explained items of a run by id; 8 bytes an item are in memory, and some parts."""

    def __init__(
        self,
        db: Database,
        run_id: str,
        of_part: Callable[[Part], Mapping[str, Answer]],
    ) -> None:
        """Read the index of the run.

        Args:
            db: the store.
            run_id: the run.
            of_part: gives what is wanted of the items of a part, by their ids.
        """
        self._db, self._run_id = db, run_id
        self._of_part = of_part
        self._keys: list[Key] = []
        hashes, of = [np.zeros(0, dtype=np.uint32)], [np.zeros(0, dtype=np.int32)]
        for key, some in parts.hashes(db, run_id):
            hashes.append(some)
            of.append(np.full(len(some), len(self._keys), dtype=np.int32))
            self._keys.append(key)
        found = np.concatenate(hashes)
        order = np.argsort(found, kind="stable")
        self._hashes, self._of = found[order], np.concatenate(of)[order]
        self._held: OrderedDict[Key, Mapping[str, Answer]] = OrderedDict()

    def find(self, item_ids: Sequence[str]) -> dict[str, Answer]:
        """What is wanted of those of these items that the run explained."""
        found: dict[str, Answer] = {}
        for key in self._keys_of(item_ids):
            inside = self._part(key)
            found |= {name: inside[name] for name in item_ids if name in inside}
        return found

    def _keys_of(self, item_ids: Sequence[str]) -> list[Key]:
        """The parts that may hold one of these."""
        wanted = np.unique(col.hashes_of(item_ids))
        low = np.searchsorted(self._hashes, wanted, side="left")
        high = np.searchsorted(self._hashes, wanted, side="right")
        places = [self._of[a:b] for a, b in zip(low.tolist(), high.tolist(), strict=True)]
        return [self._keys[place] for place in np.unique(np.concatenate(places)).tolist()]

    def _part(self, key: Key) -> Mapping[str, Answer]:
        if key in self._held:
            self._held.move_to_end(key)
            return self._held[key]
        found: Mapping[str, Answer] = {}
        for some in parts.read(self._db, self._run_id, self._of_part, [key]):
            found = some
        self._held[key] = found
        if len(self._held) > _HELD:
            self._held.popitem(last=False)
        return found


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
    inside = _of_parts(db, run_id, lambda part: enumerate(part.outcomes), ids)
    return map(itemgetter(1), merge(failed, inside, key=itemgetter(0)))


def iter_answers(
    db: Database, run_id: str
) -> Iterator[tuple[str, tuple[float, ...], Mapping[str, str]]]:
    """(predicted class, logits (C,), metadata) of every explained item, without its text.

    Raises ConfigurationError for an unknown run.
    """
    _check(db, run_id)
    return _records(db, run_id, lambda part: enumerate(part.answers()))


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
    ids = _wanted(db, run_id, item_ids)
    return _records(db, run_id, lambda part: part.attributions(target), ids)


def iter_explained(db: Database, run_id: str, *, target: str) -> Iterator[tuple[str, str]]:
    """The id and the explained class of every attribution of a target, without its relevance.

    Raises ConfigurationError for an unknown run.
    """
    _check(db, run_id)
    return _records(db, run_id, lambda part: part.classes(target))


def iter_mentions(
    db: Database, run_id: str, *, item_ids: Iterable[str] | None = None
) -> Iterator[Mention]:
    """Every mention of an entity, once per explained target; ConfigurationError: unknown run.

    `item_ids` narrow them; an id that has none is skipped.
    """
    ids = _wanted(db, run_id, item_ids)
    return _records(db, run_id, Part.mentions, ids)


def iter_scores(db: Database, run_id: str) -> Iterator[MetricScore]:
    """Every score of every item; raises ConfigurationError for an unknown run."""
    _check(db, run_id)
    return _records(db, run_id, Part.scores)


def _check(db: Database, run_id: str) -> None:
    with db.read() as connection:
        require(connection, run_id)


def _wanted(db: Database, run_id: str, item_ids: Iterable[str] | None) -> list[str] | None:
    """The ids, each once; None: all. Raises ConfigurationError for an unknown run."""
    _check(db, run_id)
    return None if item_ids is None else list(dict.fromkeys(item_ids))


def _of_parts(
    db: Database,
    run_id: str,
    records: Callable[[Part], Iterable[tuple[int, _Value]]],
    item_ids: list[str] | None = None,
) -> _Placed[_Value]:
    """(row in the dataset, record) of what `records` gives with the place of its item."""

    def work(part: Part) -> list[tuple[int, _Value]]:
        rows = part.rows.tolist()
        return [(rows[place], one) for place, one in records(part)]

    if item_ids is None:
        for found in parts.read(db, run_id, work):
            yield from found
        return
    inside, wanted = parts.holding(db, run_id, item_ids), set(item_ids)

    def among(part: Part) -> list[tuple[int, _Value]]:
        return work(part.only(part.places_of(wanted)))

    for found in parts.read(db, run_id, among, inside):
        yield from found


def _records(
    db: Database,
    run_id: str,
    records: Callable[[Part], Iterable[tuple[int, _Value]]],
    item_ids: list[str] | None = None,
) -> Iterator[_Value]:
    """What `records` gives, in the order of the dataset."""
    return map(itemgetter(1), _of_parts(db, run_id, records, item_ids))


_PAGE = 512  #: rows that are fetched together
_FAILURE = tuple(item.c[name] for name in ("index", "item_id", "error_kind", "error", "traceback"))


def _failed(db: Database, run_id: str, item_ids: list[str] | None) -> _Placed[ItemFailure]:
    """Failures by row, of these items or of all; a page of rows is fetched at a time."""
    query = select(*_FAILURE).where(item.c.run_id == run_id).order_by(item.c.index)
    if item_ids is not None:
        rows: list[Row[Any]] = []
        for start in range(0, len(item_ids), _PAGE):
            some = query.where(item.c.item_id.in_(item_ids[start : start + _PAGE]))
            with db.read() as connection:
                rows += connection.execute(some).all()
        yield from sorted(map(_failure, rows), key=itemgetter(0))
        return
    after = -1
    while True:
        with db.read() as connection:
            page = connection.execute(query.where(item.c.index > after).limit(_PAGE)).all()
        yield from map(_failure, page)
        if len(page) < _PAGE:
            return
        after = page[-1][0]


def _failure(row: Row[Any]) -> tuple[int, ItemFailure]:
    index, item_id, kind, message, traceback = tuple(row)
    failure = ItemFailure(
        item_id=item_id, index=index, kind=kind, message=message, traceback=traceback or ""
    )
    return index, failure


_PAIRS_AT_ONCE = 128  # items


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

    def of_part(part: Part) -> dict[str, Prediction]:
        texts = map(texts_of, part.texts, part.seconds)
        return dict(zip(part.ids, zip(part.predicted, texts, strict=True), strict=True))

    for page in _both(db, before, after, of_part):
        yield from page


def _outcomes(part: Part) -> dict[str, ItemOutcome]:
    return {one.item_id: one for one in part.outcomes}


def _both(
    db: Database,
    before: str,
    after: str,
    of_part: Callable[[Part], dict[str, _Value]],
) -> Iterator[list[tuple[_Value, _Value]]]:
    """Pages of what is wanted of the items of both runs, in the order of the later one."""
    _check(db, before)
    _check(db, after)
    earlier = AnswerLookup(db, before, of_part)
    later = _records(db, after, lambda part: enumerate(of_part(part).items()))
    while some := list(islice(later, _PAIRS_AT_ONCE)):
        known = earlier.find([name for name, _ in some])
        found = [(known[name], one) for name, one in some if name in known]
        if found:
            yield found


def explained_items(db: Database, run_id: str) -> Iterator[ItemOutcome]:
    """Every item that was explained; raises ConfigurationError for an unknown run."""
    _check(db, run_id)
    return _records(db, run_id, lambda part: enumerate(part.outcomes))
