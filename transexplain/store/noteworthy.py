"""Finds the strongest explanations and the most wrong answers of a run, without reading all of it.

The summary of a shard says how strong and how wrong its items are at most: shards are read from the
highest on, until no other can hold one more.
"""

import heapq
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, func, select

from transexplain.store import blocks
from transexplain.store.blocks import Block
from transexplain.store.database import Database
from transexplain.store.readers import explained_items
from transexplain.store.runs import require
from transexplain.store.schema import failure, item, run, shard
from transexplain.store.shard_summary import ShardSummary, margin_of, summaries
from transexplain.types.items import ItemFailure
from transexplain.types.relevance_sums import middle


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordedRun:
    """A run's row; the plan as the document that was stored, not as this version reads it."""

    id: str
    state: str
    created: float  #: seconds since the epoch
    finished: float | None
    plan: Mapping[str, Any]
    plan_digest: str
    environment: Mapping[str, Any]  #: of who planned it


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordedShard:
    """A shard's row."""

    index: int
    start: int
    stop: int
    state: str
    attempt: int
    worker: str | None
    seconds: float | None
    explained: int
    failed: int
    digest: str | None  #: of what was saved; None: nothing was
    environment: Mapping[str, Any] | None  #: of who saved it


def recorded_run(db: Database, run_id: str) -> RecordedRun:
    """The run with exactly this id; raises ConfigurationError where there is none."""
    names = RecordedRun.__dataclass_fields__
    with db.read() as connection:
        require(connection, run_id)
        query = select(*(run.c[name].label(name) for name in names)).where(run.c.id == run_id)
        return RecordedRun(**connection.execute(query).mappings().one())


def recorded_shards(
    db: Database, run_id: str, only: Collection[int] | None = None
) -> list[RecordedShard]:
    """The shards of a run, or `only` some of them, by index."""
    columns = [shard.c[name].label(name) for name in RecordedShard.__dataclass_fields__]
    query = select(*columns).where(shard.c.run_id == run_id).order_by(shard.c.index)
    if only is not None:
        query = query.where(shard.c.index.in_(sorted(only)))
    with db.read() as connection:
        return [RecordedShard(**row) for row in connection.execute(query).mappings()]


def failure_kinds(db: Database, run_id: str) -> dict[str, int]:
    """Failed items by kind."""
    query = (
        select(failure.c.kind, func.count())
        .where(failure.c.run_id == run_id)
        .group_by(failure.c.kind)
    )
    with db.read() as connection:
        return {str(kind): int(count) for kind, count in connection.execute(query)}


def explained_rows(
    db: Database, run_id: str, rows: range | None = None
) -> Iterator[tuple[int, str]]:
    """(row, item id) of every item that was explained, by row; of these `rows` alone if given.

    Read as the iterator advances, never all at once.
    """

    columns = (item.c.idx, item.c.item_id)
    for some in blocks.pages(db, run_id, rows, columns):
        yield from map(tuple, some)


def workers_of(shards: Collection[RecordedShard]) -> int:
    """How many processes worked on the shards last."""
    return len({status.worker for status in shards if status.worker is not None})


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

    def ranked(block: Block) -> list[_Ranked]:
        of, rows = block.explained.of.tolist(), block.rows.tolist()
        sizes = enumerate(block.sizes().tolist())
        return [(-size, rows[of[n]], n, block.ids[of[n]]) for n, size in sizes]

    return _best(db, run_id, count, _largest, ranked)


def _largest(summary: ShardSummary) -> float | None:
    return summary.largest if summary.attributions else None


def wrong(db: Database, run_id: str, count: int) -> list[str]:
    """The `count` items whose predicted class beats the label's by most, that first.

    Among equals, those that come first in the dataset.
    """
    with db.read() as connection:
        places = places_of(connection, run_id)

    def ranked(block: Block) -> list[_Ranked]:
        margins = ((outcome, margin_of(outcome, places)) for outcome in block.outcomes)
        return [
            (-margin, outcome.index, 0, outcome.item_id)
            for outcome, margin in margins
            if margin is not None
        ]

    return _best(db, run_id, count, lambda outcome: outcome.margin, ranked)


def _best(
    db: Database,
    run_id: str,
    count: int,
    highest: Callable[[ShardSummary], float | None],
    ranked: Callable[[Block], list[_Ranked]],
) -> list[str]:
    """The best `count` of what `ranked` gives of the shards."""
    best: list[_Ranked] = []
    bounds = [(highest(each.summary), each.shard) for each in summaries(db, run_id)]
    known = [(bound, index) for bound, index in bounds if bound is not None]
    for bound, index in sorted(known, key=lambda pair: (-pair[0], pair[1])):
        if len(best) >= count and (not count or bound < -best[-1][0]):
            break
        for more in blocks.read(db, run_id, ranked, blocks.rows_of_shard(db, run_id, index)):
            best = heapq.nsmallest(count, [*best, *more])
    return list(dict.fromkeys(name for *_, name in best))


def first(db: Database, run_id: str, count: int) -> list[str]:
    """The first `count` items of the dataset that have a result."""
    names: Iterator[str] = (one.item_id for one in explained_items(db, run_id))
    return [name for _, name in zip(range(count), names, strict=False)]


def sizes_at(db: Database, run_id: str, above: int) -> tuple[float, float] | None:
    """The size that `above` explanations reach or exceed, and the largest; None: there are none.

    The first is exact to 1 %: it lies in the right one of the bins of `bin_of`.
    """
    counts: dict[int, int] = {}
    largest: float | None = None
    for held in summaries(db, run_id):
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
    examples: dict[str, tuple[int, list[ItemFailure]]] = {}
    for kind, number in failure_kinds(db, run_id).items():
        query = (
            select(*(failure.c[name] for name in ("item_id", "idx", "error", "traceback")))
            .where(failure.c.run_id == run_id, failure.c.kind == kind)
            .order_by(failure.c.idx)
            .limit(count)
        )
        with db.read() as connection:
            rows = connection.execute(query).all()
        examples[kind] = (
            number,
            [
                ItemFailure(item_id=name, index=row, kind=kind, message=why, traceback=trace or "")
                for name, row, why, trace in rows
            ],
        )
    return examples
