"""Row numbers of 64 bits, and the shards of large runs that are still to be made.

SQLite's integers have 64 bits already. PostgreSQL writes the tables of items anew. Going back is
refused while there is what the version before could not hold.
"""

import sqlalchemy as sa
from alembic import op
from alembic.util import CommandError

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

#: columns that hold rows of a dataset
_ROWS = {
    "shard": ("start", "stop"),
    "item": ("index",),
    "attribution": ("item",),
    "mention": ("item",),
    "score": ("item",),
    "result_part": ("first", "last"),
}
_MOST = 2**31 - 1


def upgrade() -> None:
    row_number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "pending_shards",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("first", sa.Integer(), nullable=False),
        sa.Column("start", row_number, nullable=False),
        sa.Column("stop", row_number, nullable=False),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id"], ["run.id"], name=op.f("fk_pending_shards_run"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("run_id", name=op.f("pk_pending_shards")),
    )
    if op.get_bind().dialect.name == "postgresql":
        _change("BIGINT")
        _grant_as_shards()


def downgrade() -> None:
    _refuse()
    op.drop_table("pending_shards")
    if op.get_bind().dialect.name == "postgresql":
        _change("INTEGER")


def _change(kind: str) -> None:
    for table, columns in _ROWS.items():
        changes = ", ".join(f'ALTER COLUMN "{one}" TYPE {kind}' for one in columns)
        op.execute(f"ALTER TABLE {table} {changes}")


def _refuse() -> None:
    pending = sa.text("SELECT run_id FROM pending_shards ORDER BY run_id")
    if names := op.get_bind().execute(pending).scalars().all():
        raise CommandError(
            f"the version before makes all shards of a run at once; these have some to be made: "
            f"{', '.join(names)}. Let them end, or delete them, and go back then"
        )
    beyond = sa.text(f"SELECT DISTINCT run_id FROM shard WHERE stop > {_MOST} ORDER BY run_id")
    if names := op.get_bind().execute(beyond).scalars().all():
        raise CommandError(
            f"the version before has row numbers of 32 bits; these runs have more rows: "
            f"{', '.join(names)}. Delete them, and go back then"
        )


def _grant_as_shards() -> None:
    """Who may do something with shards may do it with those to be made."""
    granted = op.get_bind().execute(
        sa.text(
            "SELECT format('GRANT %s ON pending_shards TO %s', privilege_type, "
            "CASE grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(grantee)) END) "
            "FROM pg_class, aclexplode(relacl) WHERE pg_class.oid = CAST('shard' AS regclass)"
        )
    )
    for statement in granted.scalars().all():
        op.execute(statement)
