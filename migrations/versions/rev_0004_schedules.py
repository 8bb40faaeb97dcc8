"""Schedules and their fires, periodic tasks that one process at a time runs, and when shards were
hinted.
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("shard") as shard:
        shard.add_column(sa.Column("hinted", sa.Double()))
    op.create_table(
        "duty",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("until", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_duty")),
    )
    op.create_table(
        "schedule",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("cron", sa.Text(), nullable=False),
        sa.Column("time_zone", sa.Text(), nullable=False),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("on_change", sa.Boolean(), nullable=False),
        sa.Column("webhook", sa.Text()),
        sa.Column("created", sa.Double(), nullable=False),
        sa.Column("since", sa.Double(), nullable=False),
        sa.Column("error", sa.Text()),
        sa.Column("retry_at", sa.Double()),
        sa.CheckConstraint("state IN ('active', 'paused')", name=op.f("ck_schedule_state")),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_schedule")),
    )
    _fire()


def downgrade() -> None:
    op.drop_table("schedule_fire")
    op.drop_table("schedule")
    op.drop_table("duty")
    with op.batch_alter_table("shard") as shard:
        shard.drop_column("hinted")


def _fire() -> None:
    op.create_table(
        "schedule_fire",
        sa.Column("schedule", sa.Text(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("created", sa.Double(), nullable=False),
        sa.Column("run_id", sa.Text()),
        sa.Column("previous", sa.Text()),
        sa.Column("post", sa.Text()),
        sa.Column("post_attempts", sa.Integer(), nullable=False),
        sa.Column("post_at", sa.Double()),
        sa.Column("posted", sa.Double()),
        sa.Column("post_error", sa.Text()),
        sa.CheckConstraint(
            "post IN ('waiting', 'posted', 'failed')", name=op.f("ck_schedule_fire_post")
        ),
        sa.ForeignKeyConstraint(
            ["schedule"],
            ["schedule.name"],
            name=op.f("fk_schedule_fire_schedule"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["run_id"], ["run.id"], name=op.f("fk_schedule_fire_run"), ondelete="SET NULL"
        ),
        sa.PrimaryKeyConstraint("schedule", "at", name=op.f("pk_schedule_fire")),
    )
    op.create_index(op.f("ix_schedule_fire_run_id"), "schedule_fire", ["run_id"])
