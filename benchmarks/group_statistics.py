"""What the group statistics cost: from the stored totals of every shard to the judged tables.

    python -m benchmarks.group_statistics [--mentions N] [--entities N] [--groups N] [--processes N]

A run is made up in a store of its own first: shards of 256 items with about ten mentions each,
entities as unequal as names are (a Zipf law), a label, a predicted class. Then a fresh process
reads the totals of its shards, merges them and makes all that a report says of groups, controls
included.
Aims for 10^7 mentions of 10^4 entities: under 60 s and 2 GB.
"""

import argparse
import json
import multiprocessing
import resource
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from transexplain.analysis.groups.entity_totals import Stratum
from transexplain.analysis.groups.shard_aggregate import ShardAggregate
from transexplain.data import shard_reader
from transexplain.randomness import generator
from transexplain.reports.report_section import merged
from transexplain.reports.sections.group_section import groups_of
from transexplain.store import results, runs
from transexplain.store import shards as claims
from transexplain.store.revisions import open_database
from transexplain.types.items import EntityGroup, ItemOutcome, Mention
from transexplain.types.plans import AuditPlan, DatasetRef, ModelRef, Shard, ShardResult
from transexplain.types.scores import MethodSpec

_ITEMS, _EACH = 256, 10  #: of a shard, and mentions of an item, about
_CLASSES = ("negative", "positive")


@dataclass(frozen=True, kw_only=True, slots=True)
class Corpus:
    """What is made up."""

    mentions: int
    entities: int
    groups: int
    folder: Path

    @property
    def shards(self) -> int:
        """As many as hold the mentions."""
        return -(-self.mentions // (_EACH * _ITEMS))

    @property
    def url(self) -> str:
        """Of the store."""
        return f"sqlite:///{self.folder / 'made-up.db'}"

    def group(self, entity: int) -> str:
        """Every group has its share of the frequent entities and of the rare ones."""
        return f"group-{entity % self.groups:02d}"


def make_totals(corpus: Corpus, part: int, parts: int) -> float:
    """Write the totals of every `parts`-th shard, one JSON line each; seconds spent adding up."""
    ranks = np.arange(1, corpus.entities + 1)
    chances = (1 / ranks) / (1 / ranks).sum()
    effects = generator("group statistics", "entities").normal(size=corpus.entities) * 0.3
    adding = 0.0
    with (corpus.folder / f"{part}.jsonl").open("w", encoding="utf-8") as file:
        for shard in range(part, corpus.shards, parts):
            random = generator("group statistics", shard)
            items = list(_items(corpus, random, chances, effects))
            begun, total = time.perf_counter(), ShardAggregate()
            for stratum, mentions in items:
                total.entities.add(stratum, mentions, 4.0)
            adding += time.perf_counter() - begun
            file.write(json.dumps(total.to_json()) + "\n")
    return adding


def _items(
    corpus: Corpus,
    random: np.random.Generator,
    chances: np.ndarray[tuple[int], np.dtype[np.float64]],
    effects: np.ndarray[tuple[int], np.dtype[np.float64]],
) -> Iterator[tuple[Stratum, list[Mention]]]:
    counts = random.integers(1, 2 * _EACH, size=_ITEMS)
    drawn = iter(random.choice(corpus.entities, size=int(counts.sum()), p=chances).tolist())
    noise = iter(random.normal(size=int(counts.sum())).tolist())
    answers = random.integers(2, size=(_ITEMS, 2)).tolist()
    for count, (answer, label) in zip(counts.tolist(), answers, strict=True):
        stratum = Stratum(
            "contrast:positive-negative", "positive", _CLASSES[answer], _CLASSES[label]
        )
        yield (
            stratum,
            [_mention(corpus, next(drawn), next(noise), effects) for _ in range(count)],
        )


def _mention(
    corpus: Corpus,
    entity: int,
    noise: float,
    effects: np.ndarray[tuple[int], np.dtype[np.float64]],
) -> Mention:
    return Mention(
        item_id="",
        target="contrast:positive-negative",
        rank=0,
        class_name="positive",
        group=corpus.group(entity),
        entity=f"entity-{entity:05d}",
        surface="",
        start=0,
        end=0,
        relevance=float(effects[entity]) + noise,
    )


def store(corpus: Corpus) -> str:
    """Save the totals as the shards of a run; its id."""
    names = sorted({corpus.group(entity) for entity in range(min(corpus.groups, corpus.entities))})
    rows = corpus.shards * _ITEMS
    plan = AuditPlan(
        name="made-up",
        model=ModelRef(source="made-up"),
        dataset=DatasetRef(source="", modality="text", snapshot="", fingerprint="", rows=rows),
        method=MethodSpec(name="lrp"),
        groups=tuple(EntityGroup(name=name, terms=()) for name in names),
        reference=names[0],
    )
    with open_database(corpus.url, upgrade=True) as db:
        run_id = runs.create(db, plan, shard_reader.make_shards(rows, _ITEMS))
        for aggregate in _lines(corpus.folder):
            claim = claims.claim(db, run_id, "benchmark", 600.0)
            assert claim is not None
            results.save(db, claim, _result(claim.shard, json.loads(aggregate)))
        runs.finalise(db, run_id)
    return run_id


def _lines(folder: Path) -> Iterator[str]:
    for path in sorted(folder.glob("*.jsonl")):
        with path.open(encoding="utf-8") as lines:
            yield from lines


def _result(shard: Shard, aggregate: dict[str, Any]) -> ShardResult:
    return ShardResult(
        shard=shard,
        outcomes=tuple(_outcome(index) for index in range(shard.start, shard.stop)),
        attributions=(),
        failures=(),
        mentions=(),
        aggregate=aggregate,
        seconds=0.0,
    )


def _outcome(index: int) -> ItemOutcome:
    return ItemOutcome(
        item_id=str(index),
        index=index,
        label="positive",
        predicted="positive",
        logits=(0.0, 1.0),
        truncated=False,
        positions=1,
        source="",
    )


def judge(corpus: Corpus, run_id: str) -> None:
    """Read, merge, judge, print."""
    before, begun, spent = _peak(), time.perf_counter(), time.process_time()
    with open_database(corpus.url) as db:
        total = merged(db, run_id)
        read = time.perf_counter()
        found = groups_of(db, runs.get(db, run_id), total)
    done = time.perf_counter()
    assert found is not None
    size = sum(map(len, _lines(corpus.folder)))
    mentions = sum(row.mentions for row in found.rows)
    print(f"{mentions:,} mentions of {corpus.entities:,} entities in {corpus.shards:,} shards")
    print(f"totals as JSON       {size / 2**20:8.0f} MiB")
    print(f"reading and merging  {read - begun:8.1f} s")
    print(f"tables and controls  {done - read:8.1f} s")
    print(f"together             {done - begun:8.1f} s   aim 60 s for 10^7 mentions")
    print(f"of it computing      {time.process_time() - spent:8.1f} s")
    print(f"highest memory       {_peak():8.0f} MiB   aim 2,048; {before:.0f} before it began")


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Parse, make up, judge in a fresh process."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--mentions", type=int, default=10_000_000)
    parser.add_argument("--entities", type=int, default=10_000)
    parser.add_argument("--groups", type=int, default=20)
    parser.add_argument("--processes", type=int, default=2, help="that make the shards up")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        corpus = Corpus(
            mentions=options.mentions,
            entities=options.entities,
            groups=options.groups,
            folder=Path(folder),
        )
        fresh = multiprocessing.get_context("spawn")
        with fresh.Pool(options.processes) as pool:
            parts = [(corpus, part, options.processes) for part in range(options.processes)]
            adding = sum(pool.starmap(make_totals, parts))
        print(f"adding up a mention  {1e6 * adding / options.mentions:8.1f} us")
        judging = fresh.Process(target=judge, args=(corpus, store(corpus)))
        judging.start()
        judging.join()
        raise SystemExit(judging.exitcode)


if __name__ == "__main__":
    main()
