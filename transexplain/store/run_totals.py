"""Totals over a run that the database computes: one row per group, never per item."""

import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from math import fsum, inf
from operator import add, itemgetter
from typing import Any, NamedTuple

import numpy as np
from sqlalchemy import LargeBinary, func, select, type_coerce

from transexplain.store import parts
from transexplain.store.columns import read_json
from transexplain.store.database import Database
from transexplain.store.part_columns import decoded
from transexplain.store.part_reading import Key, Part
from transexplain.store.part_summary import relative_gaps
from transexplain.store.readers import iter_predictions
from transexplain.store.rows import LEDGER_ENTRIES
from transexplain.store.runs import ConservationSummary, require
from transexplain.store.schema import shard_aggregate
from transexplain.types.relevance_sums import RelevanceSums

_TOGETHER = 16  #: aggregates that are read at once: a few megabytes
_BEGINNING = 1024  #: bytes, packed: the version comes first
ALL = ""  #: stands for every item; no group is called so
_VERSION = re.compile(rb'\{"version":(\d+)')


def aggregates(db: Database, run_id: str) -> Iterator[dict[str, Any]]:
    """The aggregate of every saved shard, by shard index; a few are in memory, still packed.

    Raises ConfigurationError for an unknown run.
    """
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
        found = connection.execute(query).scalars().all()
    if len(found) != len(indices):
        raise KeyError(f"of {len(indices)} shards' aggregates {len(found)} are there")
    return [zlib.decompress(one) for one in found]


def aggregate_versions(db: Database, run_id: str) -> frozenset[int]:
    """The versions that saved aggregates say they are of; only their beginnings are read."""
    beginning = func.substr(type_coerce(shard_aggregate.c.payload, LargeBinary), 1, _BEGINNING)
    query = select(type_coerce(beginning, LargeBinary)).where(shard_aggregate.c.run_id == run_id)
    with db.read() as connection:
        packed = connection.execute(query).scalars().all()
    found = (_VERSION.match(zlib.decompressobj().decompress(one)) for one in packed)
    return frozenset(int(one[1]) for one in found if one)


def accuracy(db: Database, run_id: str) -> tuple[int, int] | None:
    """Items predicted as labelled, and items with a label; None where no item has one.

    Raises ConfigurationError for an unknown run.
    """
    found = list(by_positions(db, run_id))
    labelled = sum(known for _, _, known, _, _ in found)
    return (sum(right for _, _, _, right, _ in found), labelled) if labelled else None


def truncated(db: Database, run_id: str) -> int:
    """Items that were longer than the model reads; raises ConfigurationError for an unknown run."""
    return sum(cut for *_, cut in by_positions(db, run_id))


def by_positions(db: Database, run_id: str) -> Iterator[tuple[int, int, int, int, int]]:
    """Of explained items by their number of positions: (positions, items, labelled, right, cut).

    Shortest first, a row for each length. Raises ConfigurationError for an unknown run.
    """
    _check(db, run_id)
    found: dict[int, list[int]] = {}
    inside = (row for one in parts.summaries(db, run_id) for row in one.summary.lengths)
    for length, *counts in inside:
        found[length] = list(map(add, found.get(length, [0] * 4), counts))
    for length in sorted(found):
        many, known, right, cut = found[length]
        yield length, many, known, right, cut


def by_raw_label(db: Database, run_id: str) -> list[tuple[str, str | None, int]]:
    """Of explained items by their label in the dataset: (label, class or None, items).

    The most frequent first. Raises ConfigurationError for an unknown run.
    """
    _check(db, run_id)
    counts: Counter[tuple[str, str | None]] = Counter()
    for one in parts.summaries(db, run_id):
        for packed, known, many in one.summary.raw_labels:
            counts[decoded(packed) or "", decoded(known)] += many
    ordered = sorted(counts.items(), key=lambda one: (-one[1], one[0][0]))
    return [(raw, name, many) for (raw, name), many in ordered]


def other_predictions(
    db: Database, before: str, after: str, *, same_data: bool, generated: bool = False
) -> tuple[int, int]:
    """Items that both runs explained, and how many of them were predicted differently.

    Items are the same where their ids are and, unless both runs have the `same_data`, their
    stored texts, too. `generated`: texts end with answers that models generated; another answer is
    another prediction, and prompts without a stored answer do not count. Raises ConfigurationError
    for an unknown run.
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
    """How well the ledgers close, and how many do not to `tolerance`; None where there is none.

    Raises ConfigurationError for an unknown run.
    """
    _check(db, run_id)
    sums, open_parts = [], []
    for one in parts.summaries(db, run_id):
        if one.summary.ledgers is not None:
            sums.append(one.summary.ledgers)
            if tolerance is not None and one.summary.ledgers.worst > tolerance:
                open_parts.append(one.key)
    if not sums:
        return None
    above = sum(parts.read(db, run_id, lambda part: _above(part, tolerance), open_parts))
    worst = min(sums, key=lambda one: (-one.worst, one.row))
    count = sum(one.count for one in sums)
    return ConservationSummary(
        n=count,
        max_relative_gap=worst.worst,
        mean_relative_gap=fsum(one.gaps for one in sums) / count,
        above=above,
        worst_item=decoded(worst.item) or "",
        sums=_added([one.sums for one in sums]),
        absolute=_added([one.absolute for one in sums]),
    )


def relevance_sums(db: Database, run_id: str) -> RelevanceSums:
    """The relevance of all positions beside the logit, over all attributions with a ledger.

    Raises ConfigurationError for an unknown run.
    """
    _check(db, run_id)
    ledgers = [one.summary.ledgers for one in parts.summaries(db, run_id)]
    return RelevanceSums.merged([one.relevance for one in ledgers if one is not None])


def relevance_points(
    db: Database, run_id: str, ranges: Sequence[range]
) -> list[tuple[float, float]]:
    """(logit, relevance of all positions) of the attributions of these rows of the data.

    Only parts that may hold some are read. Raises ConfigurationError for an unknown run.
    """
    _check(db, run_id)
    found = []
    for rows in ranges:
        inside: list[tuple[int, float, float]] = []
        for some in parts.read(db, run_id, _points_of, rows=rows):
            inside += some
        found += sorted(one for one in inside if one[0] in rows)
    return [(logit, summed) for _, logit, summed in found]


def _points_of(part: Part) -> list[tuple[int, float, float]]:
    given = part.explained
    entries = given.ledger_entries()
    columns = (part.rows[given.of], given.logit, entries["inputs"] + entries["special"])
    return list(zip(*(one[given.ledgered].tolist() for one in columns), strict=True))


def _added(rows: Sequence[Sequence[float]]) -> dict[str, float]:
    return dict(zip(LEDGER_ENTRIES, map(fsum, zip(*rows, strict=True)), strict=True))


def _above(part: Part, tolerance: float | None) -> int:
    gaps = relative_gaps(part.explained.ledger_entries())[part.explained.ledgered]
    return int((gaps > (inf if tolerance is None else tolerance)).sum())


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


def mean_gaps(db: Database, run_id: str) -> dict[str, MeanOfItems]:
    """Mean relative gap of the ledgers, by group and over `ALL` items; no ledger: no entry.

    An item that mentions a group twice counts once. Raises ConfigurationError for an unknown run.
    """
    _check(db, run_id)
    found: list[tuple[str, int, int, float]] = []
    for one in parts.summaries(db, run_id):
        ledgers, groups = one.summary.ledgers, one.summary.groups
        if ledgers is not None:
            found.append((ALL, ledgers.items, ledgers.count, ledgers.gaps))
        found += [(g.name, g.with_ledger, g.ledgers, g.gaps) for g in groups]
    sums: dict[str, list[list[float]]] = {}
    for group, *row in found:
        sums.setdefault(group, []).append(row)
    added = {group: [fsum(one) for one in zip(*rows, strict=True)] for group, rows in sums.items()}
    return {
        group: MeanOfItems(int(items), gaps / count)
        for group, (items, count, gaps) in added.items()
        if items
    }


def mean_scores(db: Database, run_id: str, method: str) -> dict[tuple[str, str, str], MeanOfItems]:
    """(group or `ALL`, target, metric) -> mean of a method's scores over the measured items.

    Scores that could not be computed do not count. Raises ConfigurationError for an unknown run.
    """
    _check(db, run_id)
    found: dict[tuple[str, str, str], list[float]] = {}
    for held in parts.summaries(db, run_id):
        if not held.summary.scores:
            continue
        inside = {g.name: set(g.places(held.items).tolist()) for g in held.summary.groups}
        for scores in parts.read(db, run_id, lambda part: list(part.scores()), [held.key]):
            for place, one in scores:
                if one.method != method or one.value is None:
                    continue
                for group in (ALL, *(name for name, some in inside.items() if place in some)):
                    found.setdefault((group, one.target, one.metric), []).append(one.value)
    return {key: MeanOfItems(len(some), fsum(some) / len(some)) for key, some in found.items()}


def items_of(db: Database, run_id: str, groups: Sequence[str], most: int) -> list[str]:
    """Ids of items that mention any of these groups, in the order of the data.

    Of more than `most` those that lie as far apart as they can. Raises ConfigurationError for an
    unknown run.
    """
    _check(db, run_id)
    stretches: list[tuple[int, Key, list[int]]] = []
    for one in parts.summaries(db, run_id):
        named = [group for group in one.summary.groups if group.name in groups]
        if named:
            places = np.unique(np.concatenate([group.places(one.items) for group in named]))
            stretches.append((one.first, one.key, places.tolist()))
    return _ids_of(db, run_id, _spread(sorted(stretches, key=itemgetter(0)), most))


def _spread(stretches: Sequence[tuple[int, Key, list[int]]], most: int) -> dict[Key, list[int]]:
    """Of all places in the stretches at most `most`, as far apart as they can lie, by key."""
    total = sum(len(places) for *_, places in stretches)
    step = max(total / most, 1.0)
    wanted = [int(place * step) for place in range(min(total, most))]
    found: dict[Key, list[int]] = {}
    before = taken = 0
    for _, key, places in stretches:
        while taken < len(wanted) and wanted[taken] < before + len(places):
            found.setdefault(key, []).append(places[wanted[taken] - before])
            taken += 1
        before += len(places)
    return found


def _ids_of(db: Database, run_id: str, chosen: Mapping[Key, list[int]]) -> list[str]:
    """Ids, in the order of the data, of places in parts."""

    def named(part: Part) -> list[tuple[int, str]]:
        return [(int(part.rows[place]), part.ids[place]) for place in chosen[part.key]]

    found = [one for some in parts.read(db, run_id, named, chosen) for one in some]
    return [name for _, name in sorted(found)]


def _check(db: Database, run_id: str) -> None:
    with db.read() as connection:
        require(connection, run_id)
