"""Explained items in columns: a row for each part of a shard.

Results of versions before stay where they are. Going back is refused while there are parts: the
version before cannot read them, and would take their items for lost.
"""

import sqlalchemy as sa
from alembic import op
from alembic.util import CommandError

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    partitioned = op.get_bind().dialect.name == "postgresql"
    op.create_table(
        "result_part",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("shard", sa.Integer(), nullable=False),
        sa.Column("part", sa.Integer(), nullable=False),
        sa.Column("first", sa.Integer(), nullable=False),
        sa.Column("last", sa.Integer(), nullable=False),
        sa.Column("items", sa.Integer(), nullable=False),
        sa.Column("format", sa.Text(), nullable=False),
        sa.Column("ids", sa.LargeBinary(), nullable=False),
        sa.Column("summary", sa.LargeBinary(), nullable=False),
        sa.Column("payload", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "shard", "part", name="pk_result_part"),
        sa.ForeignKeyConstraint(
            ["run_id", "shard"],
            ["shard.run_id", "shard.index"],
            name="fk_result_part_shard",
            ondelete="CASCADE",
        ),
        postgresql_partition_by="RANGE (run_id)",
    )
    if partitioned:
        # the payload is compressed already: trying again takes time and gains nothing
        op.execute("ALTER TABLE result_part ALTER COLUMN payload SET STORAGE EXTERNAL")
        _partitions()
        _grant_as_items()


def downgrade() -> None:
    shards = op.get_bind().execute(
        sa.text("SELECT count(*) FROM (SELECT DISTINCT run_id, shard FROM result_part) AS held")
    )
    if held := shards.scalar_one():
        raise CommandError(
            f"{held} shards have their results in the table result_part, which the version before "
            "cannot read; export what you need (`transexplain export`), delete these runs "
            "(`transexplain db prune`), and go back then"
        )
    op.drop_table("result_part")


def _partitions() -> None:
    """The same as those of the table `item`."""
    found = op.get_bind().execute(
        sa.text(
            "SELECT substr(relname, 6), pg_get_expr(relpartbound, pg_class.oid) FROM pg_inherits "
            "JOIN pg_class ON pg_class.oid = inhrelid WHERE inhparent = CAST('item' AS regclass)"
        )
    )
    for name, bounds in found.all():
        op.execute(f"CREATE TABLE result_part_{name} PARTITION OF result_part {bounds}")


def _grant_as_items() -> None:
    """Who may do something with items may do it with parts."""
    granted = op.get_bind().execute(
        sa.text(
            "SELECT format('GRANT %s ON result_part TO %s', privilege_type, "
            "CASE grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(grantee)) END) "
            "FROM pg_class, aclexplode(relacl) WHERE pg_class.oid = CAST('item' AS regclass)"
        )
    )
    for statement in granted.scalars().all():
        op.execute(statement)
