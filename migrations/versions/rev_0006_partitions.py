"""Results in partitions by month of the run's id on PostgreSQL; SQLite has none and stays as it is.

Ids begin with the day (`20261121-...`). Those of earlier versions are hexadecimal and lie anywhere:
`_low` and `_high` take what is outside the years 2026 to 2099, so that the default partition, which
is searched whenever a month is made, stays small.
"""

from collections.abc import Callable

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

#: parents before children
_TABLES = ("item", "attribution", "mention", "score", "shard_aggregate")
_OUTSIDE = {"low": "FROM (MINVALUE) TO ('2026')", "high": "FROM ('21') TO (MAXVALUE)"}
_OF_ITEM = 'FOREIGN KEY (run_id, item) REFERENCES item (run_id, "index") ON DELETE CASCADE'
_OF_SHARD = 'FOREIGN KEY (run_id, shard) REFERENCES shard (run_id, "index") ON DELETE CASCADE'
_CONSTRAINTS = {
    "item": {
        "pk_item": 'PRIMARY KEY (run_id, "index")',
        "uq_item_run_id_item_id": "UNIQUE (run_id, item_id)",
        "fk_item_shard": _OF_SHARD,
    },
    "attribution": {
        "pk_attribution": "PRIMARY KEY (run_id, item, ordinal)",
        "uq_attribution_run_id_item_method_target_rank": (
            "UNIQUE (run_id, item, method, target, rank)"
        ),
        "fk_attribution_item": _OF_ITEM,
    },
    "mention": {
        "pk_mention": "PRIMARY KEY (run_id, item, ordinal)",
        "fk_mention_item": _OF_ITEM,
    },
    "score": {
        "pk_score": "PRIMARY KEY (run_id, item, ordinal)",
        "uq_score_run_id_item_method_target_metric": (
            "UNIQUE (run_id, item, method, target, metric)"
        ),
        "fk_score_item": _OF_ITEM,
    },
    "shard_aggregate": {
        "pk_shard_aggregate": "PRIMARY KEY (run_id, shard)",
        "fk_shard_aggregate_shard": _OF_SHARD,
    },
}


def upgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        _rebuild("PARTITION BY RANGE (run_id)", _edges)


def downgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        _rebuild("", lambda _: None)


def _rebuild(kind: str, prepare: Callable[[str], None]) -> None:
    """Copy every table into one of this kind, which takes its name, keys and grants."""
    for table in _TABLES:
        op.execute(f"ALTER TABLE {table} RENAME TO {table}_before")
        op.execute(
            f"CREATE TABLE {table} "
            f"(LIKE {table}_before INCLUDING DEFAULTS INCLUDING STORAGE) {kind}"
        )
        _grant_again(table)
        prepare(table)
        op.execute(f"INSERT INTO {table} SELECT * FROM {table}_before")
    for table in reversed(_TABLES):
        op.execute(f"DROP TABLE {table}_before")  # with its partitions
    for table, constraints in _CONSTRAINTS.items():
        for name, definition in constraints.items():
            op.execute(f"ALTER TABLE {table} ADD CONSTRAINT {name} {definition}")
    op.execute('CREATE INDEX ix_item_failed ON item (run_id, "index") WHERE error_kind IS NOT NULL')


def _edges(table: str) -> None:
    for name, bounds in _OUTSIDE.items():
        op.execute(f"CREATE TABLE {table}_{name} PARTITION OF {table} FOR VALUES {bounds}")
    op.execute(f"CREATE TABLE {table}_default PARTITION OF {table} DEFAULT")


def _grant_again(table: str) -> None:
    """What others may do with the old table they may do with the new one."""
    granted = op.get_bind().execute(
        sa.text(
            "SELECT format('GRANT %s ON %I TO %s', privilege_type, CAST(:table AS text), "
            "CASE grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(grantee)) END) "
            "FROM pg_class, aclexplode(relacl) WHERE pg_class.oid = CAST(:before AS regclass)"
        ),
        {"table": table, "before": f"{table}_before"},
    )
    for statement in granted.scalars().all():
        op.execute(statement)
