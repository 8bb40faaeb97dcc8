"""Start one Celery worker: one process, one device, one task at a time."""

import logging
import signal
from types import FrameType

from celery.signals import worker_ready

from transexplain.settings import Settings
from transexplain.store.database import open_database
from workers.app import make_app
from workers.models import ModelCache
from workers.shard_work import Workbench
from workers.tasks import register


def run_worker(settings: Settings, *, device: str | None = None, threads: int | None = None) -> int:
    """Serve the queue until SIGTERM; returns the exit code.

    SIGTERM finishes the batch, gives the shard's lease back and ends. A database at another
    revision or an unreachable broker is an InfrastructureError before anything is claimed.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    if threads is not None:
        import torch

        torch.set_num_threads(threads)
    with open_database(settings.database_url) as db:
        bench = Workbench(db=db, settings=settings, models=ModelCache(device))
        app = make_app(settings)
        register(app, bench)
        worker = app.Worker(
            pool="solo",
            hostname=f"{bench.name}@%h",
            queues=[settings.queue],
            without_gossip=True,
            without_mingle=True,
            without_heartbeat=True,
            loglevel="INFO",
        )
        # Celery installs its own handlers while it starts; ours goes around them
        worker_ready.connect(lambda **_: _stop_between_batches(bench), weak=False)
        worker.start()
        return int(worker.exitcode or 0)


def _stop_between_batches(bench: Workbench) -> None:
    """On SIGTERM, first ask the work in hand to stop, then let Celery shut down."""
    previous = signal.getsignal(signal.SIGTERM)

    def handler(number: int, frame: FrameType | None) -> None:
        bench.stop.set()
        if callable(previous):
            previous(number, frame)

    signal.signal(signal.SIGTERM, handler)
