"""What totals need of a shard, a few bytes an item, so that most reports read no row of items."""

import zlib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import msgspec
import numpy as np
from sqlalchemy import Row, select

from transexplain.errors import DamagedRowError
from transexplain.store import blocks
from transexplain.store.array_columns import Columns, Floats, Ints
from transexplain.store.columns import escaped, unescaped
from transexplain.store.database import Database
from transexplain.store.schema import LEDGER, shard, shard_aggregate
from transexplain.types.items import ItemOutcome
from transexplain.types.plans import ShardResult
from transexplain.types.relevance_sums import RelevanceSums, bin_of
from transexplain.types.words import sizes_of


class LedgerSums(msgspec.Struct, array_like=True, frozen=True):
    """The ledgers of a shard added up."""

    count: int
    worst: float  #: the largest relative gap
    row: int  #: of the item that has it, the first among equals
    item: str  #: its id, escaped
    gaps: float  #: sum of the relative gaps
    sums: list[float]  #: of each entry
    absolute: list[float]  #: of each entry's size
    relevance: RelevanceSums  #: beside the logits


class ShardSummary(msgspec.Struct, array_like=True, frozen=True):
    """One shard."""

    attributions: int
    mentions: int
    scores: int
    #: positions, items, labelled ones, rightly predicted ones, truncated ones
    lengths: list[tuple[int, int, int, int, int]]
    #: label in the dataset, class or None, both escaped, items
    raw_labels: list[tuple[str, str | None, int]]
    sizes: list[tuple[int, int]]  #: bin of `relevance_sums.bin_of`, explanations
    largest: float  #: of the sizes
    margin: float | None  #: the largest of the wrong answers; None: none is wrong
    ledgers: LedgerSums | None
    #: group, escaped, and a bit for each row of the shard: whether the item mentions it
    groups: list[tuple[str, bytes]]

    def packed(self) -> bytes:
        """As it is stored."""
        return zlib.compress(msgspec.msgpack.encode(self), 1)

    def mentioning(self, groups: Collection[str]) -> Ints:
        """Which rows of the shard, from 0, mention any of these groups."""
        bits = [
            np.unpackbits(np.frombuffer(rows, dtype=np.uint8))
            for name, rows in self.groups
            if unescaped(name) in groups
        ]
        return np.flatnonzero(np.any(bits, axis=0)) if bits else np.zeros(0, dtype=np.int64)


class Summarised(NamedTuple):
    """A shard without its rows."""

    shard: int
    start: int  #: its first row
    summary: ShardSummary


_DECODER = msgspec.msgpack.Decoder(ShardSummary)
_HELD: ContextVar[dict[tuple[Database, str], list[Row[Any]]] | None] = ContextVar(
    "held", default=None
)


@contextmanager
def summaries_once() -> Iterator[None]:
    """Fetch the summaries of a run once in here, a few bytes an item, and keep them packed."""
    before = _HELD.set({})
    try:
        yield
    finally:
        _HELD.reset(before)


def summaries(db: Database, run_id: str) -> Iterator[Summarised]:
    """What is said of each shard that was saved, in the order of the data.

    Raises DamagedRowError for a damaged one, or passes it over; see `blocks.sparing`.
    """
    held = _HELD.get()
    rows = None if held is None else held.get((db, run_id))
    if rows is None:
        rows = _stored(db, run_id)
        if held is not None:
            held[db, run_id] = rows
    for index, start, packed in map(tuple, rows):
        try:
            summary = _DECODER.decode(zlib.decompress(packed))
        except (zlib.error, msgspec.MsgspecError) as error:
            if blocks.is_sparing():
                continue
            raise DamagedRowError(
                f"run {run_id}: the summary of shard {index} cannot be read: {error}; "
                f"`transexplain resume {run_id}` computes that shard again"
            ) from None
        yield Summarised(index, start, summary)


def _stored(db: Database, run_id: str) -> list[Row[Any]]:
    query = (
        select(shard.c.index, shard.c.start, shard_aggregate.c.summary)
        .join(
            shard_aggregate,
            (shard_aggregate.c.run_id == shard.c.run_id)
            & (shard_aggregate.c.shard == shard.c.index),
        )
        .where(shard.c.run_id == run_id)
        .order_by(shard.c.index)
    )
    with db.read() as connection:
        return list(connection.execute(query))


def summary_of(
    result: ShardResult, rows: Mapping[str, Columns], places: Mapping[str, int]
) -> ShardSummary:
    """The summary of a result with these `rows` of items; `places` as in `margin_of`."""
    outcomes = sorted(result.outcomes, key=lambda outcome: int(outcome.index))
    texts = {outcome.item_id: outcome.text for outcome in outcomes}
    margins = [margin_of(outcome, places) for outcome in outcomes]
    columns = rows["attribution"]
    there = ~np.isnan(columns["ledger_total"])
    entries = {name: columns[f"ledger_{name}"][there] for name in LEDGER}
    ledgered = np.array(columns["idx"], dtype=np.int64)[there]
    sizes = sizes_of(
        [record.features for record in result.attributions],
        [record.relevance.ravel().astype(np.float32) for record in result.attributions],
        [texts[record.item_id] for record in result.attributions],
    )
    return ShardSummary(
        attributions=len(result.attributions),
        mentions=len(result.mentions),
        scores=len(result.scores),
        lengths=_lengths(outcomes),
        raw_labels=_raw_labels(outcomes),
        sizes=sorted(Counter(map(bin_of, sizes.tolist())).items()),
        largest=float(sizes.max(initial=0.0)),
        margin=max((float(margin) for margin in margins if margin is not None), default=None),
        ledgers=_ledgers(outcomes, entries, ledgered, columns["logit"][there]),
        groups=_groups(result, rows["mention"]),
    )


def relative_gaps(entries: Mapping[str, Floats]) -> Floats:
    """(N,) as `Ledger.relative_gap`, of the entries by name."""
    gaps, magnitudes = np.abs(entries["gap"]), entries["magnitude"]
    return np.where(magnitudes == 0.0, gaps, gaps / np.where(magnitudes == 0.0, 1.0, magnitudes))


def relevance_sums(entries: Mapping[str, Floats], logits: Floats) -> RelevanceSums:
    """The relevance of all positions, special ones too, beside the logits (N,)."""
    return RelevanceSums.of(logits, entries["inputs"] + entries["special"])


def margin_of(outcome: ItemOutcome, places: Mapping[str, int]) -> float | None:
    """By how much the predicted class beats the labelled one, in logits; None: it is not wrong.

    `places` are the indices of the classes' logits; a class without one has no margin, which is 0.
    """
    if outcome.label is None or outcome.label == outcome.predicted:
        return None
    label, predicted = places.get(outcome.label), places.get(outcome.predicted)
    if label is None or predicted is None or not outcome.logits:
        return 0.0
    return outcome.logits[predicted] - outcome.logits[label]


def _lengths(outcomes: Sequence[ItemOutcome]) -> list[tuple[int, int, int, int, int]]:
    kinds = Counter(
        (
            outcome.positions,
            outcome.label is not None,
            outcome.label == outcome.predicted,
            outcome.truncated,
        )
        for outcome in outcomes
    )
    lengths: dict[int, list[int]] = {}
    for (positions, labelled, right, truncated), many in kinds.items():
        row = lengths.setdefault(int(positions), [0, 0, 0, 0])
        row[0] += many
        row[1] += many * labelled
        row[2] += many * (labelled and right)
        row[3] += many * bool(truncated)
    return [(length, *row) for length, row in sorted(lengths.items())]  # type: ignore[misc]


def _raw_labels(outcomes: Sequence[ItemOutcome]) -> list[tuple[str, str | None, int]]:
    counts = Counter(
        (outcome.raw_label, outcome.label) for outcome in outcomes if outcome.raw_label is not None
    )
    return [
        (escaped(raw), None if name is None else escaped(name), many)
        for (raw, name), many in counts.items()
    ]


def _ledgers(
    outcomes: Sequence[ItemOutcome], entries: Mapping[str, Floats], ledgered: Ints, logits: Floats
) -> LedgerSums | None:
    gaps = relative_gaps(entries)
    if not len(gaps):
        return None
    worst = int(gaps.argmax())  # the first among equals
    row = int(ledgered[worst])
    ids = {int(outcome.index): outcome.item_id for outcome in outcomes}
    return LedgerSums(
        count=len(gaps),
        worst=float(gaps[worst]),
        row=row,
        item=escaped(ids[row]),
        gaps=float(gaps.sum()),
        sums=[float(entries[name].sum()) for name in LEDGER],
        absolute=[float(np.abs(entries[name]).sum()) for name in LEDGER],
        relevance=relevance_sums(entries, logits),
    )


def _groups(result: ShardResult, mentions: Columns) -> list[tuple[str, bytes]]:
    rows: dict[str, set[int]] = {}
    for group, row in zip(mentions["group_name"], mentions["idx"], strict=True):
        rows.setdefault(group, set()).add(row)
    every = np.arange(result.shard.start, result.shard.stop)
    return [
        (escaped(group), np.packbits(np.isin(every, list(some))).tobytes())
        for group, some in rows.items()
    ]
