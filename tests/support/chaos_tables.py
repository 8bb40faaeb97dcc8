"""What two runs left in the tables of results, compared row by row."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from sqlalchemy import select

from transexplain.analysis.groups.shard_aggregate import ShardAggregate
from transexplain.store.database import Database
from transexplain.store.schema import attribution, item, mention, score, shard_aggregate

Row = dict[str, Any]
#: one of an item's rows: its table, and its place among the item's
Key = tuple[str, int]

TOLERANCE, NOTHING = 1e-5, 1e-7  #: relative; absolute, where the largest relevance is 1e-2


@dataclass(frozen=True, kw_only=True, slots=True)
class Results:
    """Everything that a run stored, by item and by shard."""

    items: dict[int, Row]
    shards: dict[int, int]  #: item -> shard
    parts: dict[int, dict[Key, Row]]  #: item -> its attributions, mentions and scores
    aggregates: dict[int, dict[str, Any]]


def results_of(db: Database, run_id: str) -> Results:
    """Read a run's results; asserts that no row is there twice."""
    with db.read() as connection:

        def rows(table: Any) -> list[Row]:
            found = connection.execute(select(table).where(table.c.run_id == run_id)).mappings()
            return [
                {name: value for name, value in one.items() if name != "run_id"} for one in found
            ]

        items = rows(item)
        aggregates = rows(shard_aggregate)
        parts: dict[int, dict[Key, Row]] = {one["index"]: {} for one in items}
        for table in (attribution, mention, score):
            for row in rows(table):
                key = (table.name, row["ordinal"])
                assert key not in parts[row["item"]], "no result twice"
                parts[row["item"]][key] = row
    assert len({one["item_id"] for one in items}) == len(items), "no item twice"
    return Results(
        items={one["index"]: one for one in items},
        shards={one["index"]: one["shard"] for one in items},
        parts=parts,
        aggregates={one["shard"]: one["payload"] for one in aggregates},
    )


def differences(left: Any, right: Any, exact: bool, where: str = "") -> list[str]:
    """Where two values (rows, lists, numbers, arrays as bytes) differ; none: they are equal.

    Unless `exact`, numbers may be `TOLERANCE` of themselves apart, in float32 payloads too.
    """
    if isinstance(left, dict) and isinstance(right, dict):
        names = sorted({*left, *right}, key=str)
        return [
            one
            for name in names
            for one in differences(left.get(name), right.get(name), exact, f"{where}.{name}")
        ]
    sequences = isinstance(left, list | tuple) and isinstance(right, list | tuple)
    if sequences and len(left) == len(right):
        pairs = enumerate(zip(left, right, strict=True))
        return [one for i, (a, b) in pairs for one in differences(a, b, exact, f"{where}[{i}]")]
    if _equal(left, right, exact, where):
        return []
    return [f"{where}: {left!r} is not {right!r}"]


def _equal(left: Any, right: Any, exact: bool, where: str) -> bool:
    if exact or type(left) is not type(right):
        return bool(left == right)
    if isinstance(left, float):
        return math.isclose(left, right, rel_tol=TOLERANCE, abs_tol=NOTHING)
    if isinstance(left, bytes) and where.endswith(".relevance") and len(left) == len(right):
        one, other = (np.frombuffer(blob, dtype="<f4") for blob in (left, right))
        return np.allclose(one, other, rtol=TOLERANCE, atol=NOTHING)
    return bool(left == right)


def totals(payload: dict[str, Any]) -> dict[str, Any]:
    """An aggregate as numbers in logits, which compare within a tolerance, and counts."""
    read = ShardAggregate.from_json(payload)
    words = {
        f"{target} {name} {one.word}": [one.documents, one.mentions, one.relevance, one.magnitude]
        for target, name in read.class_keys
        for one in read.words(target, name)
    }
    counts = {str(key): count for key, count in sorted(read.predictions.items(), key=str)}
    sensitivity = list(read.class_sensitivity or ())
    return {
        "items": read.items,
        "truncated": read.truncated,
        "predictions": counts,
        "sensitivity": sensitivity,
        "words": words,
    }
