"""The tables: a row per run, shard, part of a shard's explained items, and failed item.

Explained items lie in columns in `result_part`. Runs of versions before have a row for each in
`item`, and in `attribution`, `mention` and `score` for what belongs to it; those are only read.
Times are seconds since the epoch by the database's clock. An item is known inside the store by
its row in the dataset (`index`), which is shorter than its id and gives reports their order.
"""

import secrets
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Connection,
    Double,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    Table,
    Text,
    UniqueConstraint,
    event,
)

from transexplain.store.columns import AnyText, JsonText, PackedJson
from transexplain.store.result_tables import RESULT_TABLES, metadata

__all__ = ["PARTITIONED", "RESULT_TABLES", "metadata"]

#: the row of an item in its dataset; every integer of SQLite has 64 bits
RowNumber = BigInteger().with_variant(Integer(), "sqlite")

#: tables of results: `partitions` makes those of a month, and drops them as a whole
_BY_RUN = "RANGE (run_id)"

run = Table(
    "run",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", AnyText, nullable=False),
    Column("plan", JsonText, nullable=False),
    Column("plan_digest", Text, nullable=False),
    Column("max_attempts", Integer, nullable=False),  # of the plan: a claim need not parse it
    Column("payload", Text, nullable=False),  # of the plan: how relevance is stored
    Column("state", Text, nullable=False),
    Column("created", Double, nullable=False),
    Column("finished", Double),
    Column("previous", Text),  # the run to compare with; it may be gone by then
    Column("surroundings", JsonText, key="environment"),  # of who planned it; NULL: not recorded
    Column("priority", Integer, nullable=False, server_default="0"),  # see queue_place.py
    Column("share", Double, nullable=False, server_default="1"),
    Column("most_workers", Integer),
    Column("paused", Double),  # when; NULL: it hands out shards
    Column("sink", JsonText),  # of the plan: where Parquet files go; NULL: nowhere
    CheckConstraint("state IN ('running', 'done', 'cancelled')", name="state"),
    Index(None, "created"),
    Index(None, "state"),
)

shard = Table(
    "shard",
    metadata,
    Column("run_id", Text, primary_key=True),
    Column("index", Integer, primary_key=True),
    Column("start", RowNumber, nullable=False),
    Column("stop", RowNumber, nullable=False),
    Column("state", Text, nullable=False),
    Column("attempt", Integer, nullable=False),  # counted at claim
    Column("token", Integer, nullable=False),  # raised at claim; fences earlier holders
    Column("lease_until", Double),
    Column("heartbeat", Double),
    Column("hinted", Double),  # when the last message about it was sent
    Column("worker", AnyText),
    Column("error", AnyText),  # of the last attempt that failed
    Column("traceback", AnyText),  # of that error; NULL: not raised here, or not kept
    Column("seconds", Double),  # computing, of the attempt that was saved
    Column("explained", Integer, nullable=False),  # items; progress needs no count over items
    Column("failed", Integer, nullable=False),  # items
    Column("fruitless", Integer, nullable=False, server_default="0"),  # attempts without progress
    Column("breadcrumb", JsonText),  # ids of the items being computed
    Column("suspects", JsonText),  # see leases.py
    Column("digest", Text),  # of what was saved, see shard_digests.py; NULL: nothing, or not taken
    Column("surroundings", JsonText, key="environment"),  # software and machine that saved it
    ForeignKeyConstraint(["run_id"], ["run.id"], ondelete="CASCADE"),
    CheckConstraint("state IN ('queued', 'running', 'done', 'dead', 'cancelled')", name="state"),
    Index(None, "run_id", "state", "attempt", "index"),
)

pending_shards = Table(
    "pending_shards",
    metadata,
    Column("run_id", Text, primary_key=True),  # its shards are not all made
    Column("first", Integer, nullable=False),  # index of the first to be made
    Column("start", RowNumber, nullable=False),  # its first row in the dataset
    Column("stop", RowNumber, nullable=False),  # row after the last one
    Column("size", Integer, nullable=False),  # rows of a shard
    ForeignKeyConstraint(["run_id"], ["run.id"], ondelete="CASCADE"),
)

item = Table(  # an item that could not be explained; the others are in `result_part`
    "item",
    metadata,
    Column("run_id", Text, primary_key=True),
    Column("index", RowNumber, primary_key=True),
    Column("item_id", AnyText, nullable=False),
    Column("shard", Integer, nullable=False),
    Column("error_kind", AnyText, nullable=False),
    Column("error", AnyText, nullable=False),
    Column("traceback", AnyText),  # of the error; NULL: not raised, or not kept
    ForeignKeyConstraint(["run_id", "shard"], ["shard.run_id", "shard.index"], ondelete="CASCADE"),
    UniqueConstraint("run_id", "item_id"),
    postgresql_partition_by=_BY_RUN,
)

result_part = Table(
    "result_part",
    metadata,
    Column("run_id", Text, primary_key=True),
    Column("shard", Integer, primary_key=True),
    Column("part", Integer, primary_key=True),  # number within the shard, by ascending rows
    Column("first", RowNumber, nullable=False),  # row of its first item in the dataset
    Column("last", RowNumber, nullable=False),  # row of its last item
    Column("items", Integer, nullable=False),  # explained ones; failed ones are in `item`
    Column("format", Text, nullable=False),  # layout of the payload, see part_writing.py
    Column("ids", LargeBinary, nullable=False),  # 32 bits of each item's id: who looks for one
    Column("summary", LargeBinary, nullable=False),  # see part_summary.py
    Column("payload", LargeBinary, nullable=False),  # a compressed Arrow batch; a checksum first
    ForeignKeyConstraint(["run_id", "shard"], ["shard.run_id", "shard.index"], ondelete="CASCADE"),
    postgresql_partition_by=_BY_RUN,
)

result_file = Table(
    "result_file",
    metadata,
    Column("run_id", Text, primary_key=True),
    Column("shard", Integer, primary_key=True),
    Column("name", Text, nullable=False),  # in the folder of the run's sink
    Column("token", Integer, nullable=False),  # of the claim that wrote it
    Column("items", Integer, nullable=False),  # explained ones
    Column("rows", Integer, nullable=False),  # of the file: a row for each attribution
    Column("bytes", BigInteger, nullable=False),
    Column("sha256", Text, nullable=False),
    ForeignKeyConstraint(["run_id", "shard"], ["shard.run_id", "shard.index"], ondelete="CASCADE"),
)

shard_aggregate = Table(
    "shard_aggregate",
    metadata,
    Column("run_id", Text, primary_key=True),
    Column("shard", Integer, primary_key=True),
    Column("payload", PackedJson, nullable=False),
    ForeignKeyConstraint(["run_id", "shard"], ["shard.run_id", "shard.index"], ondelete="CASCADE"),
    postgresql_partition_by=_BY_RUN,
)

dead_letter = Table(
    "dead_letter",
    metadata,
    Column("reason", Text, primary_key=True),  # why workers refused messages, one row each
    Column("messages", BigInteger, nullable=False),
    Column("latest", Double, nullable=False),  # when these were counted
)

#: names of the tables that PostgreSQL keeps in partitions by `run_id`, parents before children
PARTITIONED = ("item", "result_part", "shard_aggregate")


duty = Table(
    "duty",
    metadata,
    Column("name", Text, primary_key=True),
    Column("until", Double, nullable=False),  # no other process takes it before
)

#: one row, drawn when the table is made: what all servers over a store sign their forms with
form_key = Table("form_key", metadata, Column("key", LargeBinary, primary_key=True))


@event.listens_for(form_key, "after_create")
def _draw_key(table: Table, connection: Connection, **_: Any) -> None:
    connection.execute(table.insert().values(key=secrets.token_bytes(32)))


schedule = Table(
    "schedule",
    metadata,
    Column("name", Text, primary_key=True),
    Column("cron", Text, nullable=False),
    Column("time_zone", Text, nullable=False),
    Column("spec", JsonText, nullable=False),  # the resolved audit specification
    Column("state", Text, nullable=False),
    Column("on_change", Boolean, nullable=False),
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
    Column("at", Double, primary_key=True),  # one run per fire, whichever process ticks
    Column("created", Double, nullable=False),
    Column("run_id", Text),  # NULL: model and data were those of the run before
    Column("previous", Text),  # the run to compare with; it may be gone by then
    ForeignKeyConstraint(["schedule"], ["schedule.name"], ondelete="CASCADE"),
    ForeignKeyConstraint(["run_id"], ["run.id"], ondelete="SET NULL"),
    Index(None, "run_id"),
)

schedule_receiver = Table(
    "schedule_receiver",
    metadata,
    Column("schedule", Text, primary_key=True),
    Column("number", Integer, primary_key=True),  # from 1, as they were named
    Column("kind", Text, nullable=False),  # how a verdict is written for it
    Column("address", AnyText, nullable=False),  # secret: paths of webhooks are passwords
    CheckConstraint("kind IN ('json', 'slack', 'teams', 'email')", name="kind"),
    ForeignKeyConstraint(["schedule"], ["schedule.name"], ondelete="CASCADE"),
)

fire_delivery = Table(
    "fire_delivery",
    metadata,
    Column("schedule", Text, primary_key=True),
    Column("at", Double, primary_key=True),
    Column("number", Integer, primary_key=True),  # of the receiver
    Column("state", Text, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("next_at", Double),  # not tried (again) before; while one tries, until it is given up
    Column("delivered", Double),
    Column("error", AnyText),  # of the last attempt
    CheckConstraint("state IN ('waiting', 'posted', 'failed')", name="state"),
    ForeignKeyConstraint(
        ["schedule", "at"], ["schedule_fire.schedule", "schedule_fire.at"], ondelete="CASCADE"
    ),
    ForeignKeyConstraint(
        ["schedule", "number"],
        ["schedule_receiver.schedule", "schedule_receiver.number"],
        ondelete="CASCADE",
    ),
)
