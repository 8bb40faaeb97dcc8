"""Totals over a run, of the summaries of its shards, so that most reports read no row of items.

A summary is what totals need of a shard, a few bytes an item. Every function raises
ConfigurationError for an unknown run.
"""

import re
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from math import fsum
from operator import add
from typing import Any, NamedTuple

import msgspec
import numpy as np
from sqlalchemy import LargeBinary, Row, func, select, type_coerce

from transexplain.errors import DamagedRowError
from transexplain.store import blocks
from transexplain.store.blocks import Block
from transexplain.store.columns import Columns, Floats, Ints, escaped, read_json, unescaped
from transexplain.store.database import Database
from transexplain.store.readers import iter_predictions
from transexplain.store.runs import ConservationSummary, require
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

    Raises ConfigurationError for an unknown run; DamagedRowError for a damaged summary, or passes
    it over, see `blocks.sparing`.
    """
    held = _HELD.get()
    rows = None if held is None else held.get((db, run_id))
    if rows is None:
        rows = _stored(db, run_id)
        if held is not None:
            held[db, run_id] = rows
    return _decoded(run_id, rows)


def _decoded(run_id: str, rows: Iterable[Row[Any]]) -> Iterator[Summarised]:
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
        require(connection, run_id)
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
        relevance=RelevanceSums.of(logits, entries["inputs"] + entries["special"]),
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


_TOGETHER = 16  #: aggregates that are read at once: a few megabytes
_BEGINNING = 1024  #: bytes, packed: the version comes first
ALL = ""  #: stands for every item; no group is called so
_VERSION = re.compile(rb'\{"version":(\d+)')


def aggregates(db: Database, run_id: str) -> Iterator[dict[str, Any]]:
    """The aggregate of every saved shard, by shard index; a few are in memory, still packed."""
    saved = select(shard_aggregate.c.shard).where(shard_aggregate.c.run_id == run_id)
    with db.read() as connection:
        require(connection, run_id)
        indices = sorted(connection.execute(saved).scalars())
    blocks = [indices[at : at + _TOGETHER] for at in range(0, len(indices), _TOGETHER)]
    return _ahead(lambda block: _unpacked(db, run_id, block), blocks)


def _ahead(
    read: Callable[[list[int]], list[bytes]], blocks: Iterable[list[int]]
) -> Iterator[dict[str, Any]]:
    """The documents of all blocks; the next one is read and unpacked while these are looked at."""
    with ThreadPoolExecutor(1, thread_name_prefix="aggregates") as reader:
        coming: Future[list[bytes]] | None = None
        for block in (*blocks, None):
            here, coming = coming, None if block is None else reader.submit(read, block)
            if here is not None:
                yield from map(read_json, here.result())


def _unpacked(db: Database, run_id: str, indices: list[int]) -> list[bytes]:
    """The aggregates of these shards as JSON; raises KeyError where one is gone meanwhile."""
    packed = type_coerce(shard_aggregate.c.payload, LargeBinary)
    query = (
        select(packed)
        .where(shard_aggregate.c.run_id == run_id, shard_aggregate.c.shard.in_(indices))
        .order_by(shard_aggregate.c.shard)
    )
    with db.read() as connection:
        blobs = connection.execute(query).scalars().all()
    if len(blobs) != len(indices):
        raise KeyError(f"of {len(indices)} shards' aggregates {len(blobs)} are there")
    return [zlib.decompress(blob) for blob in blobs]


def aggregate_versions(db: Database, run_id: str) -> frozenset[int]:
    """The versions that saved aggregates say they are of; only their beginnings are read."""
    beginning = func.substr(type_coerce(shard_aggregate.c.payload, LargeBinary), 1, _BEGINNING)
    query = select(type_coerce(beginning, LargeBinary)).where(shard_aggregate.c.run_id == run_id)
    with db.read() as connection:
        packed = connection.execute(query).scalars().all()
    versions = (_VERSION.match(zlib.decompressobj().decompress(blob)) for blob in packed)
    return frozenset(int(match[1]) for match in versions if match)


def accuracy(db: Database, run_id: str) -> tuple[int, int] | None:
    """Items predicted as labelled, and items with a label; None where no item has one."""
    totals = list(by_positions(db, run_id))
    labelled = sum(known for _, _, known, _, _ in totals)
    return (sum(right for _, _, _, right, _ in totals), labelled) if labelled else None


def truncated(db: Database, run_id: str) -> int:
    """Items that were longer than the model reads."""
    return sum(cut for *_, cut in by_positions(db, run_id))


def by_positions(db: Database, run_id: str) -> Iterator[tuple[int, int, int, int, int]]:
    """Of explained items by their number of positions: (positions, items, labelled, right, cut).

    Shortest first, a row for each length.
    """
    by_length: dict[int, list[int]] = {}
    inside = (row for each in summaries(db, run_id) for row in each.summary.lengths)
    for length, *counts in inside:
        by_length[length] = list(map(add, by_length.get(length, [0] * 4), counts))
    for length in sorted(by_length):
        many, known, right, cut = by_length[length]
        yield length, many, known, right, cut


def by_raw_label(db: Database, run_id: str) -> list[tuple[str, str | None, int]]:
    """Of explained items by their label in the dataset: (label, class or None, items).

    The most frequent first.
    """
    counts: Counter[tuple[str, str | None]] = Counter()
    for each in summaries(db, run_id):
        for raw, name, many in each.summary.raw_labels:
            counts[unescaped(raw), None if name is None else unescaped(name)] += many
    ordered = sorted(counts.items(), key=lambda count: (-count[1], count[0][0]))
    return [(raw, name, many) for (raw, name), many in ordered]


def other_predictions(
    db: Database, before: str, after: str, *, same_data: bool, generated: bool = False
) -> tuple[int, int]:
    """Items that both runs explained, and how many of them were predicted differently.

    Items are the same where their ids are and, unless both runs have the `same_data`, their
    stored texts, too. `generated`: texts end with answers that models generated; another answer is
    another prediction, and prompts without a stored answer do not count.
    """
    common = other = 0
    for (was, texts_before), (now, texts) in iter_predictions(db, before, after):
        stored = bool(texts and texts_before)
        if generated:
            same = stored and (same_data or texts[0] == texts_before[0])
        else:
            same = same_data or (stored and texts == texts_before)
        common += same
        other += same and (was != now or (generated and texts_before != texts))
    return common, other


def conservation(
    db: Database, run_id: str, tolerance: float | None = None
) -> ConservationSummary | None:
    """How well the ledgers close, and how many do not to `tolerance`; None where there is none."""
    sums, above = [], 0
    for each in summaries(db, run_id):
        if each.summary.ledgers is not None:
            sums.append(each.summary.ledgers)
            if tolerance is not None and each.summary.ledgers.worst > tolerance:
                rows = blocks.rows_of_shard(db, run_id, each.shard)
                above += sum(blocks.read(db, run_id, partial(_above, tolerance), rows))
    if not sums:
        return None
    worst = min(sums, key=lambda total: (-total.worst, total.row))
    count = sum(total.count for total in sums)
    return ConservationSummary(
        n=count,
        max_relative_gap=worst.worst,
        mean_relative_gap=fsum(total.gaps for total in sums) / count,
        above=above,
        worst_item=unescaped(worst.item),
        sums=_added([total.sums for total in sums]),
        absolute=_added([total.absolute for total in sums]),
    )


def relevance_sums(db: Database, run_id: str) -> RelevanceSums:
    """The relevance of all positions beside the logit, over all attributions with a ledger."""
    ledgers = [each.summary.ledgers for each in summaries(db, run_id)]
    return RelevanceSums.merged([ledger.relevance for ledger in ledgers if ledger is not None])


def relevance_points(
    db: Database, run_id: str, ranges: Sequence[range]
) -> list[tuple[float, float]]:
    """(logit, relevance of all positions) of the attributions of these rows of the data."""
    points = []
    for rows in ranges:
        inside: list[tuple[int, float, float]] = []
        for some in blocks.read(db, run_id, _points_of, rows):
            inside += some
        points += sorted(inside)
    return [(logit, summed) for _, logit, summed in points]


def _points_of(block: Block) -> list[tuple[int, float, float]]:
    explained = block.explained
    entries = explained.ledger_entries()
    summed = entries["inputs"] + entries["special"]
    columns = (block.rows[explained.of], explained.columns["logit"], summed)
    return list(zip(*(column[explained.ledgered].tolist() for column in columns), strict=True))


def _added(rows: Sequence[Sequence[float]]) -> dict[str, float]:
    return dict(zip(LEDGER, map(fsum, zip(*rows, strict=True)), strict=True))


def _above(tolerance: float, block: Block) -> int:
    explained = block.explained
    gaps = relative_gaps(explained.ledger_entries())[explained.ledgered]
    return int((gaps > tolerance).sum())


def aggregate(db: Database, run_id: str, index: int) -> dict[str, Any]:
    """The aggregate of one shard; raises KeyError where there is none."""
    query = select(shard_aggregate.c.payload).where(
        shard_aggregate.c.run_id == run_id, shard_aggregate.c.shard == index
    )
    with db.read() as connection:
        payload: dict[str, Any] | None = connection.execute(query).scalar_one_or_none()
    if payload is None:
        raise KeyError(f"shard {index} has no aggregate")
    return payload


class MeanOfItems(NamedTuple):
    """A mean, and how many different items it is of."""

    items: int
    mean: float


def mean_scores(db: Database, run_id: str, method: str) -> dict[tuple[str, str, str], MeanOfItems]:
    """(group or `ALL`, target, metric) -> mean of a method's scores over the measured items.

    Scores that could not be computed do not count.
    """
    values: dict[tuple[str, str, str], list[float]] = {}
    for scores in blocks.read(db, run_id, partial(_grouped_scores, method)):
        for key, value in scores:
            values.setdefault(key, []).append(value)
    return {key: MeanOfItems(len(some), fsum(some) / len(some)) for key, some in values.items()}


def _grouped_scores(method: str, block: Block) -> list[tuple[tuple[str, str, str], float]]:
    """((group or `ALL`, target, metric), value) of a method's scores in a block."""
    scores = list(block.scores())
    groups: dict[int, set[str]] = {}
    columns, of = block.table("mention") if scores else ({"group_name": []}, np.zeros(0))
    for place, group in zip(of.tolist(), columns["group_name"], strict=True):
        groups.setdefault(place, set()).add(group)
    return [
        ((group, score.target, score.metric), score.value)
        for place, score in scores
        if score.method == method and score.value is not None
        for group in (ALL, *sorted(groups.get(place, ())))
    ]


def items_of(db: Database, run_id: str, groups: Collection[str], most: int) -> list[str]:
    """Ids of items that mention any of these groups, in the order of the data.

    Of more than `most` those that lie as far apart as they can.
    """
    shards = [(each.start, each.summary.mentioning(groups)) for each in summaries(db, run_id)]
    step = max(sum(len(places) for _, places in shards) / most, 1.0)
    rows: list[int] = []
    before = 0
    for start, places in shards:
        # of all that mention them, number int(n * step) for n = 0, 1, 2, ...
        while len(rows) < most and int(len(rows) * step) < before + len(places):
            rows.append(start + int(places[int(len(rows) * step) - before]))
        before += len(places)
    ids = blocks.read(db, run_id, lambda block: block.ids, rows)
    return [item_id for some in ids for item_id in some]
