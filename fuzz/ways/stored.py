"""What a database row holds: plans, aggregates, relevance and texts.

The first line says which; what the store keeps compressed is given as it is before that.
"""

import json
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from sqlalchemy.dialects import sqlite

from fuzz.guard import promise
from transexplain.analysis.groups.merged_aggregates import merged_aggregates
from transexplain.analysis.groups.shard_aggregate import ShardAggregate
from transexplain.errors import ItemError
from transexplain.store.columns import AnyText, JsonText, PackedJson
from transexplain.store.part_fields import decode_all, encode_all
from transexplain.store.runs import plan_from_json, plan_to_json

_DIALECT = sqlite.dialect()


def target(data: bytes) -> None:
    """What is read is written again as it was; damage is reported."""
    kind, _, body = data.partition(b"\n")
    _KINDS.get(kind, _aggregate)(body)


def _plan(body: bytes) -> None:
    plan = plan_from_json(body.decode("utf-8", "replace"))
    text = plan_to_json(plan)
    promise(plan_from_json(text) == plan, "written and read again it is another plan")
    promise(plan_from_json(text).digest == plan.digest, "its digest is another")


def _aggregate(body: bytes) -> None:
    content = PackedJson().process_result_value(zlib.compress(body), _DIALECT)
    found = ShardAggregate.from_json(content)
    text = json.dumps(found.to_json(), allow_nan=False)
    again = ShardAggregate.from_json(json.loads(text))
    promise(again.to_json() == json.loads(text), "written and read again it is another")
    merged = ShardAggregate().merge(found).merge(again).to_json()
    promise(merged_aggregates([json.loads(text)] * 2).to_json() == merged, "gathered it is another")
    for key in again.class_keys:
        again.words(*key)
    again.heatmaps()


def _relevance(body: bytes) -> None:
    """A line with the dtype, one with the scale, and the bytes."""
    dtype, _, rest = body.partition(b"\n")
    scale, _, blob = rest.partition(b"\n")
    try:
        number = float(scale)
    except ValueError:
        return
    size = 2 if dtype == b"float16" else 4
    stored = np.frombuffer(blob[: len(blob) // size * size], "<f2" if size == 2 else "<f4")
    with np.errstate(all="ignore"):
        values = decode_all(stored, np.array([number]), np.array([stored.size]))
    promise(values.dtype == np.float32 and values.ndim == 1, "not (T,) of float32")
    if not np.isfinite(values).all():
        try:
            encode_all([values], "float32", [""])
        except ItemError:
            return
        promise(False, "relevance that is not finite is written")
    for payload in ("float32", "float16"):
        kept = encode_all([values], payload, [""])  # type: ignore[arg-type]
        again = decode_all(kept.values, kept.scales, np.array([values.size]))
        largest = float(np.abs(values).max(initial=0.0))
        off = np.abs(again.astype(np.float64) - values) - np.abs(values) * 2.0**-10
        promise((off <= largest * 2.0**-24 + 1e-44).all(), f"{payload} loses more than it may")


def _json(body: bytes) -> None:
    found = JsonText().process_result_value(body.decode("utf-8", "replace"), _DIALECT)
    _column_again(PackedJson(), found)


def _column_again(column: Any, value: Any) -> None:
    try:
        kept = column.process_bind_param(value, _DIALECT)
    except ValueError:  # a number that is none is refused when it is written
        return
    promise(column.process_result_value(kept, _DIALECT) == value, "another document")


def _text(body: bytes) -> None:
    text = body[: len(body) & ~1].decode("utf-16-le", "surrogatepass")
    kept = AnyText().process_bind_param(text, _DIALECT) or ""
    promise("\x00" not in kept, "NUL in a text column")
    kept.encode("utf-8")  # no lone surrogate either
    promise(AnyText().process_result_value(kept, _DIALECT) == text, "another text")


_KINDS: Mapping[bytes, Callable[[bytes], None]] = {
    b"plan": _plan,
    b"aggregate": _aggregate,
    b"relevance": _relevance,
    b"json": _json,
    b"text": _text,
}
