"""What traces of shards cost: switched off, and sent to a receiver on this machine.

    python -m benchmarks.tracing [--rounds N] [--rows N] [--shard-size N]

A tiny model on a CPU, so that the rest of a shard takes as little as it can: on a model of anybody
the same calls are a smaller share. Rounds alternate between off and on; the figure is the median of
their ratios. What the calls take that are left when traces are off is measured alone.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import torch

from orchestrator.dispatch.local import run_here
from orchestrator.plan import PreparedAudit, prepare_audit
from orchestrator.spec import load_spec
from transexplain.extras.demo import text_model
from transexplain.settings import Settings
from transexplain.store import runs
from transexplain.store.database import Database
from transexplain.store.revisions import open_database
from transexplain.types.observer import Observer
from workers import tracing

_ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
_CALLS = 20_000


class _Takes(BaseHTTPRequestHandler):
    """Takes whatever spans come."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing."""


@contextmanager
def _receiver() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Takes)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def _switch(endpoint: str | None) -> None:
    """As a process would be that was started with this endpoint."""
    if (begun := tracing._tracing()) is not None:
        begun[0].shutdown()
    os.environ.pop(_ENDPOINT, None)
    if endpoint is not None:
        os.environ[_ENDPOINT] = endpoint
    tracing._tracing.cache_clear()


def _prepared(folder: Path, rows: int, shard_size: int) -> PreparedAudit:
    written = text_model.letters(rows, seed=0)
    model = text_model.train(written[:40], folder / "model", seed=0)
    data = folder / "texts.csv"
    data.write_text("text\n" + "".join(f'"{one.text}"\n' for one in written), encoding="utf-8")
    overrides = {
        "model": str(model),
        "data.source": str(data),
        "targets": ["predicted"],
        "evaluation.items": 0,
        "shard_size": shard_size,
    }
    return prepare_audit(load_spec(None, overrides), Settings(snapshot_dir=folder / "snapshots"))


def _seconds(db: Database, prepared: PreparedAudit) -> float:
    run_id = runs.create(db, prepared.plan, prepared.shards)
    begun = time.perf_counter()
    run_here(db, run_id, Settings(), model=prepared.model)
    return time.perf_counter() - begun


class _Silent:
    def batch_started(self, item_ids: object) -> None:
        """Nothing."""

    check_started = batch_started

    def item_done(self, *item_ids: str) -> None:
        """Nothing."""

    def should_stop(self) -> bool:
        return False


def _calls_of_a_shard(watch: Observer) -> None:
    """Every call that a shard of one part makes, as they are when traces are off."""
    with tracing.shard_trace() as trace:
        trace.ended("done")
        with tracing.span("load"):
            tracing.note(device="cpu")
        with tracing.span("read", items=1):
            pass
        with tracing.span("explain"), tracing.batches(watch):
            pass
        for name in ("finish", "commit"):
            with tracing.span(name):
                pass


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--rows", type=int, default=640)
    parser.add_argument("--shard-size", type=int, default=32)
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name, _receiver() as endpoint:
        folder = Path(name)
        prepared = _prepared(folder, options.rows, options.shard_size)
        with open_database(f"sqlite:///{folder / 'store.db'}", upgrade=True) as db:
            _seconds(db, prepared)  # warms up
            off, ratios = [], []
            for number in range(options.rounds):
                pair = {}
                for one in (None, endpoint) if number % 2 else (endpoint, None):
                    _switch(one)
                    pair[one] = _seconds(db, prepared)
                off.append(pair[None])
                ratios.append(pair[endpoint] / pair[None])
        _switch(None)
        watch = _Silent()
        begun = time.perf_counter()
        for _ in range(_CALLS):
            _calls_of_a_shard(watch)
        calls = (time.perf_counter() - begun) / _CALLS
    shard = statistics.median(off) / len(prepared.shards)
    print(f"{len(prepared.shards)} shards of {options.shard_size} texts, {options.rounds} rounds")
    print(f"off: {calls * 1e6:.1f} µs a shard, {calls / shard:.1e} of its {shard * 1e3:.1f} ms")
    spread = f"{min(ratios):.3f} to {max(ratios):.3f}"
    print(f"on: {statistics.median(ratios):.3f} times the time of off ({spread})")


if __name__ == "__main__":
    main()
