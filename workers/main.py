"""Start one Celery worker: one process, one device, one task at a time."""

import signal
import threading
from dataclasses import dataclass
from types import FrameType

from celery import Celery
from celery.signals import worker_ready

from transexplain.errors import ConfigurationError, ModelLoadError
from transexplain.plans import Modality
from transexplain.settings import Settings
from transexplain.store.database import open_database
from workers import logs
from workers.app import MODALITIES, DeviceClass, device_class, make_app, queues_for
from workers.models import ModelCache
from workers.pipeline import Pipeline
from workers.refusals import Refusals
from workers.shard_work import Workbench, free_dead
from workers.tasks import register, told


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerOptions:
    """What one worker process is started with, besides the settings of the environment."""

    device: str | None = None  #: torch device; None: the plan's
    threads: int | None = None  #: of torch on the CPU; None: torch's own choice
    modalities: tuple[Modality, ...] = MODALITIES  #: whose shards it takes
    max_shards: int = 0  #: it ends after so many, to give memory back; 0: never
    neighbours: int = 1  #: processes that share this device's memory, this one among them
    log_format: logs.Format = "text"


def run_worker(
    settings: Settings, options: WorkerOptions | None = None, *, supervised: bool = False
) -> int:
    """Serve the queues until SIGTERM; returns the exit code.

    SIGTERM (and SIGINT, unless a supervisor passes it on as SIGTERM) finishes the batch, gives
    the shard's lease back and ends. A database at another revision is an InfrastructureError, a
    device that is not there a ConfigurationError, both before anything is claimed.
    """
    options = options or WorkerOptions()
    logs.configure(options.log_format)
    kind = _prepare_torch(options)
    with open_database(settings.database_url) as db:
        free_dead(db)  # what workers of this host left that were killed with their supervisor
        models = ModelCache(
            options.device, memory=settings.model_memory, neighbours=options.neighbours
        )
        bench = Workbench(db=db, settings=settings, models=models)
        with Refusals(db) as refusals:
            app = make_app(settings, refusals.note)
            with Pipeline(bench, told(app, bench)) as pipeline:
                register(app, pipeline, max_shards=options.max_shards)
                queues = queues_for(settings, kind, options.modalities)
                return _serve(app, bench, queues, supervised)


def _serve(app: Celery, bench: Workbench, queues: list[str], supervised: bool) -> int:
    worker = app.Worker(
        pool="solo",
        hostname=f"{bench.name}@%h",
        queues=queues,
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
        loglevel="INFO",
    )

    def ready(**_: object) -> None:
        # Celery installs its own handlers while it starts; ours go around them
        _stop_between_batches(bench.stop, signal.SIGTERM)
        if supervised:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        else:
            _stop_between_batches(bench.stop, signal.SIGINT)

    with logs.fields(worker=bench.name):
        worker_ready.connect(ready)
        try:
            worker.start()
        finally:
            worker_ready.disconnect(ready)
    return int(worker.exitcode or 0)


def _prepare_torch(options: WorkerOptions) -> DeviceClass:
    """Set the threads; the class of the device, which has to be there."""
    import torch

    from transexplain.models.placement import torch_device

    if options.threads is not None:
        torch.set_num_threads(options.threads)
    if options.device is None:
        return "gpu" if torch.accelerator.is_available() else "cpu"
    try:
        torch_device(options.device)
    except ModelLoadError as error:
        raise ConfigurationError(f"worker: {error}") from error
    return device_class(options.device)


def _stop_between_batches(stop: threading.Event, number: signal.Signals) -> None:
    """On this signal, first ask the work in hand to stop, then let Celery shut down."""
    previous = signal.getsignal(number)

    def handler(received: int, frame: FrameType | None) -> None:
        stop.set()
        if callable(previous):
            previous(received, frame)

    signal.signal(number, handler)
