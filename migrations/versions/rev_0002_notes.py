"""Notes of an attribution, which a reader needs besides its numbers."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("attribution") as table:
        table.add_column(sa.Column("notes", sa.Text()))


def downgrade() -> None:
    with op.batch_alter_table("attribution") as table:
        table.drop_column("notes")
