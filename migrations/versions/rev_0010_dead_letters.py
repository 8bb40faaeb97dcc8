"""How many messages workers refused, by reason."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "dead_letter",
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("messages", sa.BigInteger(), nullable=False),
        sa.Column("latest", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("reason", name="pk_dead_letter"),
    )


def downgrade() -> None:
    op.drop_table("dead_letter")
