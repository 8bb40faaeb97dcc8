"""What the pipeline costs over the bare engine: items/s of both on one dataset, and their ratio.

    python -m benchmarks.pipeline [--model DIR --data FILE] [--target T] [--repeats N]

Without a model it takes the sentiment model and the SST-2 dev sentences of the reference data
beside the checkout (or of `TRANSEXPLAIN_SHARED`).

The bare loop reads the same snapshot, makes the same length-sorted batches and explains them with
the same engine; it has no store, no lease, no statistics and no report. Runs are interleaved and
medians printed.
"""

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

from orchestrator.dispatch.local import run_here
from orchestrator.plan import Prepared, prepare_audit
from orchestrator.spec import load_spec
from transexplain.data.reader import read_shard
from transexplain.explaining import Request
from transexplain.methods import bound
from transexplain.methods.batching import token_batches
from transexplain.settings import Settings
from transexplain.store import runs
from transexplain.store.database import open_database
from transexplain.targets import resolve_target
from transexplain.types import Item, ItemFailure

_BESIDE = Path(__file__).resolve().parents[2] / "shared"
SHARED = Path(os.environ.get("TRANSEXPLAIN_SHARED", _BESIDE)) / "real"


def bare_loop(prepared: Prepared) -> float:
    """Seconds to explain every item without anything around the engine."""
    plan, model = prepared.plan, prepared.model
    request = Request.from_plan(plan)
    method = bound(plan.method)
    begun = time.perf_counter()
    for shard in prepared.shards:
        items = [one for one in read_shard(plan.dataset, shard) if isinstance(one, Item)]
        encoded = [e for e in model.encode(items) if not isinstance(e, ItemFailure)]
        for batch in token_batches([e.length for e in encoded], plan.batch_tokens):
            method(
                model,
                model.collate([encoded[index] for index in batch]),
                lambda logits: [
                    [
                        found
                        for target in request.targets
                        for found in resolve_target(target, row, model.classes, None)
                    ]
                    for row in logits
                ],
            )
    return time.perf_counter() - begun


def pipeline(prepared: Prepared, settings: Settings) -> float:
    """Seconds from a created run to its last shard's commit."""
    with open_database(settings.database_url, upgrade=True) as db:
        run_id = runs.create(db, prepared.plan, prepared.shards)
        begun = time.perf_counter()
        run_here(db, run_id, settings, model=prepared.model)
        return time.perf_counter() - begun


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", default=str(SHARED / "models" / "minilm-sst2"))
    parser.add_argument("--data", default=str(SHARED / "text" / "sst2_dev.tsv.gz"))
    parser.add_argument("--target", default="predicted")
    parser.add_argument("--lexicon")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(
            database_url=f"sqlite:///{folder}/benchmark.db", snapshot_dir=Path(folder)
        )
        overrides = {
            "model": options.model,
            "data": options.data,
            "targets": [options.target],
            "groups": options.lexicon,
            "evaluation.items": 0,  # the bare loop measures no faithfulness either
        }
        prepared = prepare_audit(load_spec(None, overrides), settings)
        items = prepared.plan.dataset.rows
        bare_loop(prepared)  # warm
        pairs = [
            (bare_loop(prepared), pipeline(prepared, settings)) for _ in range(options.repeats)
        ]
    bare = statistics.median(pair[0] for pair in pairs)
    whole = statistics.median(pair[1] for pair in pairs)
    ratio = statistics.median(pair[1] / pair[0] for pair in pairs)
    print(f"{items} items, {len(prepared.shards)} shards, {options.repeats} interleaved pairs")
    print(f"bare loop {items / bare:8.1f} items/s   ({bare:.2f} s)")
    print(f"run       {items / whole:8.1f} items/s   ({whole:.2f} s)")
    print(f"ratio of seconds, median of pairs: {ratio:.3f}")


if __name__ == "__main__":
    main()
