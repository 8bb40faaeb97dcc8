"""Reads results item by item, a part or a page at a time: memory does not grow with the run.

What lies in parts and what lies in rows comes as one, in the order of the dataset.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import merge
from itertools import islice
from operator import itemgetter
from typing import TypeVar

from transexplain.store import parts, stored_rows
from transexplain.store.answer_lookup import AnswerLookup
from transexplain.store.database import Database
from transexplain.store.part_reading import Part
from transexplain.store.runs import require
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
    rows = stored_rows.items(db, run_id, ids, failed=True if only_failed else None)
    if only_failed:
        return map(itemgetter(1), rows)
    inside = _of_parts(db, run_id, lambda part: enumerate(part.outcomes), ids)
    return _together(rows, inside)


def iter_answers(
    db: Database, run_id: str
) -> Iterator[tuple[str, tuple[float, ...], Mapping[str, str]]]:
    """(predicted class, logits (C,), metadata) of every explained item, without its text.

    Raises ConfigurationError for an unknown run.
    """
    _check(db, run_id)
    inside = _of_parts(db, run_id, lambda part: enumerate(part.answers()))
    return _together(stored_rows.answers(db, run_id), inside)


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
    inside = _of_parts(db, run_id, lambda part: part.attributions(target), ids)
    return _together(stored_rows.attributions(db, run_id, ids, target), inside)


def iter_explained(db: Database, run_id: str, *, target: str) -> Iterator[tuple[str, str]]:
    """The id and the explained class of every attribution of a target, without its relevance.

    Raises ConfigurationError for an unknown run.
    """
    _check(db, run_id)
    inside = _of_parts(db, run_id, lambda part: part.classes(target))
    return _together(stored_rows.explained(db, run_id, target), inside)


def iter_mentions(
    db: Database, run_id: str, *, item_ids: Iterable[str] | None = None
) -> Iterator[Mention]:
    """Every mention of an entity, once per explained target; ConfigurationError: unknown run.

    `item_ids` narrow them; an id that has none is skipped.
    """
    ids = _wanted(db, run_id, item_ids)
    inside = _of_parts(db, run_id, Part.mentions, ids)
    return _together(stored_rows.mentions(db, run_id, ids), inside)


def iter_scores(db: Database, run_id: str) -> Iterator[MetricScore]:
    """Every score of every item; raises ConfigurationError for an unknown run."""
    _check(db, run_id)
    return _together(stored_rows.scores(db, run_id), _of_parts(db, run_id, Part.scores))


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


def _together(rows: _Placed[_Value], inside: _Placed[_Value]) -> Iterator[_Value]:
    """In the order of the dataset; what belongs to one item lies in one of the two."""
    return map(itemgetter(1), merge(rows, inside, key=itemgetter(0)))


_PAIRS_AT_ONCE = 128  # items


#: what an earlier and a later run say about an item that both explained
ItemPair = tuple[ItemOutcome, ItemOutcome]


def iter_pairs(db: Database, before: str, after: str) -> Iterator[list[ItemPair]]:
    """Pages of the items that both runs explained, in the order of the later run's dataset.

    Raises ConfigurationError for an unknown run.
    """
    yield from _both(db, before, after, _outcomes, lambda one: one)


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

    for page in _both(db, before, after, of_part, lambda one: (one.predicted, one.texts)):
        yield from page


def _outcomes(part: Part) -> dict[str, ItemOutcome]:
    return {one.item_id: one for one in part.outcomes}


def _both(
    db: Database,
    before: str,
    after: str,
    of_part: Callable[[Part], dict[str, _Value]],
    of_row: Callable[[ItemOutcome], _Value],
) -> Iterator[list[tuple[_Value, _Value]]]:
    """Pages of what is wanted of the items of both runs, in the order of the later one."""
    _check(db, before)
    _check(db, after)
    earlier = AnswerLookup(db, before, of_part, of_row)
    rows = (
        (row, (one.item_id, of_row(one)))
        for row, one in stored_rows.items(db, after, failed=False)
        if isinstance(one, ItemOutcome)
    )
    later = _together(rows, _of_parts(db, after, lambda part: enumerate(of_part(part).items())))
    while some := list(islice(later, _PAIRS_AT_ONCE)):
        known = earlier.find([name for name, _ in some])
        found = [(known[name], one) for name, one in some if name in known]
        if found:
            yield found


def explained_items(db: Database, run_id: str) -> Iterator[ItemOutcome]:
    """Every item that was explained; raises ConfigurationError for an unknown run."""
    _check(db, run_id)
    rows = stored_rows.items(db, run_id, failed=False)
    inside = _of_parts(db, run_id, lambda part: enumerate(part.outcomes))
    found = _together(rows, inside)
    return (one for one in found if isinstance(one, ItemOutcome))
