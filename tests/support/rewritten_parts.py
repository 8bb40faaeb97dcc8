"""Changes what a part holds, and writes it as if it had been saved so; its digest stays."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from sqlalchemy import select, update

from transexplain.store import parts, runs
from transexplain.store.database import Database
from transexplain.store.noteworthy import places_of
from transexplain.store.part_reading import Part
from transexplain.store.part_writing import part_rows
from transexplain.store.revisions import open_database
from transexplain.store.schema import result_part, shard
from transexplain.types.items import Attribution, ItemFailure, ItemOutcome
from transexplain.types.plans import Shard, ShardResult


def rewrite(
    url: str, run_id: str, index: int, change: Callable[[ShardResult], ShardResult]
) -> None:
    """Write the parts of a shard again with what `change` makes of them."""
    with open_database(url) as db:
        changed = change(_result(db, run_id, index))
        with db.read() as connection:
            payload = runs.require(connection, run_id).payload
            places = places_of(connection, run_id)
        for row in part_rows(run_id, changed, payload, places):
            key = [result_part.c[name] == row[name] for name in ("run_id", "shard", "part")]
            with db.begin() as connection:
                done = connection.execute(update(result_part).where(*key).values(**row))
                assert done.rowcount == 1


def _result(db: Database, run_id: str, index: int) -> ShardResult:
    """The shard as it was saved, without its aggregate."""
    with db.read() as connection:
        query = select(shard.c.start, shard.c.stop).where(
            shard.c.run_id == run_id, shard.c.index == index
        )
        start, stop = connection.execute(query).one()
        keys = connection.execute(
            select(result_part.c.shard, result_part.c.part).where(
                result_part.c.run_id == run_id, result_part.c.shard == index
            )
        ).all()
    found: list[Part] = list(parts.read(db, run_id, lambda part: part, [(a, b) for a, b in keys]))
    outcomes = [one for part in found for one in part.outcomes]
    return with_failures(
        ShardResult(
            shard=Shard(index=index, start=start, stop=stop),
            outcomes=tuple(outcomes),
            attributions=tuple(one for part in found for _, one in part.attributions()),
            failures=(),
            mentions=tuple(one for part in found for _, one in part.mentions()),
            scores=tuple(one for part in found for _, one in part.scores()),
            aggregate={},
            seconds=0.0,
        )
    )


def with_failures(result: ShardResult) -> ShardResult:
    """A failure for each row without an outcome, and nothing of such a row beside it."""
    there = {one.index for one in result.outcomes}
    names = {one.item_id for one in result.outcomes}
    rows = range(result.shard.start, result.shard.stop)
    return replace(
        result,
        failures=tuple(
            ItemFailure(item_id=f"no item of row {row}", index=row, kind="x", message="x")
            for row in rows
            if row not in there
        ),
        attributions=tuple(one for one in result.attributions if one.item_id in names),
        mentions=tuple(one for one in result.mentions if one.item_id in names),
        scores=tuple(one for one in result.scores if one.item_id in names),
    )


def with_outcome(result: ShardResult, row: int, **changes: Any) -> ShardResult:
    """Another outcome of the item in this row."""

    def changed(one: ItemOutcome) -> ItemOutcome:
        return replace(one, **changes) if one.index == row else one

    return replace(result, outcomes=tuple(map(changed, result.outcomes)))


def with_attributions(
    result: ShardResult, change: Callable[[Attribution], Attribution], row: int | None = None
) -> ShardResult:
    """Every attribution as `change` makes it; of the item in one row the first one only."""
    names = [one.item_id for one in result.outcomes if one.index == row]
    first = next((one for one in result.attributions if one.item_id in names), None)
    return replace(
        result,
        attributions=tuple(
            change(one) if row is None or one is first else one for one in result.attributions
        ),
    )
