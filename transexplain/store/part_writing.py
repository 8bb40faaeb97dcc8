"""Writes the explained items of a shard as parts: compressed Arrow batches of nested columns.

A row of a batch is an item; its positions, attributions, mentions and scores are lists in it.
`part_reading` reads what is written here, bit for bit; `FORMAT` names the layout.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Generic, TypeVar

import numpy as np
import pyarrow as pa

from transexplain.store import part_columns as col
from transexplain.store import part_fields
from transexplain.store.part_columns import Ints
from transexplain.store.part_fields import (
    Attributed,
    EncodedMany,
    attribution_columns,
    decode_all,
    encode_all,
    item_columns,
    mention_columns,
    position_columns,
    score_columns,
)
from transexplain.store.part_summary import PartSummary, margin_of, summarised
from transexplain.store.rows import Row, check_cover, refuse_twice
from transexplain.types.items import Attribution, ItemOutcome, Mention
from transexplain.types.plans import Payload, ShardResult
from transexplain.types.scores import MetricScore
from transexplain.types.words import sizes_of

FORMAT = "arrow-1"
MOST_ITEMS = 1024  #: of a part
MOST_BYTES = 4 * 2**20  #: of a part before it is compressed, about; one item may have more
#: bytes of an item, an attribution, a mention or score and a position beside texts and relevance
_ITEM, _ATTRIBUTION, _MENTION, _POSITION = 64, 160, 48, 5

_Record = TypeVar("_Record", Attribution, Mention, MetricScore)


@dataclass(frozen=True, slots=True)
class _Listed(Generic[_Record]):
    """Records of items, in the order of the items."""

    records: Sequence[_Record]
    of: Ints  #: (N,) the place of the item of each

    def between(self, low: int, high: int) -> "_Listed[_Record]":
        """Those of the items from `low` to `high`."""
        first, last = np.searchsorted(self.of, [low, high]).tolist()
        return _Listed(self.records[first:last], self.of[first:last] - low)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Some:
    """The items of one part, by ascending row, and all that belongs to them."""

    outcomes: Sequence[ItemOutcome]
    features: Sequence[part_fields.Features | None]  #: None: the item has no attribution
    attributions: _Listed[Attribution]
    mentions: _Listed[Mention]
    scores: _Listed[MetricScore]

    @property
    def texts(self) -> list[str | None]:
        """As they are stored."""
        return [one.text for one in self.outcomes]

    def between(self, low: int, high: int) -> "_Some":
        """The items from `low` to `high`."""
        return _Some(
            outcomes=self.outcomes[low:high],
            features=self.features[low:high],
            attributions=self.attributions.between(low, high),
            mentions=self.mentions.between(low, high),
            scores=self.scores.between(low, high),
        )


def part_rows(
    run_id: str, result: ShardResult, payload: Payload, places: Mapping[str, int]
) -> list[Row]:
    """Every row of the table `result_part` that `result` becomes; `places` are as in `margin_of`.

    Raises ValueError where the result does not cover its shard's rows exactly once, names an item
    that it has no outcome for, or gives one result twice; ItemError (`not-finite`) where a number
    is NaN or infinite.
    """
    check_cover(result)
    whole = _sorted(result)
    key = {"run_id": run_id, "shard": result.shard.index}
    return [
        {**key, "part": number, **_row(whole.between(low, high), payload, places)}
        for number, (low, high) in enumerate(_cuts(whole))
    ]


def _sorted(result: ShardResult) -> _Some:
    outcomes = sorted(result.outcomes, key=lambda one: int(one.index))
    place = {one.item_id: number for number, one in enumerate(outcomes)}
    attributions = _listed(result.attributions, place)
    scores = _listed(result.scores, place)
    features = _features(attributions, len(outcomes))
    refuse_twice(
        "attribution", [(a.item_id, a.method, a.target, a.rank) for a in attributions.records]
    )
    refuse_twice("score", [(s.item_id, s.method, s.target, s.metric) for s in scores.records])
    return _Some(
        outcomes=outcomes,
        features=features,
        attributions=attributions,
        mentions=_listed(result.mentions, place),
        scores=scores,
    )


def _listed(records: Sequence[_Record], place: Mapping[str, int]) -> _Listed[_Record]:
    try:
        of = np.array([place[one.item_id] for one in records], dtype=np.int64)
    except KeyError as error:
        raise ValueError(
            f"item {error.args[0]!r} has an attribution, mention or score but no outcome"
        ) from None
    order = np.argsort(of, kind="stable")
    return _Listed([records[place] for place in order.tolist()], of[order])


def _features(attributions: _Listed[Attribution], items: int) -> list[part_fields.Features | None]:
    """The positions of each item, which its attributions share."""
    found: list[part_fields.Features | None] = [None] * items
    for item, one in zip(attributions.of.tolist(), attributions.records, strict=True):
        known = found[item]
        if known is None:
            found[item] = one.features
        elif known is not one.features and known != one.features:
            raise ValueError(f"item {one.item_id!r}: its attributions differ in their features")
        if one.relevance.size != part_fields.count(one.features):
            raise ValueError(
                f"item {one.item_id!r}: {one.relevance.size} relevances for "
                f"{part_fields.count(one.features)} positions"
            )
    return found


def _cuts(whole: _Some) -> Iterator[tuple[int, int]]:
    """Where each part begins and ends."""
    sizes = np.array(
        [
            _ITEM + len(one.text or "") + 8 * len(one.logits) + _POSITION * int(one.positions)
            for one in whole.outcomes
        ],
        dtype=np.int64,
    )
    weights = [_ATTRIBUTION + 4 * one.relevance.size for one in whole.attributions.records]
    np.add.at(sizes, whole.attributions.of, weights)
    for some in (whole.mentions, whole.scores):
        np.add.at(sizes, some.of, _MENTION)
    low, held = 0, 0
    for place, size in enumerate(sizes.tolist()):
        if place > low and (place - low == MOST_ITEMS or held + size > MOST_BYTES):
            yield low, place
            low, held = place, 0
        held += size
    if low < len(sizes):
        yield low, len(sizes)


def _row(some: _Some, payload: Payload, places: Mapping[str, int]) -> Row:
    records = some.attributions.records
    relevance = encode_all(
        [one.relevance for one in records], payload, [one.item_id for one in records]
    )
    attributed = Attributed.of_records(records, some.attributions.of, relevance)
    return {
        "first": int(some.outcomes[0].index),
        "last": int(some.outcomes[-1].index),
        "items": len(some.outcomes),
        "format": FORMAT,
        "ids": col.sealed(col.hashes_of([one.item_id for one in some.outcomes]).tobytes()),
        "payload": packed(_batch(some, attributed)),
        "summary": _summary(some, relevance, attributed, places).packed(),
    }


def _batch(some: _Some, attributed: Attributed) -> pa.RecordBatch:
    columns = item_columns(some.outcomes)
    columns |= position_columns(some.features, some.texts)
    items = len(some.outcomes)
    mentions, scores = some.mentions, some.scores
    columns["attributions"] = attribution_columns(attributed, items, columns["logits"])
    # a column takes a kilobyte even where it is empty
    if mentions.records:
        columns["mentions"] = mention_columns(mentions.records, mentions.of, some.texts)
    if scores.records:
        columns["scores"] = score_columns(scores.records, scores.of, items)
    return pa.record_batch(columns)


def packed(batch: pa.RecordBatch) -> bytes:
    """A batch as it is stored."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return col.squeezed(sink.getvalue().to_pybytes())


def _summary(
    some: _Some, relevance: EncodedMany, attributed: Attributed, places: Mapping[str, int]
) -> PartSummary:
    attributions = some.attributions
    counts = np.array([one.relevance.size for one in attributions.records], dtype=np.int64)
    flat = decode_all(relevance.values, relevance.scales, counts)
    bounds = pairwise(accumulate(counts.tolist(), initial=0))
    sizes = sizes_of(
        [one.features for one in attributions.records],
        [flat[begin:stop] for begin, stop in bounds],
        [some.outcomes[item].text for item in attributions.of.tolist()],
    )
    margins = [margin_of(one, places) for one in some.outcomes]
    mentioned: dict[str, set[int]] = {}
    for one, item in zip(some.mentions.records, some.mentions.of.tolist(), strict=True):
        mentioned.setdefault(one.group, set()).add(item)
    there = attributed.ledgered
    return summarised(
        some.outcomes,
        counts=(len(counts), len(some.mentions.records), len(some.scores.records)),
        sizes=sizes,
        margin=max((float(one) for one in margins if one is not None), default=None),
        ledgers=attributed.ledger[there],
        ledgered=attributions.of[there],
        logits=attributed.logit[there],
        mentioned=mentioned,
    )
