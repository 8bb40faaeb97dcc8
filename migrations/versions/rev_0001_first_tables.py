"""All tables, as `transexplain.store.schema` defines them.

Nothing was released yet, so a change of the tables changes their definition alone: databases made
before it are refused. The first release writes its tables down here, and later changes are
revisions of their own.
"""

from zlib import crc32

from alembic import op

from transexplain.store.schema import PARTITIONED, metadata
from transexplain.store.views import VIEWS, create_views, drop_views

_COLUMNS = sorted(
    f"{table}.{column.name}" for table in metadata.tables.values() for column in table.c
)
_QUERIES = [query for view in VIEWS.values() for query in view.queries.values()]

revision = f"0001_{crc32(' '.join((*_COLUMNS, *_QUERIES)).encode()):08x}"
down_revision = None
branch_labels = None
depends_on = None

#: ids of runs begin with the day; what lies outside these years stays out of the default
#: partition, which is searched whenever the partition of a month is made
_OUTSIDE = {"low": "FROM (MINVALUE) TO ('2026')", "high": "FROM ('21') TO (MAXVALUE)"}


def upgrade() -> None:
    """Create the tables and views; on PostgreSQL those of results in partitions by the run's id."""
    metadata.create_all(op.get_bind())
    create_views(op.get_bind())
    if op.get_bind().dialect.name != "postgresql":
        return
    for table in PARTITIONED:
        for name, bounds in _OUTSIDE.items():
            op.execute(f"CREATE TABLE {table}_{name} PARTITION OF {table} FOR VALUES {bounds}")
        op.execute(f"CREATE TABLE {table}_default PARTITION OF {table} DEFAULT")


def downgrade() -> None:
    """Drop all tables and views."""
    drop_views(op.get_bind())
    metadata.drop_all(op.get_bind())
