"""The tables of schedules and of duties, beside those of runs in `schema`.

Times are seconds since the epoch by the database's clock, but `at`, which is the time that the
cron expression names.
"""

from sqlalchemy import (
    Boolean,
    CheckConstraint,
    Column,
    Double,
    ForeignKeyConstraint,
    Index,
    Integer,
    Table,
    Text,
)

from transexplain.store.columns import AnyText, JsonText
from transexplain.store.schema import metadata

duty = Table(
    "duty",
    metadata,
    Column("name", Text, primary_key=True),
    Column("until", Double, nullable=False),  # nobody else takes it before
)

schedule = Table(
    "schedule",
    metadata,
    Column("name", Text, primary_key=True),
    Column("cron", Text, nullable=False),
    Column("time_zone", Text, nullable=False),
    Column("spec", JsonText, nullable=False),  # the resolved audit specification
    Column("state", Text, nullable=False),
    Column("on_change", Boolean, nullable=False),
    Column("webhook", AnyText),
    Column("created", Double, nullable=False),
    Column("since", Double, nullable=False),  # fires until then are settled
    Column("error", AnyText),  # of the last preparation, while it fails
    Column("retry_at", Double),  # not prepared again before
    CheckConstraint("state IN ('active', 'paused')", name="state"),
)

schedule_fire = Table(
    "schedule_fire",
    metadata,
    Column("schedule", Text, primary_key=True),
    Column("at", Double, primary_key=True),  # one run per fire, whoever ticks
    Column("created", Double, nullable=False),
    Column("run_id", Text),  # NULL: model and data were those of the run before
    Column("previous", Text),  # the run to compare with; it may be gone by then
    Column("post", Text),  # of the verdict; NULL: there is no webhook
    Column("post_attempts", Integer, nullable=False),
    Column("post_at", Double),  # not tried (again) before; while one tries, until it is given up
    Column("posted", Double),
    Column("post_error", AnyText),
    CheckConstraint("post IN ('waiting', 'posted', 'failed')", name="post"),
    ForeignKeyConstraint(["schedule"], ["schedule.name"], ondelete="CASCADE"),
    ForeignKeyConstraint(["run_id"], ["run.id"], ondelete="SET NULL"),
    Index(None, "run_id"),
)
