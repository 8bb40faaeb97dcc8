"""The strength of an explanation and the margin of a wrong answer, each with an index."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

_INDICES = (
    ("ix_item_wrong", "item", "margin"),
    ("ix_attribution_size", "attribution", "size"),
)


def upgrade() -> None:
    with op.batch_alter_table("item") as table:
        table.add_column(sa.Column("margin", sa.Double()))
    with op.batch_alter_table("attribution") as table:
        table.add_column(sa.Column("size", sa.Double()))
    for name, of, column in _INDICES:
        kept = sa.text(f"{column} IS NOT NULL")
        op.create_index(name, of, ["run_id", column], sqlite_where=kept, postgresql_where=kept)


def downgrade() -> None:
    for name, of, _ in _INDICES:
        op.drop_index(name, table_name=of)
    with op.batch_alter_table("attribution") as table:
        table.drop_column("size")
    with op.batch_alter_table("item") as table:
        table.drop_column("margin")
