"""Many rows at once: COPY on PostgreSQL, which takes no statement per row; INSERT elsewhere."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Table, exc, insert

from transexplain.store.database import raw_connection


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
    retry no longer has all the same; `benchmarks.store` measures it.
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
        # the driver was asked past SQLAlchemy; callers know only SQLAlchemy's errors
        raise exc.DBAPIError.instance(
            f"COPY {table.name}", None, error, psycopg.Error, dialect=dialect
        ) from error
