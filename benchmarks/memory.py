"""Whether a worker's memory grows: its resident size while one process explains very many items.

    python -m benchmarks.memory [--rows N --shard-size N] [--executor local|fleet] [--tiny]

Short texts, each with an id of its own, go through one real worker process: the local executor's
child on SQLite, or `transexplain worker` over Redis and PostgreSQL. Its resident size (`VmRSS`,
Linux) is read from outside whenever a shard has been saved. The aim: after the first tenth of the
items it grows by less than 5 %. Without a model it takes the sentiment model and phrases of SST-2
from the reference data; `--tiny` makes a small model on the spot and needs none.
"""

import argparse
import gzip
import json
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sqlalchemy import func, select

from benchmarks import services
from benchmarks.pipeline import SHARED
from benchmarks.pipeline_lanes import workers
from orchestrator.dispatch import queue
from orchestrator.dispatch.local import run_processes
from orchestrator.plan import PreparedAudit, prepare_audit
from orchestrator.spec import load_spec
from transexplain.extras.demo import text_model
from transexplain.extras.demo.text_model import train
from transexplain.settings import Settings
from transexplain.store import runs
from transexplain.store.database import Database
from transexplain.store.revisions import open_database
from transexplain.store.schema import shard

AIM = 0.05  #: growth after the first tenth
_WORDS = 6  #: phrases of at most so many
_POLL = 0.1

Sample = tuple[int, int]  #: items saved so far, resident bytes


def main(words: list[str] | None = None) -> None:
    """Parse, measure, print."""
    options = _parsed(words)
    services.end_cleanly()
    torch.set_num_threads(1)
    try:
        found = measure(options)
    except services.MissingServerError as missing:
        raise SystemExit(f"not measured: {missing}") from missing
    for line in reported(found):
        print(line)
    if options.json:
        Path(options.json).write_text(json.dumps(found, indent=1), encoding="utf-8")


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """One run through one process, and what its size did. Raises services.MissingServerError."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        settings = Settings(database_url=f"sqlite:///{folder}/memory.db", snapshot_dir=folder)
        if options.executor == "fleet":
            settings = replace(
                settings,
                database_url=stack.enter_context(services.own_database()),
                broker_url=services.REDIS,
                queue=stack.enter_context(services.own_queue()),
            )
        prepared = _prepared(options, folder, settings)
        db = stack.enter_context(open_database(settings.database_url, upgrade=True))
        run_id = runs.create(db, prepared.plan, prepared.shards)
        begun = time.perf_counter()
        samples = _worked(db, run_id, settings, folder, options.executor)
        return summary(samples, options.rows, time.perf_counter() - begun)


def _prepared(options: argparse.Namespace, folder: Path, settings: Settings) -> PreparedAudit:
    data, model = folder / "short.tsv", options.model
    if options.tiny:
        written = text_model.letters(20, seed=0)
        model = train(written, folder / "tiny", seed=0)
        texts = [" ".join(one.text.split()[:_WORDS]) for one in written]
    else:
        with gzip.open(options.data, "rt", encoding="utf-8") as lines:
            texts = [line.rstrip("\n").split("\t")[1] for line in islice(lines, 1, None)]
        texts = [text for text in texts if len(text.split()) <= _WORDS]
    with data.open("w", encoding="utf-8") as file:
        file.write("id\ttext\n")
        for number, text in enumerate(islice(cycle(texts), options.rows)):
            file.write(f"row-{number}\t{text}\n")
    overrides = {
        "model": str(model),
        "data.source": str(data),
        "data.id": "id",
        "targets": ["predicted"],
        "evaluation.items": 0,
        "shard_size": options.shard_size,
    }
    return prepare_audit(load_spec(None, overrides), settings)


def _worked(
    db: Database, run_id: str, settings: Settings, folder: Path, executor: str
) -> list[Sample]:
    samples: list[Sample] = []
    if executor == "fleet":
        queue.top_up(db, settings)
        with workers(settings, folder, "--device", "cpu", "--threads", "1"):
            _watch(db, run_id, settings, samples)
        return samples
    # children must be started by the main thread; the watch is the one that steps aside
    watch = threading.Thread(target=_watch, args=(db, run_id, settings, samples), daemon=True)
    watch.start()
    run_processes(db, run_id, settings, 1, threads=1)
    watch.join()
    return samples


def _watch(db: Database, run_id: str, settings: Settings, samples: list[Sample]) -> None:
    """Add a sample after each shard, until the run is over."""
    query = select(func.sum(shard.c.explained + shard.c.failed), func.max(shard.c.worker)).where(
        shard.c.run_id == run_id
    )
    seen, swept = 0, time.monotonic()
    while seen < runs.progress(db, run_id).items_total:
        time.sleep(_POLL)
        with db.read() as connection:
            items, worker = connection.execute(query).one()
        if worker and items > seen:
            seen = int(items)
            samples.append((seen, resident(int(worker.split(":")[-2]))))
        if settings.broker_url and time.monotonic() - swept > queue.EVERY and len(samples) > 0:
            swept = time.monotonic()
            _sweep(db, settings)


def _sweep(db: Database, settings: Settings) -> None:
    if settings.queue != Settings().queue:  # a queue of our own: a fleet
        queue.sweep(db, settings)


def resident(pid: int) -> int:
    """Bytes of a process's resident set (Linux); 0 where it has just ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except FileNotFoundError:
        return 0
    sizes = [int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:")]
    return sizes[0] if sizes else 0


def summary(samples: list[Sample], rows: int, seconds: float) -> dict[str, Any]:
    """Sizes after the first tenth, at the end and the highest; the slope of all after the tenth."""
    alive = [(items, size) for items, size in samples if size]
    later = [(items, size) for items, size in alive if items >= rows / 10]
    tenth, end = later[0][1], later[-1][1]
    slope = np.polyfit(*np.array(later, dtype=float).T, 1)[0] if len(later) > 2 else float("nan")
    return {
        "rows": rows,
        "seconds": seconds,
        "shards_sampled": len(alive),
        "tenth": tenth,
        "end": end,
        "highest": max(size for _, size in alive),
        "growth": end / tenth - 1,
        "bytes_per_item": float(slope),
        "samples": alive,
    }


def reported(found: dict[str, Any]) -> Iterator[str]:
    """The lines to print."""
    mega = {name: found[name] / 2**20 for name in ("tenth", "end", "highest")}
    met = "met" if found["growth"] < AIM else "missed"
    yield (
        f"{found['rows']} items in {found['seconds']:.0f} s, "
        f"{found['shards_sampled']} samples of the resident size"
    )
    yield (
        f"after the first tenth {mega['tenth']:.1f} MiB, at the end {mega['end']:.1f} MiB, "
        f"highest {mega['highest']:.1f} MiB"
    )
    yield f"growth {found['growth']:+.2%}, aim below {AIM:.0%}: {met}"
    yield f"slope after the first tenth: {found['bytes_per_item']:.1f} bytes an item"


def _parsed(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--shard-size", type=int, default=1_000)
    parser.add_argument("--executor", choices=("local", "fleet"), default="local")
    parser.add_argument("--model", default=str(SHARED / "models" / "minilm-sst2"))
    parser.add_argument("--data", default=str(SHARED / "text" / "sst2_train.tsv.gz"))
    parser.add_argument("--tiny", action="store_true", help="a small model made on the spot")
    parser.add_argument("--json", help="also write the figures to this file")
    return parser.parse_args(words)


if __name__ == "__main__":
    main()
