"""How fast results are stored: items/s of INSERT, COPY, and COPY into a temporary table + upsert.

    python -m benchmarks.store [--database URL] [--items N] [--shards N] [--positions N]

Each round saves one run's shards by every contender, in turning order, then saves them again as a
retry does (rows of an earlier attempt are there); printed are the medians over the rounds. Without
a database it measures SQLite in a temporary file. On PostgreSQL the URL's database gets the tables
and keeps the rows: give an empty one and drop it afterwards.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from sqlalchemy import Column, Connection, Table, insert, text, update

from transexplain.store import results, runs, shards
from transexplain.store.database import Database
from transexplain.store.results import write_rows
from transexplain.store.revisions import open_database
from transexplain.store.schema import shard as shard_table
from transexplain.types.items import Attribution, ItemOutcome, Ledger, Mention
from transexplain.types.plans import AuditPlan, DatasetRef, ModelRef, Shard, ShardResult
from transexplain.types.scores import MethodSpec
from transexplain.types.tokens import Token

Rows = Sequence[Mapping[str, Any]]
Write = Callable[[Connection, Table, Rows], None]
CLASSES = ("negative", "positive")


def by_insert(connection: Connection, table: Table, rows: Rows) -> None:
    """INSERT with many rows of parameters."""
    if rows:
        connection.execute(insert(table), list(rows))


def by_upsert(connection: Connection, table: Table, rows: Rows) -> None:
    """COPY into a temporary table, then INSERT ... SELECT ... ON CONFLICT DO UPDATE."""
    if not rows:
        return
    beside = Table(
        f"fresh_{table.name}",
        type(table.metadata)(),
        *(Column(c.name, c.type, primary_key=c.primary_key) for c in table.c),
    )
    connection.execute(
        text(f'CREATE TEMP TABLE "{beside.name}" (LIKE "{table.name}") ON COMMIT DROP')
    )
    write_rows(connection, beside, rows)
    names = [f'"{name}"' for name in rows[0]]
    keys = [f'"{column.name}"' for column in table.primary_key]
    changed = ", ".join(f"{name} = EXCLUDED.{name}" for name in names if name not in keys)
    connection.execute(
        text(
            f'INSERT INTO "{table.name}" ({", ".join(names)}) SELECT {", ".join(names)} '
            f'FROM "{beside.name}" ON CONFLICT ({", ".join(keys)}) DO UPDATE SET {changed}'
        )
    )


def result_of(shard: Shard, positions: int) -> ShardResult:
    """One outcome, two attributions and one mention per row, of `positions` positions."""
    generator = np.random.default_rng(shard.index)
    features = tuple(
        Token(text=f"word{n}", start=6 * n, end=6 * n + 5, word=n) for n in range(positions)
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
    sentence = " ".join(token.text for token in features)
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
        for index, name in enumerate(CLASSES)
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
        payload="float16",
    )


def save_all(db: Database, run_id: str, made: Sequence[ShardResult], write: Write) -> float:
    """Seconds in `results.save` for every shard of the run, written by `write`."""
    seconds = 0.0
    with mock.patch.object(results, "write_rows", write):
        for one in made:
            claim = shards.claim(db, run_id, "benchmark", 600.0, one.shard.index)
            assert claim is not None
            begun = time.perf_counter()
            results.save(db, claim, one)
            seconds += time.perf_counter() - begun
    return seconds


def reopen(db: Database, run_id: str) -> None:
    """Queue the saved shards again, so that the next save finds an earlier attempt's rows."""
    with db.begin() as connection:
        connection.execute(
            update(shard_table).where(shard_table.c.run_id == run_id).values(state="queued")
        )


def measure(db: Database, options: argparse.Namespace) -> dict[str, tuple[float, float]]:
    """Median items/s of each contender: saved for the first time, and over an earlier attempt."""
    contenders: dict[str, Write] = {"INSERT": by_insert}
    if db.engine.name == "postgresql":
        contenders |= {"COPY": write_rows, "COPY + upsert": by_upsert}
    pieces = [
        Shard(index=n, start=n * options.items, stop=(n + 1) * options.items)
        for n in range(options.shards)
    ]
    made = [result_of(piece, options.positions) for piece in pieces]
    total = options.items * options.shards
    rates: dict[str, list[tuple[float, float]]] = {name: [] for name in contenders}
    order = list(contenders)
    for turn in range(options.rounds):
        for name in order[turn % len(order) :] + order[: turn % len(order)]:
            run_id = runs.create(db, plan_of(total), pieces)
            first = save_all(db, run_id, made, contenders[name])
            reopen(db, run_id)
            again = save_all(db, run_id, made, contenders[name])
            rates[name].append((total / first, total / again))
    return {
        name: (statistics.median(a for a, _ in found), statistics.median(b for _, b in found))
        for name, found in rates.items()
    }


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--database", help="URL of an empty database; default: SQLite in a file")
    parser.add_argument("--items", type=int, default=500, help="items of a shard")
    parser.add_argument("--shards", type=int, default=4, help="shards of a run")
    parser.add_argument("--positions", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        url = options.database or f"sqlite:///{Path(folder) / 'store.db'}"
        with open_database(url, upgrade=True) as db:
            for name, (first, again) in measure(db, options).items():
                print(f"{db.engine.name} {name}: {first:,.0f} items/s, {again:,.0f} on a retry")


if __name__ == "__main__":
    main()
