"""Runs have a place in the queue: a priority, a share, a cap, and whether they are paused."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

_NAMES = ("paused", "most_workers", "share", "priority")


def upgrade() -> None:
    with op.batch_alter_table("run") as table:
        table.add_column(sa.Column("priority", sa.Integer(), nullable=False, server_default="0"))
        table.add_column(sa.Column("share", sa.Double(), nullable=False, server_default="1"))
        table.add_column(sa.Column("most_workers", sa.Integer()))
        table.add_column(sa.Column("paused", sa.Double()))
        table.create_index(op.f("ix_run_state"), ["state"])


def downgrade() -> None:
    with op.batch_alter_table("run") as table:
        table.drop_index(op.f("ix_run_state"))
        for name in _NAMES:
            table.drop_column(name)
