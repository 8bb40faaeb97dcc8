"""The label of an item as its dataset spells it."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("item") as table:
        table.add_column(sa.Column("raw_label", sa.Text()))


def downgrade() -> None:
    with op.batch_alter_table("item") as table:
        table.drop_column("raw_label")
