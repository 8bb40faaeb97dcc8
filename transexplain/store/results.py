"""Writes a shard's result exactly once, however often the shard was delivered, with a digest
of it.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from sqlalchemy import Connection, LargeBinary, delete, insert, select, type_coerce

from transexplain.environment import saved_here
from transexplain.errors import FencedError, TransExplainError
from transexplain.files import remote_files
from transexplain.store import sink_files
from transexplain.store.columns import Columns, pack_json
from transexplain.store.database import Database, plan_for_any_run
from transexplain.store.readers import (
    iter_answers,
    iter_attributions,
    iter_explained,
    iter_items,
    iter_mentions,
    iter_scores,
)
from transexplain.store.run_totals import (
    accuracy,
    aggregate,
    aggregates,
    conservation,
    relevance_points,
    relevance_sums,
    summary_of,
)
from transexplain.store.runs import Claim, places_of, require
from transexplain.store.schema import OF_ITEMS, result_file, shard, shard_aggregate
from transexplain.store.shard_digests import digest_of, stored_of
from transexplain.store.shard_rows import rows_of
from transexplain.store.shards import held, held_by
from transexplain.types.plans import ShardResult, Sink

__all__ = [
    "accuracy",
    "aggregate",
    "aggregates",
    "conservation",
    "iter_answers",
    "iter_attributions",
    "iter_explained",
    "iter_items",
    "iter_mentions",
    "iter_scores",
    "relevance_points",
    "relevance_sums",
    "save",
]


def save(db: Database, claim: Claim, result: ShardResult) -> None:
    """Write everything `result` holds and mark the shard done, in one transaction.

    A run with a sink gets the shard's file before. What an earlier attempt left is replaced.
    Raises FencedError, with nothing written, where the claim is void (re-claimed, given back, saved
    already, cancelled); ValueError where the result does not cover the shard; ItemError where a
    number is not finite; ObjectStoreError where the file cannot be written.
    """
    if result.shard != claim.shard:
        raise ValueError(f"the claim is on {claim.shard}, the result is of {result.shard}")
    with db.read() as connection:
        audit = require(connection, claim.run_id)
        places = places_of(connection, claim.run_id) if _any_wrong(result) else {}
    rows = rows_of(claim.run_id, result)
    totals = {
        "payload": pack_json(dict(result.aggregate)),
        "summary": summary_of(result, rows, places).packed(),
    }
    if audit.sink is None or not rows["item"]["idx"]:
        _commit(db, claim, result, _Saved(rows, totals))
        return
    _check_held(db, claim)  # before the file: whoever holds the shard writes another one
    sink = Sink(**audit.sink)
    folder = sink_files.folder_url(sink, claim.run_id)
    file = sink_files.upload(folder, claim.shard.index, claim.token, rows)
    if sink.keep == "sink":
        del rows["attribution"]
    try:
        _commit(db, claim, result, _Saved(rows, totals, [{"run_id": claim.run_id, **file}]))
    except FencedError:
        with suppress(TransExplainError):  # otherwise `prune` deletes it
            remote_files.delete(f"{folder}/{file['name']}")
        raise


class _Saved(NamedTuple):
    """What is written of a shard."""

    rows: Mapping[str, Columns]  #: by the tables of items
    totals: Mapping[str, bytes]  #: columns of `shard_aggregate`
    files: Sequence[Mapping[str, Any]] = ()


def _check_held(db: Database, claim: Claim) -> None:
    query = select(shard.c.token).where(held_by(claim))
    with db.read() as connection:
        if connection.execute(query).first() is None:
            raise _fenced(claim)


def _fenced(claim: Claim) -> FencedError:
    return FencedError(
        f"shard {claim.shard.index} of run {claim.run_id}: another worker holds it now, or it was "
        f"saved or cancelled; the result of attempt {claim.attempt} is dropped"
    )


def _commit(db: Database, claim: Claim, result: ShardResult, saved: _Saved) -> None:
    stored = stored_of(db.engine.dialect, saved.rows)
    done = held(claim).values(
        state="done",
        lease_until=None,
        breadcrumb=None,
        seconds=float(result.seconds),
        explained=len(result.outcomes),
        failed=len(result.failures),
        digest=digest_of(db.engine.dialect, stored, saved.totals, saved.files),
        environment=saved_here(result.steps, result.device),
    )
    with db.begin() as connection:
        # first, so that the row stays locked against a new claim until the commit
        if connection.execute(done).rowcount != 1:
            raise _fenced(claim)
        plan_for_any_run(connection)
        if claim.token > 1:  # the first claim of a shard finds nothing
            _forget(connection, claim)
        for rows in stored:
            rows.write(connection)
        if saved.files:
            connection.execute(insert(result_file), list(saved.files))
        packed = {name: type_coerce(value, LargeBinary) for name, value in saved.totals.items()}
        connection.execute(
            insert(shard_aggregate).values(run_id=claim.run_id, shard=claim.shard.index, **packed)
        )


def _any_wrong(result: ShardResult) -> bool:
    """Whether a margin is needed: reading the classes reads the plan, which may be long."""
    return any(outcome.label not in (None, outcome.predicted) for outcome in result.outcomes)


def _forget(connection: Connection, claim: Claim) -> None:
    """Delete what an earlier attempt left."""
    for table in OF_ITEMS:
        inside = (table.c.idx >= claim.shard.start) & (table.c.idx < claim.shard.stop)
        connection.execute(delete(table).where(table.c.run_id == claim.run_id, inside))
    for table in (result_file, shard_aggregate):
        connection.execute(
            delete(table).where(table.c.run_id == claim.run_id, table.c.shard == claim.shard.index)
        )
