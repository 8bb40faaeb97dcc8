"""Saves shards as the version before `result_part` did: a row an item, attribution and mention.

Its code, word for word, so that what is read here is what that version left.
"""

import json
import math
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import delete, insert, update

from transexplain.environment import saved_here
from transexplain.errors import ItemError
from transexplain.store import codec, results, schema
from transexplain.store.codec import EncodedRelevance, Features, decode
from transexplain.store.database import Database
from transexplain.store.noteworthy import margin_of, places_of
from transexplain.store.results import _Digest, write_rows
from transexplain.store.rows import LEDGER_ENTRIES, check_cover
from transexplain.store.runs import Claim, require
from transexplain.types.items import (
    Attribution,
    ItemFailure,
    ItemOutcome,
    Ledger,
    Mention,
    PatchGrid,
)
from transexplain.types.plans import Payload, ShardResult
from transexplain.types.scores import MetricScore
from transexplain.types.tokens import Token
from transexplain.types.words import size_of

_LARGEST = float(np.finfo(np.float32).max)
_SMALLEST = np.nextafter(np.float32(0), np.float32(1))
Row = dict[str, Any]


def save_as_rows(db: Database, claim: Claim, result: ShardResult) -> None:
    """What `results.save` did, without its fence."""
    with db.read() as connection:
        payload = require(connection, claim.run_id).payload
        places = places_of(connection, claim.run_id)
    rows = rows_of(claim.run_id, result, payload, places)
    digest = _Digest()
    batches = (
        (schema.item, rows.items, ("index",)),
        (schema.attribution, rows.attributions, ("item", "ordinal")),
        (schema.mention, rows.mentions, ("item", "ordinal")),
        (schema.score, rows.scores, ("item", "ordinal")),
    )
    for table, some, key in batches:
        digest.add(table.name, sorted(some, key=lambda row: tuple(row[k] for k in key)))
    digest.add(schema.shard_aggregate.name, [{"payload": dict(result.aggregate)}])
    mine = (claim.run_id, claim.shard.index)
    with db.begin() as connection:
        for table in (schema.item, schema.shard_aggregate):
            connection.execute(
                delete(table).where(table.c.run_id == mine[0], table.c.shard == mine[1])
            )
        connection.execute(
            update(schema.shard)
            .where(schema.shard.c.run_id == mine[0], schema.shard.c.index == mine[1])
            .values(
                state="done",
                lease_until=None,
                breadcrumb=None,
                seconds=float(result.seconds),
                explained=len(result.outcomes),
                failed=len(result.failures),
                digest=digest.hexdigest(),
                environment=saved_here(result.steps),
            )
        )
        for table, some, _ in batches:
            write_rows(connection, table, some)
        connection.execute(
            insert(schema.shard_aggregate).values(
                run_id=mine[0], shard=mine[1], payload=dict(result.aggregate)
            )
        )


def save_mixed(db: Database, claim: Claim, result: ShardResult) -> None:
    """A run's first shard as the version before saved it, the others as this one does."""
    (results.save if claim.shard.index else save_as_rows)(db, claim, result)


def stored_size(attribution: Attribution, encoded: EncodedRelevance, text: str | None) -> float:
    """The size of `attribution` as it will be read back: from its payload and its item's text."""
    relevance = decode(encoded).reshape(attribution.relevance.shape)
    return size_of(replace(attribution, relevance=relevance, text=text))


def encode(relevance: NDArray[np.floating[Any]], payload: Payload) -> EncodedRelevance:
    """`relevance` (any shape, signed) as bytes.

    Raises ItemError (`not-finite`) for NaN, infinity, or values beyond float32.
    """
    values = np.asarray(relevance, dtype=np.float64).ravel()
    largest = float(np.abs(values).max(initial=0.0))
    # in this form NaN, for which every comparison is false, is refused too
    if not largest <= _LARGEST:
        raise ItemError("not-finite", "relevance is NaN, infinite or beyond float32")
    if payload == "float32":
        return EncodedRelevance(blob=values.astype("<f4").tobytes(), scale=1.0, dtype="float32")
    scale = float(np.float32(largest))
    if scale == 0.0 and largest > 0.0:
        scale = float(_SMALLEST)
    ratios = values / scale if scale else values
    return EncodedRelevance(blob=ratios.astype("<f2").tobytes(), scale=scale, dtype="float16")


def pack(features: Features) -> bytes:
    """Compressed JSON of the tokens or of the grid."""
    if isinstance(features, PatchGrid):
        document: Any = [features.rows, features.cols, features.height, features.width]
        document += [features.prefix, *features.box]
    else:
        document = _columns(features)
    return zlib.compress(json.dumps(document, separators=(",", ":")).encode(), 1)


def _columns(tokens: Sequence[Token]) -> dict[str, list[Any]]:
    ends = [0, *(int(token.end) for token in tokens)]
    return {
        "text": [token.text for token in tokens],
        "gap": [int(token.start) - end for token, end in zip(tokens, ends, strict=False)],
        "length": [int(token.end) - int(token.start) for token in tokens],
        "word": [None if token.word is None else int(token.word) for token in tokens],
        "special": [position for position, token in enumerate(tokens) if token.special],
    }


@dataclass(frozen=True, kw_only=True, slots=True)
class ResultRows:
    """Rows ready for bulk insertion."""

    items: list[Row]
    attributions: list[Row]
    mentions: list[Row]
    scores: list[Row]


def rows_of(
    run_id: str, result: ShardResult, payload: Payload, places: Mapping[str, int]
) -> ResultRows:
    """Every row that `result` becomes; `places` are as in `margin_of`.

    Raises ValueError where the result does not cover its shard's rows exactly once or names an
    item that it has no outcome for, ItemError (`not-finite`) where a number is NaN or infinite.
    """
    check_cover(result)
    index = {outcome.item_id: int(outcome.index) for outcome in result.outcomes}
    texts = {outcome.item_id: outcome.text for outcome in result.outcomes}
    ordinals: Counter[int] = Counter()
    packed: dict[int, tuple[codec.Features, bytes]] = {}
    attributions = []
    for attribution in result.attributions:
        item = _index_of(index, attribution.item_id)
        _pack_once(packed, item, attribution)
        row = _attribution_row(attribution, payload, texts[attribution.item_id])
        attributions.append({"run_id": run_id, "item": item, "ordinal": ordinals[item], **row})
        ordinals[item] += 1
    ordinals.clear()
    mentions = []
    for mention in result.mentions:
        item = _index_of(index, mention.item_id)
        row = _mention_row(mention)
        mentions.append({"run_id": run_id, "item": item, "ordinal": ordinals[item], **row})
        ordinals[item] += 1
    key = {"run_id": run_id, "shard": result.shard.index}
    items = [
        {
            **key,
            **_outcome_row(outcome, packed.get(int(outcome.index))),
            "margin": margin_of(outcome, places),
        }
        for outcome in result.outcomes
    ]
    items += [{**key, **_EMPTY, **_failure_row(failure)} for failure in result.failures]
    return ResultRows(
        items=items,
        attributions=attributions,
        mentions=mentions,
        scores=list(_score_rows(run_id, result.scores, index)),
    )


def _score_rows(run_id: str, scores: Iterable[MetricScore], index: dict[str, int]) -> Iterator[Row]:
    ordinals: Counter[int] = Counter()
    for score in scores:
        item = _index_of(index, score.item_id)
        finite = _finite_of(score.item_id, f"metric {score.metric!r} of {score.method!r}")
        yield {
            "run_id": run_id,
            "item": item,
            "ordinal": ordinals[item],
            "method": score.method,
            "target": score.target,
            "metric": score.metric,
            "value": None if score.value is None else finite((score.value,))[0],
            "curve": finite(score.curve) if score.curve else None,
            "reason": score.reason or None,
            "detail": dict(score.detail) or None,
        }
        ordinals[item] += 1


def _index_of(index: dict[str, int], item_id: str) -> int:
    try:
        return index[item_id]
    except KeyError:
        raise ValueError(
            f"item {item_id!r} has an attribution, mention or score but no outcome"
        ) from None


def _pack_once(
    packed: dict[int, tuple[codec.Features, bytes]], item: int, attribution: Attribution
) -> None:
    features = attribution.features
    if item not in packed:
        packed[item] = (features, pack(features))
    elif packed[item][0] is not features and packed[item][0] != features:
        raise ValueError(f"item {attribution.item_id!r}: its attributions differ in their features")
    if attribution.relevance.size != codec.count(features):
        raise ValueError(
            f"item {attribution.item_id!r}: {attribution.relevance.size} relevances for "
            f"{codec.count(features)} positions"
        )


def _attribution_row(attribution: Attribution, payload: Payload, text: str | None) -> Row:
    try:
        encoded = encode(attribution.relevance, payload)
    except ItemError as error:
        raise ItemError(error.kind, f"item {attribution.item_id!r}: {error}") from None
    finite = _finite_of(attribution.item_id, f"target {attribution.target!r}")
    class_index, prefix = attribution.class_index, attribution.prefix_relevance
    return {
        "method": attribution.method,
        "target": attribution.target,
        "rank": int(attribution.rank),
        "class_index": None if class_index is None else int(class_index),
        "class_name": attribution.class_name,
        "logit": finite((attribution.logit,))[0],
        "unit": attribution.unit,
        "at": attribution.at,
        "relevance": encoded.blob,
        "scale": encoded.scale,
        "dtype": encoded.dtype,
        "prefix": finite(prefix) if prefix else None,
        **_ledger_row(attribution.ledger, finite),
        "notes": list(attribution.notes) or None,
        "size": stored_size(attribution, encoded, text),
    }


def _ledger_row(ledger: Ledger | None, finite: "Finite") -> Row:
    if ledger is None:
        return _NO_LEDGER
    values = finite(getattr(ledger, name) for name in LEDGER_ENTRIES)
    kinds = [dict(ledger.biases_by_kind), dict(ledger.rules_by_kind)]
    plain = [dict(zip(kind, finite(kind.values()), strict=True)) for kind in kinds]
    return {
        **dict(zip(LEDGER_ENTRIES, values, strict=True)),
        "kinds": plain if any(plain) else None,
    }


def _mention_row(mention: Mention) -> Row:
    finite = _finite_of(mention.item_id, f"mention {mention.surface!r}")
    row = asdict(mention)
    del row["item_id"]
    numbers = {name: int(row[name]) for name in ("rank", "start", "end")}
    return {**row, **numbers, "relevance": finite((mention.relevance,))[0]}


def _outcome_row(outcome: ItemOutcome, packed: tuple[Any, bytes] | None) -> Row:
    return {
        "index": int(outcome.index),
        "item_id": outcome.item_id,
        "label": outcome.label,
        "predicted": outcome.predicted,
        "logits": _finite_of(outcome.item_id, "logits")(outcome.logits),
        "truncated": bool(outcome.truncated),
        "positions": int(outcome.positions),
        "text": outcome.text,
        "source": outcome.source,
        "meta": dict(outcome.meta) or None,
        "raw_label": outcome.raw_label,
        "features": packed[1] if packed else None,
        "error_kind": None,
        "error": None,
    }


def _failure_row(failure: ItemFailure) -> Row:
    return {
        "index": int(failure.index),
        "item_id": failure.item_id,
        "error_kind": failure.kind,
        "error": failure.message,
    }


#: drivers store numpy's numbers as bytes or refuse them: everything becomes a Python float
Finite = Callable[[Iterable[float]], list[float]]


def _finite_of(item_id: str, what: str) -> Finite:
    def finite(values: Iterable[float]) -> list[float]:
        plain = [float(value) for value in values]
        if not all(map(math.isfinite, plain)):
            raise ItemError("not-finite", f"item {item_id!r}: {what} has a NaN or infinite number")
        return plain

    return finite


_NO_LEDGER: Row = {**dict.fromkeys(LEDGER_ENTRIES), "kinds": None}
_EMPTY: Row = {
    **dict.fromkeys(
        ("label", "raw_label", "predicted", "logits", "positions", "text", "source", "meta")
    ),
    "features": None,
    "truncated": False,
    "margin": None,
}
