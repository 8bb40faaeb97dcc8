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
from transexplain.analysis.groups.shard_aggregate import ShardAggregate, merged_aggregates
from transexplain.store.columns import AnyText, JsonText, Numbers, PackedJson
from transexplain.store.runs import plan_of

_DIALECT = sqlite.dialect()


def target(data: bytes) -> None:
    """What is read is written again as it was; damage is reported."""
    kind, _, body = data.partition(b"\n")
    _KINDS.get(kind, _aggregate)(body)


def _plan(body: bytes) -> None:
    written = JsonText()
    plan = plan_of(written.process_result_value(body.decode("utf-8", "replace"), _DIALECT))
    text = written.process_bind_param(plan.document(), _DIALECT)
    again = plan_of(written.process_result_value(text, _DIALECT))
    promise(again == plan, "written and read again it is another plan")
    promise(again.digest == plan.digest, "its digest is another")


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


def _array(body: bytes) -> None:
    """A line with the kind of number, and the text of an array as SQLite holds it."""
    name, _, text = body.partition(b"\n")
    kind = Numbers(name.decode() if name in (b"float4", b"float8", b"int4") else "float8")
    try:
        with np.errstate(all="ignore"):
            stored = kind.read([text.decode("utf-8", "replace")])
    except (ValueError, OverflowError):  # what a reader of damaged rows expects
        return
    promise(int(stored.counts.sum()) == len(stored.values), "counts and values differ")
    if np.isfinite(stored.values).all():
        again = kind.read(kind.as_json(stored))
        promise(again.values.tobytes() == stored.values.tobytes(), "another array")


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
    b"array": _array,
    b"json": _json,
    b"text": _text,
}
