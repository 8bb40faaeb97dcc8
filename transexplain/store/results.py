"""Writes a shard's result exactly once, however often the shard was delivered, with a digest
of it.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection, LargeBinary, Table, delete, exc, insert, select, type_coerce

from transexplain.environment import saved_here
from transexplain.errors import FencedError, TransExplainError
from transexplain.files import remote_files
from transexplain.store import sink_files
from transexplain.store.columns import pack_json
from transexplain.store.database import Database, plan_for_any_run, raw_connection
from transexplain.store.noteworthy import places_of
from transexplain.store.part_writing import part_rows
from transexplain.store.readers import (
    failures,
    iter_answers,
    iter_attributions,
    iter_explained,
    iter_items,
    iter_mentions,
    iter_scores,
)
from transexplain.store.rows import Row, failure_rows
from transexplain.store.run_totals import (
    accuracy,
    aggregate,
    aggregates,
    conservation,
    relevance_points,
    relevance_sums,
)
from transexplain.store.runs import Claim, require
from transexplain.store.schema import item, result_file, result_part, shard, shard_aggregate
from transexplain.store.shard_digests import digest_of
from transexplain.store.shards import held
from transexplain.types.plans import ShardResult, Sink


def write_rows(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert `rows`, which all have the columns of the first, as part of the transaction.

    Raises SQLAlchemy's errors, as an INSERT would.
    """
    if not rows:
        return
    if connection.dialect.name == "postgresql":
        _copy(connection, table, rows)
    else:
        connection.execute(insert(table), rows)


def _copy(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Binary COPY straight into the table, whose earlier rows of the shard are deleted before.

    A temporary table and an upsert would write every row twice, and would have to delete what a
    retry no longer has all the same.
    """
    import psycopg
    from psycopg import sql

    dialect = connection.dialect
    names = list(rows[0])
    columns = [table.c[name] for name in names]
    types = [column.type.compile(dialect).lower() for column in columns]
    # the columns' own types escape, pack and dump what they hold, as for an INSERT
    impls = [column.type.dialect_impl(dialect) for column in columns]
    binders = [
        (name, impl.bind_processor(dialect)) for name, impl in zip(names, impls, strict=True)
    ]
    statement = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT binary)").format(
        sql.Identifier(table.name), sql.SQL(", ").join(map(sql.Identifier, names))
    )
    try:
        with raw_connection(connection).cursor() as cursor, cursor.copy(statement) as copy:
            copy.set_types(types)
            for row in rows:
                copy.write_row([bind(row[name]) if bind else row[name] for name, bind in binders])
    except psycopg.Error as error:
        # COPY bypasses SQLAlchemy; callers know only SQLAlchemy's errors
        raise exc.DBAPIError.instance(
            f"COPY {table.name}", None, error, psycopg.Error, dialect=dialect
        ) from error


__all__ = [
    "accuracy",
    "aggregate",
    "aggregates",
    "conservation",
    "failures",
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
    rows = _Saved(
        failed=failure_rows(claim.run_id, result),
        explained=part_rows(claim.run_id, result, audit.payload, places),
    )
    if audit.sink is None or not rows.explained:
        _commit(db, claim, result, rows)
        return
    _check_held(db, claim)  # before the file: whoever holds the shard writes another one
    sink = Sink(**audit.sink)
    folder = sink_files.folder_url(sink, claim.run_id)
    file = sink_files.upload(folder, claim.shard.index, claim.token, rows.explained)
    explained = rows.explained
    if sink.keep == "sink":
        explained = sink_files.without_payload(explained)
    files = [{"run_id": claim.run_id, **file}]
    try:
        _commit(db, claim, result, replace(rows, explained=explained, files=files))
    except FencedError:
        with suppress(TransExplainError):  # otherwise `prune` deletes it
            remote_files.delete(f"{folder}/{file['name']}")
        raise


@dataclass(frozen=True, kw_only=True, slots=True)
class _Saved:
    """The rows of a shard, by their tables."""

    failed: Sequence[Row]
    explained: Sequence[Row]
    files: Sequence[Row] = ()


def _check_held(db: Database, claim: Claim) -> None:
    query = select(shard.c.token).where(
        shard.c.run_id == claim.run_id,
        shard.c.index == claim.shard.index,
        shard.c.token == claim.token,
        shard.c.state == "running",
    )
    with db.read() as connection:
        if connection.execute(query).first() is None:
            raise _fenced(claim)


def _fenced(claim: Claim) -> FencedError:
    return FencedError(
        f"shard {claim.shard.index} of run {claim.run_id}: another worker holds it now, or it was "
        f"saved or cancelled; the result of attempt {claim.attempt} is dropped"
    )


def _commit(db: Database, claim: Claim, result: ShardResult, rows: _Saved) -> None:
    packed = pack_json(dict(result.aggregate))
    aggregates = [{"shard": claim.shard.index, "payload": packed}]
    done = held(claim).values(
        state="done",
        lease_until=None,
        breadcrumb=None,
        seconds=float(result.seconds),
        explained=len(result.outcomes),
        failed=len(result.failures),
        digest=digest_of(rows.failed, rows.explained, aggregates, rows.files),
        environment=saved_here(result.steps, result.device),
    )
    with db.begin() as connection:
        # first, so that the row stays locked against a new claim until the commit
        if connection.execute(done).rowcount != 1:
            raise _fenced(claim)
        plan_for_any_run(connection)
        if claim.token > 1:  # the first claim of a shard finds nothing
            _forget(connection, claim)
        write_rows(connection, item, rows.failed)
        write_rows(connection, result_part, rows.explained)
        write_rows(connection, result_file, rows.files)
        connection.execute(
            insert(shard_aggregate).values(
                run_id=claim.run_id,
                shard=claim.shard.index,
                payload=type_coerce(packed, LargeBinary),
            )
        )


def _any_wrong(result: ShardResult) -> bool:
    """Whether a margin is needed: reading the classes reads the plan, which may be long."""
    return any(one.label not in (None, one.predicted) for one in result.outcomes)


def _forget(connection: Connection, claim: Claim) -> None:
    """Delete what an earlier attempt left; rows that belong to items go with them."""
    connection.execute(
        delete(item).where(
            item.c.run_id == claim.run_id,
            item.c.index >= claim.shard.start,
            item.c.index < claim.shard.stop,
        )
    )
    for table in (result_part, result_file, shard_aggregate):
        connection.execute(
            delete(table).where(table.c.run_id == claim.run_id, table.c.shard == claim.shard.index)
        )
