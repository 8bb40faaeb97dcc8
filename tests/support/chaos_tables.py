"""What two runs left in the tables of results, compared row by row."""

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from transexplain.analysis.groups.shard_aggregate import ShardAggregate
from transexplain.store import results
from transexplain.store.database import Database
from transexplain.store.noteworthy import recorded_shards

Row = dict[str, Any]
#: one of an item's results: its kind, and its place among the item's
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
    """Read a run's results; asserts that none is there twice."""
    items: dict[int, Row] = {}
    rows: dict[str, int] = {}
    for one in results.iter_items(db, run_id):
        assert one.index not in items and one.item_id not in rows, "no item twice"
        items[one.index], rows[one.item_id] = asdict(one), one.index
    parts: dict[int, dict[Key, Row]] = {index: {} for index in items}
    for attribution in results.iter_attributions(db, run_id):
        row = {name: getattr(attribution, name) for name in attribution.__dataclass_fields__}
        row["features"] = list(attribution.features)  # type: ignore[arg-type]
        row["relevance"] = attribution.relevance.tobytes()
        row["ledger"] = attribution.ledger and asdict(attribution.ledger)
        _add(parts[rows[attribution.item_id]], "attribution", row)
    for kind, some in (
        ("mention", results.iter_mentions(db, run_id)),
        ("score", results.iter_scores(db, run_id)),
    ):
        for other in some:
            _add(parts[rows[other.item_id]], kind, asdict(other))
    found = recorded_shards(db, run_id)
    saved = [one.index for one in found if one.digest is not None]
    payloads = list(results.aggregates(db, run_id))
    return Results(
        items=items,
        shards={row: one.index for one in found for row in range(one.start, one.stop)},
        parts=parts,
        aggregates=dict(zip(saved, payloads, strict=True)),
    )


def _add(held: dict[Key, Row], kind: str, row: Row) -> None:
    """As the next of its kind."""
    held[kind, sum(1 for name, _ in held if name == kind)] = row


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
