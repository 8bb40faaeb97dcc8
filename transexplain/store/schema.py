"""The tables: a row per run, shard, item, attribution, mention, score and failed item.

Times are seconds since the epoch by the database's clock. An item is known inside the store by
its row in the dataset (`idx`), which is shorter than its id and gives reports their order. Rows of
items have no foreign key, which would be checked for each of them: their run is deleted after them.
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
    PrimaryKeyConstraint,
    Table,
    Text,
    event,
)

from transexplain.store.array_columns import Numbers
from transexplain.store.columns import AnyText, JsonText, PackedJson
from transexplain.store.result_tables import RESULT_TABLES, metadata

__all__ = ["PARTITIONED", "RESULT_TABLES", "metadata"]

#: the row of an item in its dataset; every integer of SQLite has 64 bits
RowNumber = BigInteger().with_variant(Integer(), "sqlite")

#: tables of results: `partitions` makes those of a month, and drops them as a whole
_BY_RUN = "RANGE (run_id)"
#: the entries of a ledger, in logits; each is a column with `ledger_` before its name
LEDGER = {
    "inputs": "relevance of the item's own positions; NULL: the method conserves nothing",
    "special": "relevance of special positions",
    "embeddings": "of constants that are added before the encoder",
    "biases": "of the constants of operators",
    "rules": "made (negative) or lost by rules that do not conserve",
    "total": "sum of the five entries before",
    "gap": "logit minus total",
    "magnitude": "sum of |terms|, by which the gap is judged",
}


def _column(name: str, kind: Any, about: str, *, null: bool = False) -> Column[Any]:
    return Column(name, kind, nullable=null, info={"about": about})


def _of_key(name: str, kind: Any, about: str) -> Column[Any]:
    return Column(name, kind, autoincrement=False, info={"about": about})


def _text(name: str, about: str, *, null: bool = False) -> Column[Any]:
    return _column(name, AnyText, about, null=null)


def _array(name: str, kind: str, about: str, *, null: bool = False) -> Column[Any]:
    return _column(name, Numbers(kind), about, null=null)


run = Table(
    "run",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", AnyText, nullable=False),
    Column("plan", JsonText, nullable=False),
    Column("plan_digest", Text, nullable=False),
    Column("max_attempts", Integer, nullable=False),  # of the plan: a claim need not parse it
    Column("state", Text, nullable=False),
    Column("created", Double, nullable=False),
    Column("finished", Double),
    Column("previous", Text),  # the run to compare with; it may be gone by then
    Column("surroundings", JsonText, key="environment"),  # of who planned it
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


def _rows_of_items(
    name: str, about: str, *columns: Column[Any] | Index, several: bool = True
) -> Table:
    """A table of rows that belong to items; `several`: an item may have more than one."""
    key = ["run_id", "idx", *(["ordinal"] if several else [])]
    number = _of_key("ordinal", Integer, "place among the item's, from 0")
    return Table(
        name,
        metadata,
        Column("run_id", Text, info={"about": "of the run"}),
        _of_key("idx", RowNumber, "row of the item in its dataset, from 0"),
        *([number] if several else []),
        Column("shard", Integer, nullable=False, info={"about": "that the item belongs to"}),
        *columns,
        PrimaryKeyConstraint(*key),
        postgresql_partition_by=_BY_RUN,
        info={"about": about},
    )


_CLASS = "the class that it was, or `plus-minus` of a contrast"
_TARGET = "what was explained, as the audit names it"

item = _rows_of_items(
    "item",
    "An item that was explained: what it is, and what the model predicts.",
    _text("item_id", "as the dataset names it"),
    _text("label", "class, where the dataset's label is one", null=True),
    _text("raw_label", "as the dataset spells it", null=True),
    _text("predicted", "the class with the highest logit"),
    _array("logits", "float8", "of every class, in the model's order"),
    _column("length", Integer, "positions that the model read, padding apart"),
    _column("truncated", Boolean, "whether the text goes on where reading ended"),
    _text("text", "or the words' digests, as `privacy.store_text` says", null=True),
    _column("second_at", Integer, "where the second text of a pair begins", null=True),
    _text("source", "path of the picture below the dataset's root", null=True),
    _column("meta", JsonText, "columns of the dataset that the audit keeps", null=True),
    Index(None, "run_id", "item_id"),
    several=False,
)

attribution = _rows_of_items(
    "attribution",
    "The relevance of every position of an item for one target.",
    _text("method", "of explanation"),
    _text("target", _TARGET),
    _column("rank", Integer, "place within the target, from 0"),
    _text("class_name", _CLASS),
    _column("class_index", Integer, "of its logit; NULL: more than one", null=True),
    _text("unit", "of relevance: `logits`, `unit_relevance` or `score`"),
    _text("at", "the input layer at which relevance was measured"),
    _column("logit", Double, "that is explained, or the difference or sum"),
    *(_column(f"ledger_{name}", Double, about, null=True) for name, about in LEDGER.items()),
    _column("ledger_biases_by_kind", JsonText, "the biases by kind of operator", null=True),
    _column("ledger_rules_by_kind", JsonText, "the rules by kind of operator", null=True),
    _array("relevance", "float4", "of each token, or of each patch, row by row; signed"),
    _array("starts", "int4", "first character of each token in the text"),
    _array("lengths", "int4", "characters of each token"),
    _array("words", "int4", "number of the word of each token; -1: of none"),
    _array("special", "int4", "numbers of the special tokens, from 0", null=True),
    _column("pieces", JsonText, "token -> its spelling, where the text has another", null=True),
    _column("grid_rows", Integer, "of a picture's patches", null=True),
    _column("grid_columns", Integer, "of a picture's patches", null=True),
    _column("pixel_height", Integer, "of the picture that the model saw", null=True),
    _column("pixel_width", Integer, "of the picture that the model saw", null=True),
    _column("prefix", Integer, "special positions before the patches", null=True),
    _array("box", "float8", "left, top, right, bottom of what the model saw, 0 to 1", null=True),
    _array("prefix_relevance", "float8", "of the special positions of a picture", null=True),
    _column("notes", JsonText, "what a reader has to know besides the numbers", null=True),
)

mention = _rows_of_items(
    "mention",
    "One occurrence of an entity in one item, for one explained target.",
    _text("target", _TARGET),
    _column("rank", Integer, "place within the target, from 0"),
    _text("class_name", _CLASS),
    _text("group_name", "the entity group"),
    _text("entity", "as the word list spells it"),
    _text("surface", "as the text spells it"),
    _column("start_at", Integer, "first character in the text"),
    _column("end_at", Integer, "character behind the last one"),
    _column("relevance", Double, "sum over its tokens"),
)

score = _rows_of_items(
    "score",
    "How faithful an explanation of an item is, by one metric.",
    _text("method", "of explanation"),
    _text("target", _TARGET),
    _text("metric", "by which it was measured"),
    _column("value", Double, "NULL: it could not be measured", null=True),
    _array("curve", "float8", "what the value was made of, step by step", null=True),
    _text("reason", "why there is no value"),
    _column("detail", JsonText, "what else the metric says", null=True),
)

failure = _rows_of_items(
    "failure",
    "An item that could not be explained.",
    _text("item_id", "as the dataset names it"),
    _text("kind", "of error"),
    _text("error", "what went wrong"),
    _text("traceback", "of the error; NULL: not raised, or not kept", null=True),
    Index(None, "run_id", "item_id"),
    several=False,
)

#: what a shard's result is kept in, in the order in which it is written
OF_ITEMS = (item, attribution, mention, score, failure)

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
    Column("summary", LargeBinary, nullable=False),  # see shard_summary.py
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
PARTITIONED = ("item", "attribution", "mention", "score", "failure", "shard_aggregate")


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
