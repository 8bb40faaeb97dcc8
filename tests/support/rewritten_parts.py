"""Changes the rows of a shard, and writes them as if they had been saved so; its digest stays."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from sqlalchemy import delete

from transexplain.store import blocks
from transexplain.store.blocks import Block
from transexplain.store.columns import StoredRows
from transexplain.store.database import Database
from transexplain.store.results import rows_of
from transexplain.store.revisions import open_database
from transexplain.store.schema import OF_ITEMS
from transexplain.types.items import Attribution, ItemFailure, ItemOutcome
from transexplain.types.plans import Shard, ShardResult


def rewrite(
    url: str, run_id: str, index: int, change: Callable[[ShardResult], ShardResult]
) -> None:
    """Write the rows of the explained items of a shard again with what `change` makes of them."""
    with open_database(url) as db:
        changed = change(_result(db, run_id, index))
        rows = rows_of(run_id, changed)
        inside = blocks.rows_of_shard(db, run_id, index)
        with db.begin() as connection:
            for table in OF_ITEMS:
                if table.name != "failure":
                    of_shard = table.c.idx.between(inside.start, inside.stop - 1)
                    connection.execute(delete(table).where(table.c.run_id == run_id, of_shard))
                    StoredRows.of(db.engine.dialect, table, rows[table.name]).write(connection)


def _result(db: Database, run_id: str, index: int) -> ShardResult:
    """The shard as it was saved, without its aggregate."""
    rows = blocks.rows_of_shard(db, run_id, index)
    held = list(blocks.read(db, run_id, _whole, rows))
    return with_failures(
        ShardResult(
            shard=Shard(index=index, start=rows.start, stop=rows.stop),
            outcomes=tuple(each for block in held for each in block.outcomes),
            attributions=tuple(each for block in held for _, each in block.attributions()),
            failures=(),
            mentions=tuple(each for block in held for _, each in block.mentions()),
            scores=tuple(each for block in held for _, each in block.scores()),
            aggregate={},
            seconds=0.0,
        )
    )


def _whole(block: Block) -> Block:
    return block


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
