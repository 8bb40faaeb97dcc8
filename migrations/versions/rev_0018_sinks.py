"""Parquet files of shards: the folder of a run, and a row for each file that was committed."""

import sqlalchemy as sa
from alembic import op
from alembic.util import CommandError

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("run") as table:
        table.add_column(sa.Column("sink", sa.Text()))
    op.create_table(
        "result_file",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("shard", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("token", sa.Integer(), nullable=False),
        sa.Column("items", sa.Integer(), nullable=False),
        sa.Column("rows", sa.Integer(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "shard", name="pk_result_file"),
        sa.ForeignKeyConstraint(
            ["run_id", "shard"],
            ["shard.run_id", "shard.index"],
            name="fk_result_file_shard",
            ondelete="CASCADE",
        ),
    )
    if op.get_bind().dialect.name == "postgresql":
        _grant_as_shards()


def downgrade() -> None:
    held = op.get_bind().execute(sa.text("SELECT count(*) FROM run WHERE sink IS NOT NULL"))
    if runs := held.scalar_one():
        raise CommandError(
            f"{runs} runs have results in Parquet files, which the version before cannot read; "
            "delete these runs (`transexplain db prune`), and go back then"
        )
    op.drop_table("result_file")
    with op.batch_alter_table("run") as table:
        table.drop_column("sink")


def _grant_as_shards() -> None:
    """Who may do something with shards may do it with their files."""
    granted = op.get_bind().execute(
        sa.text(
            "SELECT format('GRANT %s ON result_file TO %s', privilege_type, "
            "CASE grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(grantee)) END) "
            "FROM pg_class, aclexplode(relacl) WHERE pg_class.oid = CAST('shard' AS regclass)"
        )
    )
    for statement in granted.scalars().all():
        op.execute(statement)
