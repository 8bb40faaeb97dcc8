"""Runs name the run that their report compares them with."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("run") as table:
        table.add_column(sa.Column("previous", sa.Text()))


def downgrade() -> None:
    with op.batch_alter_table("run") as table:
        table.drop_column("previous")
