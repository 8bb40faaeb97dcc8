"""Several receivers of a schedule's verdicts, and the state of what each of them gets.

The webhook of a schedule becomes its first receiver, and what is posted, waits or has failed stays
so. Going back is refused while a schedule has receivers that the version before cannot serve.
"""

import sqlalchemy as sa
from alembic import op
from alembic.util import CommandError

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

_POST_COLUMNS = ("post", "post_attempts", "post_at", "posted", "post_error")
_STATES = "IN ('waiting', 'posted', 'failed')"


def upgrade() -> None:
    _create()
    op.execute(
        "INSERT INTO schedule_receiver (schedule, number, kind, address) "
        "SELECT name, 1, 'json', webhook FROM schedule WHERE webhook IS NOT NULL"
    )
    op.execute(
        "INSERT INTO fire_delivery "
        "(schedule, at, number, state, attempts, next_at, delivered, error) "
        "SELECT f.schedule, f.at, 1, f.post, f.post_attempts, f.post_at, f.posted, f.post_error "
        "FROM schedule_fire AS f JOIN schedule_receiver AS r ON r.schedule = f.schedule "
        "WHERE f.post IS NOT NULL"
    )
    with op.batch_alter_table("schedule_fire", copy_from=_old_fire()) as fire:
        for name in _POST_COLUMNS:
            fire.drop_column(name)
    with op.batch_alter_table("schedule", copy_from=_old_schedule()) as schedule:
        schedule.drop_column("webhook")
    if op.get_bind().dialect.name == "postgresql":
        _grant_as_schedules()


def downgrade() -> None:
    _refuse()
    with op.batch_alter_table("schedule") as schedule:
        schedule.add_column(sa.Column("webhook", sa.Text()))
    _add_post_columns()
    op.execute(
        "UPDATE schedule SET webhook = (SELECT address FROM schedule_receiver AS r "
        "WHERE r.schedule = schedule.name AND r.number = 1)"
    )
    for new, old in (
        *(("state", "post"), ("attempts", "post_attempts"), ("next_at", "post_at")),
        *(("delivered", "posted"), ("error", "post_error")),
    ):
        one = (
            "FROM fire_delivery AS d WHERE d.schedule = schedule_fire.schedule "
            "AND d.at = schedule_fire.at AND d.number = 1"
        )
        op.execute(
            f"UPDATE schedule_fire SET {old} = (SELECT d.{new} {one}) WHERE EXISTS (SELECT 1 {one})"
        )
    op.drop_table("fire_delivery")
    op.drop_table("schedule_receiver")


def _create() -> None:
    op.create_table(
        "schedule_receiver",
        sa.Column("schedule", sa.Text(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("address", sa.Text(), nullable=False),
        sa.CheckConstraint(
            "kind IN ('json', 'slack', 'teams', 'email')", name=op.f("ck_schedule_receiver_kind")
        ),
        _references("schedule_receiver", ["schedule"], "schedule", ["name"]),
        sa.PrimaryKeyConstraint("schedule", "number", name=op.f("pk_schedule_receiver")),
    )
    op.create_table(
        "fire_delivery",
        sa.Column("schedule", sa.Text(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("next_at", sa.Double()),
        sa.Column("delivered", sa.Double()),
        sa.Column("error", sa.Text()),
        sa.CheckConstraint(f"state {_STATES}", name=op.f("ck_fire_delivery_state")),
        _references("fire_delivery", ["schedule", "at"], "schedule_fire", ["schedule", "at"]),
        _references(
            "fire_delivery", ["schedule", "number"], "schedule_receiver", ["schedule", "number"]
        ),
        sa.PrimaryKeyConstraint("schedule", "at", "number", name=op.f("pk_fire_delivery")),
    )


def _references(
    table: str, columns: list[str], other: str, theirs: list[str]
) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(
        columns,
        [f"{other}.{one}" for one in theirs],
        name=op.f(f"fk_{table}_{other}"),
        ondelete="CASCADE",
    )


def _old_schedule() -> sa.Table:
    """What SQLite makes anew: whether it finds checks itself depends on versions."""
    return sa.Table(
        "schedule",
        sa.MetaData(),
        sa.Column("name", sa.Text(), nullable=False),
        *(sa.Column(name, sa.Text(), nullable=False) for name in ("cron", "time_zone", "spec")),
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


def _old_fire() -> sa.Table:
    """Without the check of a column that goes."""
    fire = sa.Table(
        "schedule_fire",
        sa.MetaData(),
        sa.Column("schedule", sa.Text(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("created", sa.Double(), nullable=False),
        sa.Column("run_id", sa.Text()),
        sa.Column("previous", sa.Text()),
        *(sa.Column(name, sa.Text()) for name in _POST_COLUMNS),
        _references("schedule_fire", ["schedule"], "schedule", ["name"]),
        sa.ForeignKeyConstraint(
            ["run_id"], ["run.id"], name=op.f("fk_schedule_fire_run"), ondelete="SET NULL"
        ),
        sa.PrimaryKeyConstraint("schedule", "at", name=op.f("pk_schedule_fire")),
    )
    sa.Index(op.f("ix_schedule_fire_run_id"), fire.c.run_id)
    return fire


def _add_post_columns() -> None:
    with op.batch_alter_table("schedule_fire") as fire:
        fire.add_column(sa.Column("post", sa.Text()))
        fire.add_column(
            sa.Column("post_attempts", sa.Integer(), nullable=False, server_default="0")
        )
        fire.add_column(sa.Column("post_at", sa.Double()))
        fire.add_column(sa.Column("posted", sa.Double()))
        fire.add_column(sa.Column("post_error", sa.Text()))
    with op.batch_alter_table("schedule_fire") as fire:
        fire.alter_column("post_attempts", server_default=None)
        fire.create_check_constraint(op.f("ck_schedule_fire_post"), f"post {_STATES}")


def _refuse() -> None:
    others = op.get_bind().execute(
        sa.text(
            "SELECT DISTINCT schedule FROM schedule_receiver "
            "WHERE number <> 1 OR kind <> 'json' ORDER BY schedule"
        )
    )
    if names := others.scalars().all():
        raise CommandError(
            f"the version before knows one JSON webhook for a schedule; these have other "
            f"receivers: {', '.join(names)}. Remove them (`transexplain schedule remove`), and go "
            "back then"
        )


def _grant_as_schedules() -> None:
    """Who may do something with schedules may do it with their receivers and deliveries."""
    granted = op.get_bind().execute(
        sa.text(
            "SELECT format('GRANT %s ON schedule_receiver, fire_delivery TO %s', privilege_type, "
            "CASE grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(grantee)) END) "
            "FROM pg_class, aclexplode(relacl) WHERE pg_class.oid = CAST('schedule' AS regclass)"
        )
    )
    for statement in granted.scalars().all():
        op.execute(statement)
