"""The software and machine of a run, and a digest of what every shard saved."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("run") as table:
        table.add_column(sa.Column("surroundings", sa.Text()))
    with op.batch_alter_table("shard") as table:
        table.add_column(sa.Column("digest", sa.Text()))
        table.add_column(sa.Column("surroundings", sa.Text()))


def downgrade() -> None:
    with op.batch_alter_table("shard") as table:
        table.drop_column("surroundings")
        table.drop_column("digest")
    with op.batch_alter_table("run") as table:
        table.drop_column("surroundings")
