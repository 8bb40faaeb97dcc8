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
    Table,
    Text,
    event,
)

from transexplain.store.columns import AnyText, JsonText, Numbers, PackedJson
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


def _column(name: str, kind: Any, about: str, *, null: bool = False, **more: Any) -> Column[Any]:
    return Column(name, kind, nullable=null, comment=about, **more)


def _key(name: str, kind: Any, about: str) -> Column[Any]:
    return Column(name, kind, primary_key=True, autoincrement=False, comment=about)


def _text(name: str, about: str, *, null: bool = False) -> Column[Any]:
    return _column(name, AnyText, about, null=null)


def _array(name: str, kind: str, about: str, *, null: bool = False) -> Column[Any]:
    return _column(name, Numbers(kind), about, null=null)


run = Table(
    "run",
    metadata,
    _key("id", Text, "begins with the day on which the run began"),
    _column("name", AnyText, "of the audit"),
    _column("plan", JsonText, "what the run does, resolved"),
    _column("plan_digest", Text, "equal for equal plans"),
    _column("max_attempts", Integer, "of a shard, before it is given up"),
    _column("state", Text, "`running`, `done` or `cancelled`"),
    _column("created", Double, "when"),
    _column("finished", Double, "when; NULL: it runs", null=True),
    _column("previous", Text, "the run to compare with; it may be gone by then", null=True),
    _column("surroundings", JsonText, "of who planned it", null=True, key="environment"),
    _column("priority", Integer, "shards of higher ones are handed out first", server_default="0"),
    _column("share", Double, "of the workers, beside other runs'", server_default="1"),
    _column("most_workers", Integer, "that may work on it at once; NULL: any number", null=True),
    _column("paused", Double, "when; NULL: it hands out shards", null=True),
    _column("sink", JsonText, "of the plan: where Parquet files go; NULL: nowhere", null=True),
    CheckConstraint("state IN ('running', 'done', 'cancelled')", name="state"),
    Index(None, "created"),
    Index(None, "state"),
    comment="A run of an audit, with the plan that it follows.",
)

shard = Table(
    "shard",
    metadata,
    _key("run_id", Text, "of the run"),
    _key("index", Integer, "of the shard, from 0"),
    _column("start", RowNumber, "its first row in the dataset"),
    _column("stop", RowNumber, "row after the last one"),
    _column("state", Text, "`queued`, `running`, `done`, `dead` or `cancelled`"),
    _column("attempt", Integer, "counted at claim"),
    _column("token", Integer, "raised at claim; fences earlier holders"),
    _column("lease_until", Double, "until when its worker holds it", null=True),
    _column("heartbeat", Double, "the last sign of its worker", null=True),
    _column("hinted", Double, "when the last message about it was sent", null=True),
    _column("worker", AnyText, "that holds or held it", null=True),
    _column("error", AnyText, "of the last attempt that failed", null=True),
    _column("traceback", AnyText, "of that error; NULL: not raised here, or not kept", null=True),
    _column("seconds", Double, "computing, of the attempt that was saved", null=True),
    _column("explained", Integer, "items that have an explanation"),
    _column("failed", Integer, "items that have none"),
    _column("fruitless", Integer, "attempts without progress", server_default="0"),
    _column("breadcrumb", JsonText, "ids of the items being computed", null=True),
    _column("suspects", JsonText, "items in whose process a worker died", null=True),
    _column("digest", Text, "of what was saved; NULL: nothing, or not taken", null=True),
    _column(
        "surroundings", JsonText, "software and machine that saved it", null=True, key="environment"
    ),
    ForeignKeyConstraint(["run_id"], ["run.id"], ondelete="CASCADE"),
    CheckConstraint("state IN ('queued', 'running', 'done', 'dead', 'cancelled')", name="state"),
    Index(None, "run_id", "state", "attempt", "index"),
    comment="Some neighbouring rows of a run's dataset, which one worker computes at a time.",
)

pending_shards = Table(
    "pending_shards",
    metadata,
    _key("run_id", Text, "its shards are not all made"),
    _column("first", Integer, "index of the first to be made"),
    _column("start", RowNumber, "its first row in the dataset"),
    _column("stop", RowNumber, "row after the last one"),
    _column("size", Integer, "rows of a shard"),
    ForeignKeyConstraint(["run_id"], ["run.id"], ondelete="CASCADE"),
    comment="The shards of a large run that have no row yet.",
)


def _rows_of_items(
    name: str, about: str, *columns: Column[Any] | Index, several: bool = True
) -> Table:
    """A table of rows that belong to items; `several`: an item may have more than one."""
    number = _key("ordinal", Integer, "place among the item's, from 0")
    return Table(
        name,
        metadata,
        _key("run_id", Text, "of the run"),
        _key("idx", RowNumber, "row of the item in its dataset, from 0"),
        *([number] if several else []),
        _column("shard", Integer, "that the item belongs to"),
        *columns,
        postgresql_partition_by=_BY_RUN,
        comment=about,
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
    _key("run_id", Text, "of the run"),
    _key("shard", Integer, "of the run"),
    _column("name", Text, "in the folder of the run's sink"),
    _column("token", Integer, "of the claim that wrote it"),
    _column("items", Integer, "explained ones"),
    _column("rows", Integer, "of the file: a row for each attribution"),
    _column("bytes", BigInteger, "of the file"),
    _column("sha256", Text, "of the file"),
    ForeignKeyConstraint(["run_id", "shard"], ["shard.run_id", "shard.index"], ondelete="CASCADE"),
    comment="A Parquet file of a run's sink.",
)

shard_aggregate = Table(
    "shard_aggregate",
    metadata,
    _key("run_id", Text, "of the run"),
    _key("shard", Integer, "of the run"),
    _column("payload", PackedJson, "totals over its items: compressed JSON, for programs"),
    _column("summary", LargeBinary, "what it holds in short: for programs"),
    ForeignKeyConstraint(["run_id", "shard"], ["shard.run_id", "shard.index"], ondelete="CASCADE"),
    postgresql_partition_by=_BY_RUN,
    comment="Totals of a shard, from which reports are made.",
)

dead_letter = Table(
    "dead_letter",
    metadata,
    _key("reason", Text, "why workers refused messages, one row each"),
    _column("messages", BigInteger, "that were refused for it"),
    _column("latest", Double, "when these were counted"),
    comment="Messages that workers refused, by reason.",
)

#: names of the tables that PostgreSQL keeps in partitions by `run_id`, parents before children
PARTITIONED = ("item", "attribution", "mention", "score", "failure", "shard_aggregate")


duty = Table(
    "duty",
    metadata,
    _key("name", Text, "of what one process does at a time"),
    _column("until", Double, "no other process takes it before"),
    comment="What one process at a time does for all.",
)

#: one row, drawn when the table is made: what all servers over a store sign their forms with
form_key = Table(
    "form_key",
    metadata,
    _key("key", LargeBinary, "32 random bytes"),
    comment="The key with which servers over the store sign their forms.",
)


@event.listens_for(form_key, "after_create")
def _draw_key(table: Table, connection: Connection, **_: Any) -> None:
    connection.execute(table.insert().values(key=secrets.token_bytes(32)))


schedule = Table(
    "schedule",
    metadata,
    _key("name", Text, "of the schedule"),
    _column("cron", Text, "when it fires"),
    _column("time_zone", Text, "in which"),
    _column("spec", JsonText, "the resolved audit specification"),
    _column("state", Text, "`active` or `paused`"),
    _column("on_change", Boolean, "whether it leaves out fires where model and data are the same"),
    _column("created", Double, "when"),
    _column("since", Double, "fires until then are settled"),
    _column("error", AnyText, "of the last preparation, while it fails", null=True),
    _column("retry_at", Double, "not prepared again before", null=True),
    CheckConstraint("state IN ('active', 'paused')", name="state"),
    comment="An audit that is run again and again.",
)

schedule_fire = Table(
    "schedule_fire",
    metadata,
    _key("schedule", Text, "that fired"),
    _key("at", Double, "one run per fire, whichever process ticks"),
    _column("created", Double, "when the run was planned"),
    _column("run_id", Text, "NULL: model and data were those of the run before", null=True),
    _column("previous", Text, "the run to compare with; it may be gone by then", null=True),
    ForeignKeyConstraint(["schedule"], ["schedule.name"], ondelete="CASCADE"),
    ForeignKeyConstraint(["run_id"], ["run.id"], ondelete="SET NULL"),
    Index(None, "run_id"),
    comment="A moment at which a schedule ran its audit, or found nothing new.",
)

schedule_receiver = Table(
    "schedule_receiver",
    metadata,
    _key("schedule", Text, "whose verdicts it gets"),
    _key("number", Integer, "from 1, as they were named"),
    _column("kind", Text, "how a verdict is written for it: `json`, `slack`, `teams` or `email`"),
    _column("address", AnyText, "secret: paths of webhooks are passwords"),
    CheckConstraint("kind IN ('json', 'slack', 'teams', 'email')", name="kind"),
    ForeignKeyConstraint(["schedule"], ["schedule.name"], ondelete="CASCADE"),
    comment="Who is sent the verdicts of a schedule.",
)

fire_delivery = Table(
    "fire_delivery",
    metadata,
    _key("schedule", Text, "of the fire"),
    _key("at", Double, "of the fire"),
    _key("number", Integer, "of the receiver"),
    _column("state", Text, "`waiting`, `posted` or `failed`"),
    _column("attempts", Integer, "to post it"),
    _column(
        "next_at",
        Double,
        "not tried (again) before; while one tries, until it is given up",
        null=True,
    ),
    _column("delivered", Double, "when", null=True),
    _column("error", AnyText, "of the last attempt", null=True),
    CheckConstraint("state IN ('waiting', 'posted', 'failed')", name="state"),
    ForeignKeyConstraint(
        ["schedule", "at"], ["schedule_fire.schedule", "schedule_fire.at"], ondelete="CASCADE"
    ),
    ForeignKeyConstraint(
        ["schedule", "number"],
        ["schedule_receiver.schedule", "schedule_receiver.number"],
        ondelete="CASCADE",
    ),
    comment="A verdict on its way to a receiver.",
)
