"""Runs migrations on the connection that `transexplain.store.revisions` hands over."""

from typing import Any

from alembic import context
from sqlalchemy import Connection, text

connection: Connection = context.config.attributes["connection"]


def _partitions() -> frozenset[str]:
    """Tables that are parts of others: made by `db maintain`, no business of the migrations."""
    if connection.dialect.name != "postgresql":
        return frozenset()
    found = connection.execute(text("SELECT relname FROM pg_class WHERE relispartition"))
    return frozenset(found.scalars())


def _included(found: Any, name: str | None, kind: str, *_: Any) -> bool:
    """Whether tables and migrations are compared in this; PostgreSQL keeps a key per partition."""
    if kind == "table":
        return name not in partitions
    if kind == "foreign_key_constraint":
        return found.elements[0].target_fullname.partition(".")[0] not in partitions
    return True


partitions = _partitions()
context.configure(
    connection=connection,
    target_metadata=context.config.attributes["metadata"],
    render_as_batch=True,
    compare_type=True,
    include_object=_included,
)
with context.begin_transaction():
    context.run_migrations()
