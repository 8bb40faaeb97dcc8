"""Plans and shard results for the tests of the store."""

import json
from typing import Any

import numpy as np
from plain_records import new_attribution, new_mention
from sqlalchemy import BigInteger, Boolean, Double, or_, select

from transexplain.store import results, runs, shards
from transexplain.store.database import Database
from transexplain.store.runs import Claim
from transexplain.store.schema import RESULT_TABLES, shard
from transexplain.types.items import (
    Attribution,
    EntityGroup,
    ItemFailure,
    ItemOutcome,
    Ledger,
    Mention,
    PatchGrid,
)
from transexplain.types.plans import (
    AuditPlan,
    Classification,
    DatasetRef,
    ModelRef,
    Shard,
    ShardResult,
)
from transexplain.types.scores import MethodSpec
from transexplain.types.tokens import Token

CLASSES = ("negative", "positive")


def make_plan(rows: int = 12, **changes: Any) -> AuditPlan:
    settings: dict[str, Any] = {
        "name": "sample audit",
        "model": ModelRef(source="model", classes=CLASSES, digest="d" * 64),
        "dataset": DatasetRef(
            source="x.csv", modality="text", snapshot="/s.parquet", fingerprint="f" * 64, rows=rows
        ),
        "method": MethodSpec(name="lrp", params={"steps": 3, "layers": [1, 2]}),
        "targets": ("predicted", "contrast:positive-negative"),
        "classifications": (Classification(name="any", classes=CLASSES),),
        "groups": (EntityGroup(name="names", terms=("Ann", "Zoë"), source="here"),),
        "labels": {"0": "negative", "1": "positive"},
        "shard_size": 4,
    }
    return AuditPlan(**(settings | changes))


def stored_again(plan: AuditPlan) -> AuditPlan:
    """The plan that is read where this one was stored."""
    return runs.plan_of(json.loads(json.dumps(plan.document())))


def make_shards(rows: int = 12, size: int = 4) -> tuple[Shard, ...]:
    starts = range(0, rows, size)
    return tuple(
        Shard(index=index, start=start, stop=min(start + size, rows))
        for index, start in enumerate(starts)
    )


def start(db: Database, rows: int = 12, size: int = 4, **plan: Any) -> str:
    """A run that begins; `plan`: what its plan has of its own."""
    return runs.create(db, make_plan(rows, **plan), make_shards(rows, size))


def claimed(
    db: Database, run_id: str, lease: float = 60.0, *, worker: str = "w", index: int | None = None
) -> Claim:
    claim = shards.claim(db, run_id, worker, lease, index)
    assert claim is not None
    return claim


def work(db: Database, run_id: str, **options: Any) -> None:
    """Claim and save what is left, as `make_result` makes it, and close the run."""
    while (claim := shards.claim(db, run_id, "w", 60)) is not None:
        results.save(db, claim, make_result(claim.shard, **options))
    runs.finalise(db, run_id)


def saved(db: Database, *made: ShardResult, **plan: Any) -> str:
    """A run that holds these results; closed."""
    run_id = runs.create(db, make_plan(**plan), [one.shard for one in made])
    for one in made:
        results.save(db, claimed(db, run_id, index=one.shard.index), one)
    runs.finalise(db, run_id)
    return run_id


def make_tokens(words: int) -> tuple[Token, ...]:
    cls = Token(text="[CLS]", start=0, end=0, special=True)
    middle = [Token(text=f"w{n}", start=3 * n, end=3 * n + 2, word=n) for n in range(words)]
    end = 3 * words
    return (cls, *middle, Token(text="[SEP]", start=end, end=end, special=True))


def make_ledger(seed: float = 1.0) -> Ledger:
    return Ledger(
        inputs=0.5 * seed,
        special=0.25,
        embeddings=-0.125,
        biases=0.0625,
        rules=0.0,
        total=0.5 * seed + 0.1875,
        gap=1e-7 * seed,
        magnitude=2.0,
        biases_by_kind={"linear": 0.0625},
        rules_by_kind={"z": 0.0},
    )


def make_outcome(index: int, **changes: Any) -> ItemOutcome:
    values: dict[str, Any] = {
        "item_id": f"id-{index}",
        "index": index,
        "label": "positive",
        "predicted": CLASSES[index % 2],
        "logits": (0.1 * index, -1.0 / 3.0),
        "truncated": index % 3 == 0,
        "positions": 5,
        "text": f"w{index} Ann",
        "meta": {"channel": "mail"},
    }
    return ItemOutcome(**(values | changes))


def make_attribution(outcome: ItemOutcome, **changes: Any) -> Attribution:
    values: dict[str, Any] = {
        "item_id": outcome.item_id,
        "class_index": CLASSES.index(outcome.predicted),
        "class_name": outcome.predicted,
        "logit": max(outcome.logits),
        "relevance": np.linspace(-1, 1, 5, dtype=np.float32) * (outcome.index + 1),
        "features": make_tokens(3),
        "ledger": make_ledger(outcome.index + 1),
        "text": outcome.text,
    }
    return new_attribution(**(values | changes))


def make_contrast(outcome: ItemOutcome) -> Attribution:
    return make_attribution(
        outcome,
        target="contrast:positive-negative",
        class_index=None,
        class_name="positive-negative",
        relevance=np.full(5, 0.25, dtype=np.float32),
        ledger=None,
    )


def make_mention(outcome: ItemOutcome, **changes: Any) -> Mention:
    values: dict[str, Any] = {
        "item_id": outcome.item_id,
        "class_name": "positive",
        "group": "names",
        "entity": "Ann",
        "surface": "Ann",
        "start": 3,
        "end": 6,
        "relevance": float(outcome.index),
    }
    return new_mention(**(values | changes))


def make_result(
    shard: Shard, *, failing: frozenset[int] = frozenset(), note: str = "", kind: str = "empty-text"
) -> Any:
    """One outcome with two attributions and a mention per row; rows in `failing` fail."""
    rows = range(shard.start, shard.stop)
    outcomes = [make_outcome(row) for row in rows if row not in failing]
    return ShardResult(
        shard=shard,
        outcomes=tuple(outcomes),
        attributions=tuple(
            made for one in outcomes for made in (make_attribution(one), make_contrast(one))
        ),
        failures=tuple(
            ItemFailure(item_id=f"id-{row}", index=row, kind=kind, message="no text")
            for row in rows
            if row in failing
        ),
        mentions=tuple(make_mention(one) for one in outcomes),
        aggregate={"shard": shard.index, "note": note},
        seconds=0.5,
    )


def make_image(outcome: ItemOutcome, rows: int = 2, cols: int = 3) -> Attribution:
    grid = PatchGrid(rows=rows, cols=cols, height=32, width=48, prefix=2)
    return make_attribution(
        outcome,
        relevance=np.arange(rows * cols, dtype=np.float32).reshape(rows, cols),
        features=grid,
        prefix_relevance=(0.5, -0.25),
        at="pixels",
        text=None,
    )


def same(one: Attribution, other: Attribution) -> bool:
    """Equality, which attributions do not define, of every field."""
    names = [name for name in Attribution.__dataclass_fields__ if name != "relevance"]
    return all(getattr(one, name) == getattr(other, name) for name in names) and np.array_equal(
        one.relevance, other.relevance
    )


def claimable(db: Database, run_id: str, limit: int | None = None) -> list[int]:
    """The shards that a claim would look at now, those with fewest attempts first."""
    query = (
        select(shard.c.index)
        .where(shard.c.run_id == run_id, or_(shard.c.state == "queued", shards.lease_expired()))
        .order_by(shard.c.attempt, shard.c.index)
        .limit(limit)
    )
    with db.read() as connection:
        running = runs.require(connection, run_id).state == "running"
        return list(connection.execute(query).scalars()) if running else []


def make_rows(count: int = 2) -> dict[str, list[dict[str, Any]]]:
    """`count` rows for each table of results (one where a run has one), all columns filled."""
    made = {BigInteger: 7, Double: 0.25, Boolean: True}
    return {
        table.name: [
            {
                column.name: made.get(type(column.type), f"{column.name} {place}")
                for column in table.c
                if column.name not in ("run_id", "ordinal", "written")
            }
            for place in range(count if "ordinal" in table.c else 1)
        ]
        for table in RESULT_TABLES
    }
