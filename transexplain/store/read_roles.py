"""Rights of roles that only read: an analyst's role sees results and progress, and no texts."""

from collections.abc import Mapping

from sqlalchemy import Connection, Table, bindparam, func, literal, or_, select, text

from transexplain.errors import ConfigurationError
from transexplain.store import partitions
from transexplain.store.database import Database
from transexplain.store.result_tables import RESULT_TABLES
from transexplain.store.schema import (
    fire_delivery,
    form_key,
    metadata,
    pending_shards,
    result_file,
    run,
    schedule,
    schedule_fire,
    schedule_receiver,
    shard,
)

#: table -> columns that are left out; they may quote items, or hold what is secret
WITHOUT: Mapping[Table, frozenset[str]] = {
    **{table: frozenset() for table in RESULT_TABLES},
    run: frozenset(),
    pending_shards: frozenset(),
    shard: frozenset(("error", "traceback", "breadcrumb", "suspects")),
    result_file: frozenset(),
    schedule: frozenset(("spec", "error")),
    schedule_fire: frozenset(),
    schedule_receiver: frozenset(("address",)),
    fire_delivery: frozenset(("error",)),
    form_key: frozenset(),
}
_SECRET: Mapping[Table, frozenset[str]] = {
    schedule: frozenset(("spec",)),
    schedule_receiver: frozenset(("address",)),
}
_VERSION = "alembic_version"  #: what revision the tables are at: `transexplain report` asks


def grant_read(db: Database, role: str, *, texts: bool = False) -> None:
    """Let a PostgreSQL role read the results, and with `texts` every item, too; nothing else.

    What the role itself could read before and these do not name is taken away. Without `texts` the
    columns of `WITHOUT` are left out; with them what schedules keep secret. Raises
    ConfigurationError: SQLite, which has no roles; a role that is not there or may write; tables
    that are another role's.
    """
    if not partitions.supported(db):
        raise ConfigurationError(
            "SQLite has no roles: who may read the file reads all of it. Open it by "
            "`sqlite3 'file:PATH?mode=ro'`, and keep texts out by privacy.store_text"
        )
    with db.begin() as connection:
        partitions.require_owner(connection)
        _refuse(connection, role)
        _grant(connection, role, texts=texts)


def _refuse(connection: Connection, role: str) -> None:
    """Raise ConfigurationError for a role that is not there, or that may write."""
    known = text("SELECT 1 FROM pg_roles WHERE rolname = :role").bindparams(role=role)
    if connection.execute(known).first() is None:
        raise ConfigurationError(
            f"no role {role!r}; make it first: CREATE ROLE {role} LOGIN PASSWORD '...'"
        )
    may = func.has_table_privilege
    name = connection.dialect.identifier_preparer.quote_identifier
    writes = [
        may(bindparam("role", role), literal(name(table)), "INSERT, UPDATE, DELETE, TRUNCATE")
        for table in metadata.tables
    ]
    if connection.execute(select(or_(*writes))).scalar_one():
        raise ConfigurationError(
            f"the role {role!r} may write to the tables, because it owns them, is a superuser or "
            "was given the right; make one that only reads"
        )


def _grant(connection: Connection, role: str, *, texts: bool) -> None:
    quoted = connection.dialect.identifier_preparer.quote_identifier
    to = quoted(role)
    schema = quoted(str(connection.execute(text("SELECT current_schema()")).scalar_one()))
    every = ", ".join(map(quoted, (*metadata.tables, _VERSION)))
    statements = [
        f"REVOKE SELECT ON {every} FROM {to}",
        f"GRANT USAGE ON SCHEMA {schema} TO {to}",
        f"GRANT SELECT ON {quoted(_VERSION)} TO {to}",
    ]
    for table in metadata.tables.values() if texts else WITHOUT:
        hidden = (_SECRET if texts else WITHOUT).get(table, frozenset())
        columns = [column.name for column in table.c if column.name not in hidden]
        some = f" ({', '.join(map(quoted, columns))})" if hidden else ""
        statements.append(f"GRANT SELECT{some} ON {quoted(table.name)} TO {to}")
    for statement in statements:
        connection.exec_driver_sql(statement)
