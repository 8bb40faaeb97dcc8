"""A shard's result, written once however often the shard was delivered; and its readers."""

from sqlalchemy import Connection, delete, insert

from transexplain.errors import FencedError
from transexplain.plans import ShardResult
from transexplain.store.copying import write_rows
from transexplain.store.database import Database, plan_for_any_run
from transexplain.store.noteworthy import places_of
from transexplain.store.readers import (
    failures,
    iter_attributions,
    iter_explained,
    iter_items,
    iter_mentions,
    iter_scores,
)
from transexplain.store.records import Claim
from transexplain.store.rows import rows_of
from transexplain.store.runs import require
from transexplain.store.schema import attribution, item, mention, score, shard_aggregate
from transexplain.store.shard_digests import digest_of
from transexplain.store.shards import held
from transexplain.store.totals import (
    accuracy,
    aggregate,
    aggregates,
    conservation,
)
from transexplain.surroundings import saved_here

__all__ = [
    "accuracy",
    "aggregate",
    "aggregates",
    "conservation",
    "failures",
    "iter_attributions",
    "iter_explained",
    "iter_items",
    "iter_mentions",
    "iter_scores",
    "save",
]


def save(db: Database, claim: Claim, result: ShardResult) -> None:
    """Write everything `result` holds and mark the shard done, in one transaction.

    Rows that an earlier attempt left are replaced. Raises FencedError, with nothing written, where
    the claim is void (re-claimed, given back, saved already, cancelled); ValueError where the
    result does not cover the shard; ItemError where a number is not finite.
    """
    if result.shard != claim.shard:
        raise ValueError(f"the claim is on {claim.shard}, the result is of {result.shard}")
    with db.read() as connection:
        payload = require(connection, claim.run_id).payload
        places = places_of(connection, claim.run_id) if _any_wrong(result) else {}
    rows = rows_of(claim.run_id, result, payload, places)
    done = held(claim).values(
        state="done",
        lease_until=None,
        breadcrumb=None,
        seconds=float(result.seconds),
        explained=len(result.outcomes),
        failed=len(result.failures),
        digest=digest_of(rows, result.aggregate),
        surroundings=saved_here(),
    )
    with db.begin() as connection:
        # first, so that the row stays locked against a new claim until the commit
        if connection.execute(done).rowcount != 1:
            raise FencedError(
                f"shard {claim.shard.index} of run {claim.run_id}: another worker holds it now, or "
                f"it was saved or cancelled; the result of attempt {claim.attempt} is dropped"
            )
        plan_for_any_run(connection)
        if claim.token > 1:  # the first claim of a shard finds nothing
            _forget(connection, claim)
        for table, batch in (
            (item, rows.items),
            (attribution, rows.attributions),
            (mention, rows.mentions),
            (score, rows.scores),
        ):
            write_rows(connection, table, batch)
        connection.execute(
            insert(shard_aggregate).values(
                run_id=claim.run_id, shard=claim.shard.index, payload=dict(result.aggregate)
            )
        )


def _any_wrong(result: ShardResult) -> bool:
    """Whether a margin is needed: reading the classes reads the plan, which may be long."""
    return any(one.label not in (None, one.predicted) for one in result.outcomes)


def _forget(connection: Connection, claim: Claim) -> None:
    """Delete what an earlier attempt left; what belongs to items goes with them."""
    connection.execute(
        delete(item).where(
            item.c.run_id == claim.run_id,
            item.c.index >= claim.shard.start,
            item.c.index < claim.shard.stop,
        )
    )
    connection.execute(
        delete(shard_aggregate).where(
            shard_aggregate.c.run_id == claim.run_id,
            shard_aggregate.c.shard == claim.shard.index,
        )
    )
