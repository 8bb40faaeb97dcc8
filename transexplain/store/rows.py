"""Checks a shard's result before any transaction begins, and makes the rows of its failures."""

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transexplain.errors import ItemError
from transexplain.types.items import ItemFailure
from transexplain.types.plans import ShardResult

Row = dict[str, Any]
_ALIKE = 3
LEDGER_ENTRIES = (
    "inputs",
    "special",
    "embeddings",
    "biases",
    "rules",
    "total",
    "gap",
    "magnitude",
)


def failure_rows(run_id: str, result: ShardResult) -> list[Row]:
    """A row of the table `item` for each item that could not be explained.

    Equal tracebacks, which say nothing of an item, are kept with the first `_ALIKE` of a shard.
    """
    key = {"run_id": run_id, "shard": result.shard.index}
    seen: Counter[str] = Counter()
    rows = []
    for one in result.failures:
        seen[one.traceback] += 1
        kept = one.traceback if seen[one.traceback] <= _ALIKE else ""
        rows.append({**key, **_failure_row(one), "traceback": kept or None})
    return rows


def _failure_row(failure: ItemFailure) -> Row:
    return {
        "index": int(failure.index),
        "item_id": failure.item_id,
        "error_kind": failure.kind,
        "error": failure.message,
    }


def check_cover(result: ShardResult) -> None:
    """Raise ValueError unless each row of the shard has one outcome or failure, with its own id."""
    shard = result.shard
    found = Counter(int(one.index) for one in result.outcomes)
    found.update(int(one.index) for one in result.failures)
    wanted = range(shard.start, shard.stop)
    wrong = {
        "missing": [row for row in wanted if row not in found],
        "outside": [row for row in found if row not in wanted],
        "twice": [row for row, times in found.items() if times > 1],
    }
    wrong_rows = [
        f"{len(rows)} {word} (first: row {rows[0]})" for word, rows in wrong.items() if rows
    ]
    if wrong_rows:
        raise ValueError(
            f"the result of shard {shard.index} must have one outcome or failure for each of the "
            f"rows {shard.start} to {shard.stop - 1}: {', '.join(wrong_rows)}"
        )
    names = [one.item_id for one in result.outcomes]
    refuse_twice("item id", names + [one.item_id for one in result.failures])


def refuse_twice(what: str, keys: Sequence[Hashable]) -> None:
    """Raise ValueError where two of the `keys` are equal."""
    if len(set(keys)) < len(keys):
        [(key, _)] = Counter(keys).most_common(1)
        raise ValueError(f"{what} {key!r} is not unique in its shard")


def refuse_no_number(
    values: NDArray[np.floating[Any]], name: Callable[[int], tuple[str, str]]
) -> None:
    """Raise ItemError (`not-finite`) where a number is NaN or infinite.

    `name` gives of the place of a number the id of its item, and what the number is of.
    """
    wrong = np.flatnonzero(~np.isfinite(values))
    if len(wrong):
        item_id, what = name(int(wrong[0]))
        raise ItemError("not-finite", f"item {item_id!r}: {what} has a NaN or infinite number")
