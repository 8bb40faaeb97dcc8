"""The ways of explaining one dataset that the benchmark of the pipeline compares."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from benchmarks.pipeline_log import Measured, measured, wait_until_done
from orchestrator.dispatch import queue
from orchestrator.dispatch.local import run_processes
from orchestrator.plan import PreparedAudit
from transexplain.data.shard_reader import read_shard
from transexplain.explaining import Request
from transexplain.explaining.batch_sizes import token_batches
from transexplain.explaining.explain_request import read_together
from transexplain.methods import bound
from transexplain.settings import Settings
from transexplain.store import runs
from transexplain.store.database import Database
from transexplain.types.items import Item, ItemFailure
from transexplain.types.plans import AuditPlan, Shard
from transexplain.types.targets import resolve_target

ROOT = Path(__file__).resolve().parents[1]
#: seconds after which a run that does not end is given up
_PATIENCE = 3600.0


def bare_loop(prepared: PreparedAudit) -> float:
    """Seconds to explain every item without anything around the engine, in this process."""
    plan, model = prepared.plan, prepared.model
    request = Request.from_plan(plan)
    method = bound(plan.method)
    begun = time.perf_counter()
    for shard in prepared.shards:
        rows = (one for one in read_shard(plan.dataset, shard) if isinstance(one, Item))
        while items := list(islice(rows, read_together(model))):
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


def local(
    db: Database,
    plan: AuditPlan,
    shards: tuple[Shard, ...],
    settings: Settings,
    processes: int,
) -> Measured:
    """A run by the local executor's processes, one thread each."""
    run_id = runs.create(db, plan, shards)
    started = time.time()
    run_processes(db, run_id, settings, processes, threads=1)
    return measured(db, run_id, started)


def fleet(
    db: Database, plan: AuditPlan, shards: tuple[Shard, ...], settings: Settings, folder: Path
) -> Measured:
    """A run by `transexplain worker --devices cpu:2 --threads 1`, messages from the sweep."""
    run_id = runs.create(db, plan, shards)
    queue.top_up(db, settings)
    started = time.time()
    with workers(settings, folder, "--devices", "cpu:2", "--threads", "1"):
        wait_until_done(db, run_id, _PATIENCE)
    return measured(db, run_id, started)


@contextmanager
def workers(settings: Settings, folder: Path, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """`transexplain worker` with these options in a process of its own, ended afterwards."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "TRANSEXPLAIN_DATABASE_URL": settings.database_url,
        "TRANSEXPLAIN_BROKER_URL": settings.broker_url,
        "TRANSEXPLAIN_SNAPSHOT_DIR": str(settings.snapshot_dir),
        "TRANSEXPLAIN_QUEUE": settings.queue,
    }
    with (folder / "workers.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "orchestrator.cli", "worker", *words],
            env=environment,
            cwd=folder,
            stdout=log,
            stderr=log,
        )
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=120)
