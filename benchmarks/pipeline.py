"""What a run costs over the bare engine, and what two processes bring: items/s of four lanes.

    python -m benchmarks.pipeline [--rows N --shards N --repeats N] [--model DIR --data FILE]

- `bare loop`: the engine alone, one process, one thread; it reads the same snapshot and makes the
  same length-sorted batches, and has no store, no lease and no statistics;
- `local 1`, `local 2`: the local executor on SQLite, one and two processes of one thread;
- `fleet 2`: `transexplain worker --devices cpu:2 --threads 1` over Redis and PostgreSQL.

Rates are of the steady state: from each worker's first batch to its last commit, by the
database's clock. Start-up (imports, the broker) and loading (model, first items) stand apart.
Rounds are interleaved; ratios are medians of ratios within a round. Without a model it takes the
sentiment model and the SST-2 training sentences of the reference data beside the checkout (or of
`TRANSEXPLAIN_SHARED`).
"""

import argparse
import json
import os
import statistics
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from benchmarks import services
from benchmarks.pipeline_lanes import bare_loop, fleet, local
from benchmarks.pipeline_log import Measured, prepare_log
from orchestrator.plan import PreparedAudit, prepare_audit
from orchestrator.spec import load_spec
from transexplain.settings import Settings
from transexplain.store.database import Database
from transexplain.store.revisions import open_database

_BESIDE = Path(__file__).resolve().parents[2] / "shared"
SHARED = Path(os.environ.get("TRANSEXPLAIN_SHARED", _BESIDE)) / "real"
#: ratio -> (lane, lane it is divided by, aim)
RATIOS = {
    "local 1 to bare loop": ("local 1", "bare loop", 0.97),
    "local 2 to local 1": ("local 2", "local 1", 1.8),
    "fleet 2 to local 1": ("fleet 2", "local 1", 1.8),
    "fleet 2 to twice the bare loop": ("fleet 2", "bare loop", 1.9),
}

Lane = Callable[[], Measured]


def prepare(options: argparse.Namespace, folder: Path) -> PreparedAudit:
    """The audit, its shards and its loaded model."""
    overrides = {
        "model": options.model,
        "data.source": options.data,
        "data.limit": options.rows,
        "targets": [options.target],
        "groups": options.lexicon,
        "evaluation.items": 0,  # the bare loop measures no faithfulness either
        "shard_size": -(-options.rows // options.shards),
    }
    settings = Settings(database_url="sqlite:///unused", snapshot_dir=folder)
    return prepare_audit(load_spec(None, overrides), settings)


def lanes(
    prepared: PreparedAudit, folder: Path, stack: ExitStack, only: list[str]
) -> dict[str, Lane]:
    """What can be measured here, by name; says why something cannot."""
    plan, shards = prepared.plan, prepared.shards
    settings = Settings(database_url=f"sqlite:///{folder}/benchmark.db", snapshot_dir=folder)
    here = _opened(settings, stack)
    found: dict[str, Lane] = {
        "bare loop": lambda: _bare(prepared),
        "local 1": lambda: local(here, plan, shards, settings, 1),
        "local 2": lambda: local(here, plan, shards, settings, 2),
    }
    if "fleet 2" in only:
        try:
            served = replace(
                settings,
                database_url=stack.enter_context(services.own_database()),
                broker_url=services.REDIS,
                queue=stack.enter_context(services.own_queue()),
            )
        except services.MissingServerError as missing:
            print(f"fleet 2 is not measured: {missing}")
        else:
            there = _opened(served, stack)
            found["fleet 2"] = lambda: fleet(there, plan, shards, served, folder)
    return {name: lane for name, lane in found.items() if name in only}


def _opened(settings: Settings, stack: ExitStack) -> Database:
    db = stack.enter_context(open_database(settings.database_url, upgrade=True))
    prepare_log(db)
    return db


def _bare(prepared: PreparedAudit) -> Measured:
    seconds = bare_loop(prepared)
    items = prepared.plan.dataset.rows
    return Measured(
        rate=items / seconds,
        seconds=seconds,
        start=0.0,
        load=0.0,
        workers=1,
        shard_seconds=seconds / len(prepared.shards),
        items={"bare": items},
    )


def summary(rounds: list[dict[str, Measured]]) -> dict[str, Any]:
    """Medians over the rounds, and of the ratios within them."""
    names = list(rounds[0])
    lanes = {
        name: {
            field: statistics.median(getattr(one[name], field) for one in rounds)
            for field in ("rate", "seconds", "start", "load", "shard_seconds", "workers")
        }
        for name in names
    }
    ratios = {}
    for ratio, (above, below, aim) in RATIOS.items():
        if above in names and below in names:
            each = sorted(one[above].rate / one[below].rate for one in rounds)
            ratios[ratio] = {
                "median": statistics.median(each),
                "lowest": each[0],
                "highest": each[-1],
                "aim": aim,
            }
    return {"lanes": lanes, "ratios": ratios}


def reported(found: dict[str, Any]) -> Iterator[str]:
    """The lines to print."""
    yield f"{'':12}{'items/s':>9} {'seconds':>8} {'a shard':>8} {'start-up':>9} {'loading':>8}"
    for name, lane in found["lanes"].items():
        yield (
            f"{name:12}{lane['rate']:9.1f} {lane['seconds']:8.2f} {lane['shard_seconds']:8.2f} "
            f"{lane['start']:9.2f} {lane['load']:8.2f}"
        )
    for name, ratio in found["ratios"].items():
        met = "met" if ratio["median"] >= ratio["aim"] else "missed"
        yield (
            f"{name:32}{ratio['median']:6.3f}  ({ratio['lowest']:.3f} to {ratio['highest']:.3f}), "
            f"aim {ratio['aim']}: {met}"
        )


def main(words: list[str] | None = None) -> None:
    """Parse, measure, print."""
    options = _parsed(words)
    services.end_cleanly()
    torch.set_num_threads(1)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        prepared = prepare(options, folder)
        rows, cut = prepared.plan.dataset.rows, len(prepared.shards)
        found = lanes(prepared, folder, stack, options.lanes)
        if "bare loop" in found:
            bare_loop(replace(prepared, shards=prepared.shards[:1]))  # warm
        rounds = [{name: lane() for name, lane in found.items()} for _ in range(options.repeats)]
    figures = summary(rounds)
    print(
        f"{rows} items, {cut} shards, {options.repeats} interleaved rounds, {os.cpu_count()} cores"
    )
    for line in reported(figures):
        print(line)
    if options.json:
        kept = [{name: asdict(one) for name, one in each.items()} for each in rounds]
        Path(options.json).write_text(json.dumps({**figures, "rounds": kept}, indent=1))


def _parsed(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", default=str(SHARED / "models" / "minilm-sst2"))
    parser.add_argument("--data", default=str(SHARED / "text" / "sst2_train.tsv.gz"))
    parser.add_argument("--target", default="predicted")
    parser.add_argument("--lexicon")
    parser.add_argument("--rows", type=int, default=5_000)
    parser.add_argument("--shards", type=int, default=2, help="so many that each takes 10 s")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--lanes",
        nargs="+",
        default=["bare loop", "local 1", "local 2", "fleet 2"],
        help="which of them",
    )
    parser.add_argument("--json", help="also write the figures to this file")
    return parser.parse_args(words)


if __name__ == "__main__":
    main()
