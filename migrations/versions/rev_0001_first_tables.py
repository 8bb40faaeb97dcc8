"""The first tables: runs, shards, items, attributions, mentions, aggregates."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    _run()
    _shard()
    _item()
    _attribution()
    _mention()
    op.create_table(
        "shard_aggregate",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("shard", sa.Integer(), nullable=False),
        sa.Column("payload", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id", "shard"],
            ["shard.run_id", "shard.index"],
            name=op.f("fk_shard_aggregate_shard"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("run_id", "shard", name=op.f("pk_shard_aggregate")),
    )


def downgrade() -> None:
    for table in ("shard_aggregate", "mention", "attribution", "item", "shard", "run"):
        op.drop_table(table)


def _run() -> None:
    op.create_table(
        "run",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("plan", sa.Text(), nullable=False),
        sa.Column("plan_digest", sa.Text(), nullable=False),
        sa.Column("max_attempts", sa.Integer(), nullable=False),
        sa.Column("payload", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("created", sa.Double(), nullable=False),
        sa.Column("finished", sa.Double()),
        sa.CheckConstraint("state IN ('running', 'done', 'cancelled')", name=op.f("ck_run_state")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_run")),
    )
    op.create_index(op.f("ix_run_created"), "run", ["created"])


def _shard() -> None:
    op.create_table(
        "shard",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("index", sa.Integer(), nullable=False),
        sa.Column("start", sa.Integer(), nullable=False),
        sa.Column("stop", sa.Integer(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("token", sa.Integer(), nullable=False),
        sa.Column("lease_until", sa.Double()),
        sa.Column("heartbeat", sa.Double()),
        sa.Column("worker", sa.Text()),
        sa.Column("error", sa.Text()),
        sa.Column("seconds", sa.Double()),
        sa.Column("explained", sa.Integer(), nullable=False),
        sa.Column("failed", sa.Integer(), nullable=False),
        sa.CheckConstraint(
            "state IN ('queued', 'running', 'done', 'dead', 'cancelled')",
            name=op.f("ck_shard_state"),
        ),
        sa.ForeignKeyConstraint(
            ["run_id"], ["run.id"], name=op.f("fk_shard_run"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("run_id", "index", name=op.f("pk_shard")),
    )
    op.create_index(
        op.f("ix_shard_run_id_state_attempt_index"),
        "shard",
        ["run_id", "state", "attempt", "index"],
    )


def _item() -> None:
    op.create_table(
        "item",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("index", sa.Integer(), nullable=False),
        sa.Column("item_id", sa.Text(), nullable=False),
        sa.Column("shard", sa.Integer(), nullable=False),
        sa.Column("label", sa.Text()),
        sa.Column("predicted", sa.Text()),
        sa.Column("logits", sa.LargeBinary()),
        sa.Column("truncated", sa.Boolean(), nullable=False),
        sa.Column("positions", sa.Integer()),
        sa.Column("text", sa.Text()),
        sa.Column("source", sa.Text()),
        sa.Column("meta", sa.Text()),
        sa.Column("features", sa.LargeBinary()),
        sa.Column("error_kind", sa.Text()),
        sa.Column("error", sa.Text()),
        sa.ForeignKeyConstraint(
            ["run_id", "shard"],
            ["shard.run_id", "shard.index"],
            name=op.f("fk_item_shard"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("run_id", "index", name=op.f("pk_item")),
        sa.UniqueConstraint("run_id", "item_id", name=op.f("uq_item_run_id_item_id")),
    )
    failed = sa.text("error_kind IS NOT NULL")
    op.create_index(
        "ix_item_failed",
        "item",
        ["run_id", "index"],
        sqlite_where=failed,
        postgresql_where=failed,
    )


def _attribution() -> None:
    op.create_table(
        "attribution",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("item", sa.Integer(), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("method", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("rank", sa.Integer(), nullable=False),
        sa.Column("class_index", sa.Integer()),
        sa.Column("class_name", sa.Text(), nullable=False),
        sa.Column("logit", sa.Double(), nullable=False),
        sa.Column("unit", sa.Text(), nullable=False),
        sa.Column("at", sa.Text(), nullable=False),
        sa.Column("relevance", sa.LargeBinary(), nullable=False),
        sa.Column("scale", sa.Double(), nullable=False),
        sa.Column("dtype", sa.Text(), nullable=False),
        sa.Column("prefix", sa.LargeBinary()),
        *(sa.Column(name, sa.Double()) for name in _LEDGER),
        sa.Column("kinds", sa.Text()),
        sa.ForeignKeyConstraint(
            ["run_id", "item"],
            ["item.run_id", "item.index"],
            name=op.f("fk_attribution_item"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("run_id", "item", "ordinal", name=op.f("pk_attribution")),
        sa.UniqueConstraint(
            "run_id",
            "item",
            "method",
            "target",
            "rank",
            name=op.f("uq_attribution_run_id_item_method_target_rank"),
        ),
    )


def _mention() -> None:
    op.create_table(
        "mention",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("item", sa.Integer(), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("rank", sa.Integer(), nullable=False),
        sa.Column("class_name", sa.Text(), nullable=False),
        sa.Column("group", sa.Text(), nullable=False),
        sa.Column("entity", sa.Text(), nullable=False),
        sa.Column("surface", sa.Text(), nullable=False),
        sa.Column("start", sa.Integer(), nullable=False),
        sa.Column("end", sa.Integer(), nullable=False),
        sa.Column("relevance", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id", "item"],
            ["item.run_id", "item.index"],
            name=op.f("fk_mention_item"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("run_id", "item", "ordinal", name=op.f("pk_mention")),
    )


_LEDGER = ("inputs", "special", "embeddings", "biases", "rules", "total", "gap", "magnitude")
