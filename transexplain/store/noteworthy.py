"""Finds the strongest explanations and the most wrong answers of a run, without reading all of it.

The summary of a part says how strong and how wrong its items are at most: parts are read from the
highest on, until no other can hold one more.
"""

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence

from sqlalchemy import Connection, select

from transexplain.store import parts
from transexplain.store.database import Database
from transexplain.store.part_reading import Part
from transexplain.store.part_summary import PartSummary, margin_of
from transexplain.store.readers import explained_items
from transexplain.store.recorded import failure_kinds
from transexplain.store.schema import item, run
from transexplain.types.bins import middle
from transexplain.types.items import ItemFailure

__all__ = [
    "failure_examples",
    "first",
    "gives_several",
    "margin_of",
    "places_of",
    "sizes_at",
    "strongest",
    "wrong",
]
#: minus the size, then the place in the dataset and its number there: the first is the best
_Ranked = tuple[float, int, int, str]


def places_of(connection: Connection, run_id: str) -> dict[str, int]:
    """The index of the logit of every class of a run's model, by its name; no run: none."""
    plan = connection.execute(select(run.c.plan).where(run.c.id == run_id)).scalar_one_or_none()
    names = plan["model"]["classes"] if plan else ()
    return {name: index for index, name in enumerate(names)}


def gives_several(connection: Connection, run_id: str) -> bool:
    """Whether a run's model may give an item several labels, each with a sigmoid of its own."""
    plan = connection.execute(select(run.c.plan).where(run.c.id == run_id)).scalar_one_or_none()
    return plan is not None and plan["model"].get("head") == "labels"


def strongest(db: Database, run_id: str, count: int) -> list[str]:
    """Items of the `count` explanations with the largest sizes, each once, the largest first.

    Among equals, those that come first in the dataset.
    """

    def ranked(part: Part) -> list[_Ranked]:
        of, rows = part.explained.of.tolist(), part.rows.tolist()
        sizes = enumerate(part.sizes().tolist())
        return [(-size, rows[of[n]], n, part.ids[of[n]]) for n, size in sizes]

    return _best(db, run_id, count, _largest, ranked)


def _largest(one: PartSummary) -> float | None:
    return one.largest if one.attributions else None


def wrong(db: Database, run_id: str, count: int) -> list[str]:
    """The `count` items whose predicted class beats the label's by most, that first.

    Among equals, those that come first in the dataset.
    """
    with db.read() as connection:
        places = places_of(connection, run_id)

    def ranked(part: Part) -> list[_Ranked]:
        margins = ((one, margin_of(one, places)) for one in part.outcomes)
        return [
            (-margin, one.index, 0, one.item_id) for one, margin in margins if margin is not None
        ]

    return _best(db, run_id, count, lambda one: one.margin, ranked)


def _best(
    db: Database,
    run_id: str,
    count: int,
    highest: Callable[[PartSummary], float | None],
    ranked: Callable[[Part], list[_Ranked]],
) -> list[str]:
    """The best `count` of what `ranked` gives of the parts."""
    found: list[_Ranked] = []
    bounds = [(highest(one.summary), one.key) for one in parts.summaries(db, run_id)]
    known = [(bound, key) for bound, key in bounds if bound is not None]
    for bound, key in sorted(known, key=lambda one: -one[0]):
        if len(found) >= count and (not count or bound < -found[-1][0]):
            break
        for more in parts.read(db, run_id, ranked, [key]):
            found = heapq.nsmallest(count, [*found, *more])
    return list(dict.fromkeys(name for *_, name in found))


def first(db: Database, run_id: str, count: int) -> list[str]:
    """The first `count` items of the dataset that have a result."""
    found: Iterator[str] = (one.item_id for one in explained_items(db, run_id))
    return [name for _, name in zip(range(count), found, strict=False)]


def sizes_at(db: Database, run_id: str, above: int) -> tuple[float, float] | None:
    """The size that `above` explanations reach or exceed, and the largest; None: there are none.

    The first is exact to 1 %: it lies in the right one of the bins of `types.bins`.
    """
    counts: dict[int, int] = {}
    largest: float | None = None
    for held in parts.summaries(db, run_id):
        for place, many in held.summary.sizes:
            counts[place] = counts.get(place, 0) + many
        if held.summary.attributions:
            largest = max(largest or 0.0, held.summary.largest)
    if largest is None:
        return None
    left = max(1, above)
    for place in sorted(counts, reverse=True):
        left -= counts[place]
        if left <= 0:
            return min(middle(place), largest), largest
    raise IndexError(f"run {run_id} has fewer than {above} explanations")


def failure_examples(
    db: Database, run_id: str, count: int
) -> Mapping[str, tuple[int, Sequence[ItemFailure]]]:
    """Kind of failure -> how many items, and the first `count` of them."""
    found: dict[str, tuple[int, list[ItemFailure]]] = {}
    for kind, number in failure_kinds(db, run_id).items():
        query = (
            select(item.c.item_id, item.c.index, item.c.error, item.c.traceback)
            .where(item.c.run_id == run_id, item.c.error_kind == kind)
            .order_by(item.c.index)
            .limit(count)
        )
        with db.read() as connection:
            rows = connection.execute(query).all()
        found[kind] = (
            number,
            [
                ItemFailure(item_id=name, index=row, kind=kind, message=why, traceback=trace or "")
                for name, row, why, trace in rows
            ],
        )
    return found
