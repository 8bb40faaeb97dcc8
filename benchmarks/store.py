"""How fast results are stored: making their rows, committing them, and bytes an item.

    python -m benchmarks.store [--database URL] [--items N] [--shards N] [--positions N]

Each round saves one run's shards, then saves them again as a retry does (those of an earlier
attempt are there); printed are the medians over the rounds. Making the rows of a shard's records is
apart from committing them, which is the fenced transaction with its digest. Bytes are those by
which the database grows with the first run, indices among them. Without a database it measures
SQLite in a temporary file. On PostgreSQL the URL's database gets the tables and keeps the rows:
give an empty one and drop it afterwards.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from unittest import mock

import numpy as np
from sqlalchemy import update

from transexplain.store import results, runs, shards, upkeep
from transexplain.store.columns import Columns
from transexplain.store.database import Database
from transexplain.store.results import rows_of
from transexplain.store.revisions import open_database
from transexplain.store.schema import shard as shard_table
from transexplain.types.items import Attribution, ItemOutcome, Ledger, Mention
from transexplain.types.plans import AuditPlan, DatasetRef, ModelRef, Shard, ShardResult
from transexplain.types.scores import MethodSpec
from transexplain.types.tokens import Token, Tokens

CLASSES = ("negative", "positive")


def result_of(shard: Shard, positions: int, targets: int = 2) -> ShardResult:
    """One outcome, its attributions and one mention per row, of `positions` positions."""
    generator = np.random.default_rng(shard.index)
    plain = Tokens.of(
        [Token(text=f"word{n}", start=6 * n, end=6 * n + 5, word=n) for n in range(positions)]
    )
    sentence = " ".join(plain.texts)
    features = Tokens(
        starts=plain.starts,
        ends=plain.ends,
        words=plain.words,
        special=plain.special,
        pieces=plain.texts,
        text=sentence,
    )
    ledger = Ledger(
        inputs=0.5,
        special=0.25,
        embeddings=0.0,
        biases=0.125,
        rules=0.0,
        total=0.875,
        gap=1e-7,
        magnitude=2.0,
        biases_by_kind={"linear": 0.125},
        rules_by_kind={},
    )
    outcomes = tuple(
        ItemOutcome(
            item_id=f"item-{row}",
            index=row,
            label=CLASSES[row % 2],
            predicted=CLASSES[row % 2],
            logits=(0.5, -0.25),
            truncated=False,
            positions=positions,
            text=sentence,
        )
        for row in range(shard.start, shard.stop)
    )
    attributions = tuple(
        Attribution(
            item_id=outcome.item_id,
            method="lrp",
            target=f"class:{name}",
            rank=0,
            class_index=index,
            class_name=name,
            logit=outcome.logits[index],
            relevance=generator.normal(size=positions).astype(np.float32),
            unit="logits",
            at="encoder",
            features=features,
            ledger=ledger,
            text=outcome.text,
        )
        for outcome in outcomes
        for index, name in enumerate(CLASSES[:targets])
    )
    mentions = tuple(
        Mention(
            item_id=outcome.item_id,
            target="class:positive",
            rank=0,
            class_name="positive",
            group="names",
            entity="word3",
            surface="word3",
            start=18,
            end=23,
            relevance=0.25,
        )
        for outcome in outcomes
    )
    return ShardResult(
        shard=shard,
        outcomes=outcomes,
        attributions=attributions,
        failures=(),
        mentions=mentions,
        aggregate={"items": len(outcomes)},
        seconds=1.0,
    )


def plan_of(rows: int) -> AuditPlan:
    """A plan whose results have the shape of `result_of`."""
    return AuditPlan(
        name="benchmark",
        model=ModelRef(source="model", classes=CLASSES, digest="d" * 64),
        dataset=DatasetRef(
            source="x.csv", modality="text", snapshot="/s", fingerprint="f" * 64, rows=rows
        ),
        method=MethodSpec(name="lrp"),
        targets=("class:negative", "class:positive"),
    )


def build(made: Sequence[ShardResult]) -> tuple[float, list[dict[str, Columns]]]:
    """Seconds in `rows_of` for all shards, and what it gives."""
    begun = time.perf_counter()
    rows = [rows_of("", result) for result in made]
    return time.perf_counter() - begun, rows


def commit(
    db: Database, run_id: str, made: Sequence[ShardResult], rows: Sequence[Mapping[str, Columns]]
) -> float:
    """Seconds in `results.save` for every shard of the run, whose rows are made already."""
    seconds = 0.0
    for result, tables in zip(made, rows, strict=True):
        claim = shards.claim(db, run_id, "benchmark", 600.0, result.shard.index)
        assert claim is not None
        named = {
            name: {**columns, "run_id": [run_id] * len(columns["idx"])}
            for name, columns in tables.items()
        }
        with mock.patch.object(results, "rows_of", lambda *_, named=named: named):
            begun = time.perf_counter()
            results.save(db, claim, result)
            seconds += time.perf_counter() - begun
    return seconds


def reopen(db: Database, run_id: str) -> None:
    """Queue the saved shards again, so that the next save finds what an earlier attempt left."""
    with db.begin() as connection:
        connection.execute(
            update(shard_table).where(shard_table.c.run_id == run_id).values(state="queued")
        )


def measure(db: Database, options: argparse.Namespace) -> tuple[float, float, float, float]:
    """Median items/s of making rows, of committing them, and of committing over an earlier attempt;
    bytes an item.
    """
    pieces = [
        Shard(index=n, start=n * options.items, stop=(n + 1) * options.items)
        for n in range(options.shards)
    ]
    made = [result_of(piece, options.positions, options.targets) for piece in pieces]
    total = options.items * options.shards
    rates: list[tuple[float, float, float]] = []
    sizes: list[int] = []
    for _ in range(options.rounds):
        run_id = runs.create(db, plan_of(total), pieces)
        built, rows = build(made)
        before = upkeep.size(db)
        first = commit(db, run_id, made, rows)
        sizes.append(upkeep.size(db) - before)
        reopen(db, run_id)
        again = commit(db, run_id, made, rows)
        rates.append((total / built, total / first, total / again))
    built, first, again = (statistics.median(column) for column in zip(*rates, strict=True))
    return built, first, again, sizes[0] / total


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--database", help="URL of an empty database; default: SQLite in a file")
    parser.add_argument("--items", type=int, default=256, help="items of a shard")
    parser.add_argument("--shards", type=int, default=16, help="shards of a run")
    parser.add_argument("--positions", type=int, default=24)
    parser.add_argument("--targets", type=int, choices=(1, 2), default=2, help="of an item")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        url = options.database or f"sqlite:///{Path(folder) / 'store.db'}"
        with open_database(url, upgrade=True) as db:
            built, first, again, size = measure(db, options)
            name = db.engine.name
            print(f"making rows             {built:10,.0f} items/s")
            print(f"{name} commits      {first:10,.0f} items/s, {again:,.0f} on a retry")
            print(f"bytes an item           {size:10.1f}, its text among them")


if __name__ == "__main__":
    main()
