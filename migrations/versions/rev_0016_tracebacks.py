"""Where the errors of items and shards were raised."""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

_TABLES = ("item", "shard")


def upgrade() -> None:
    for name in _TABLES:
        with op.batch_alter_table(name) as table:
            table.add_column(sa.Column("traceback", sa.Text()))


def downgrade() -> None:
    for name in _TABLES:
        with op.batch_alter_table(name) as table:
            table.drop_column("traceback")
