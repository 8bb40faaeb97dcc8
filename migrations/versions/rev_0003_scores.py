"""Scores of metrics, one row for each item, method, target and metric."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "score",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("item", sa.Integer(), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("method", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("metric", sa.Text(), nullable=False),
        sa.Column("value", sa.Double()),
        sa.Column("curve", sa.LargeBinary()),
        sa.Column("reason", sa.Text()),
        sa.Column("detail", sa.Text()),
        sa.ForeignKeyConstraint(
            ["run_id", "item"],
            ["item.run_id", "item.index"],
            name=op.f("fk_score_item"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("run_id", "item", "ordinal", name=op.f("pk_score")),
        sa.UniqueConstraint(
            "run_id",
            "item",
            "method",
            "target",
            "metric",
            name=op.f("uq_score_run_id_item_method_target_metric"),
        ),
    )


def downgrade() -> None:
    op.drop_table("score")
