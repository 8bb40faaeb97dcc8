"""What the group statistics cost: from the stored totals of every shard to the judged tables.

    python -m benchmarks.group_statistics [--mentions N] [--entities N] [--groups N] [--processes N]

Shards as large as a run's are made up first: items with one to three mentions, entities as unequal
as names are (a Zipf law), a label, a predicted class. Then one process reads them, merges them and
makes all that a report says of groups, controls included. Aims for 10^7 mentions of 10^4 entities:
under 60 s and 2 GB.
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

import numpy as np

from transexplain.bias.aggregates import ShardAggregate
from transexplain.bias.entity_totals import Stratum
from transexplain.bias.sampling import generator
from transexplain.evaluations import MethodSpec
from transexplain.plans import AuditPlan, AuditRun, DatasetRef, ModelRef
from transexplain.reports.tallies import groups_of
from transexplain.store.database import open_database
from transexplain.types import EntityGroup, Mention

_ITEMS = 256  #: of a shard
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
        """As many as hold the mentions, two to an item."""
        return -(-self.mentions // (2 * _ITEMS))

    def group(self, entity: int) -> str:
        """Every group has its share of the frequent entities and of the rare ones."""
        return f"group-{entity % self.groups:02d}"


def make_shards(corpus: Corpus, part: int, parts: int) -> float:
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
    counts = random.integers(1, 4, size=_ITEMS)
    drawn = iter(random.choice(corpus.entities, size=int(counts.sum()), p=chances).tolist())
    noise = iter(random.normal(size=int(counts.sum())).tolist())
    answers = random.integers(2, size=(_ITEMS, 2)).tolist()
    for count, (said, label) in zip(counts.tolist(), answers, strict=True):
        stratum = Stratum("contrast:positive-negative", "positive", _CLASSES[said], _CLASSES[label])
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


def judge(corpus: Corpus) -> None:
    """Read, merge, judge, print."""
    begun, total = time.perf_counter(), ShardAggregate()
    for path in sorted(corpus.folder.glob("*.jsonl")):
        with path.open(encoding="utf-8") as lines:
            for line in lines:
                total.merge(ShardAggregate.from_json(json.loads(line)))
    merged = time.perf_counter()
    with open_database(f"sqlite:///{corpus.folder / 'empty.db'}", upgrade=True) as db:
        found = groups_of(db, _run(corpus), total)
    done = time.perf_counter()
    assert found is not None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    size = sum(path.stat().st_size for path in corpus.folder.glob("*.jsonl"))
    mentions = sum(row.mentions for row in found.rows)
    print(f"{mentions:,} mentions of {corpus.entities:,} entities in {corpus.shards:,} shards")
    print(f"totals as JSON       {size / 2**20:8.0f} MiB")
    print(f"reading and merging  {merged - begun:8.1f} s")
    print(f"tables and controls  {done - merged:8.1f} s")
    print(f"together             {done - begun:8.1f} s   aim 60 s for 10^7 mentions")
    print(f"highest memory       {peak:8.0f} MiB   aim 2,048 MiB")


def _run(corpus: Corpus) -> AuditRun:
    names = sorted({corpus.group(entity) for entity in range(min(corpus.groups, corpus.entities))})
    plan = AuditPlan(
        name="made-up",
        model=ModelRef(source="made-up"),
        dataset=DatasetRef(source="", modality="text", snapshot="", fingerprint="", rows=1),
        method=MethodSpec(name="lrp"),
        groups=tuple(EntityGroup(name=name, terms=()) for name in names),
        reference=names[0],
    )
    return AuditRun(id="made-up", plan=plan, state="done", created=0.0, finished=0.0, shards={})


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
            adding = sum(pool.starmap(make_shards, parts))
        print(f"adding up a mention  {1e6 * adding / options.mentions:8.1f} us")
        judging = fresh.Process(target=judge, args=(corpus,))
        judging.start()
        judging.join()
        raise SystemExit(judging.exitcode)


if __name__ == "__main__":
    main()
