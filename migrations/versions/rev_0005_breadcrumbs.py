"""Breadcrumbs: which items a shard's attempt is working on, and what attempts that died left."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("shard") as table:
        table.add_column(sa.Column("fruitless", sa.Integer(), nullable=False, server_default="0"))
        table.add_column(sa.Column("breadcrumb", sa.Text()))
        table.add_column(sa.Column("suspects", sa.Text()))


def downgrade() -> None:
    with op.batch_alter_table("shard") as table:
        table.drop_column("suspects")
        table.drop_column("breadcrumb")
        table.drop_column("fruitless")
