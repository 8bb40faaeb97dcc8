"""A Celery worker for one device, with a pool whose tasks are threads.

Celery's main thread stays free, so that `inspect`, `revoke`, `rate_limit`, events and heartbeats
work while a shard is computed; its `solo` pool would answer between two shards. The worker
holds one message, and one more for each shard whose computation has ended or is about to end, see
`Device.room`.

With `--until-idle` it ends once nothing waits that it could do, for batch systems and machines paid
by time. A run that is paused, or that has as many claimed shards as it may have, does not wait. Nor
does a run whose last shards others hold: a lost shard comes back within a lease, for a worker that
lingers.
"""

import logging
import math
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from types import FrameType
from typing import Any

from celery import Celery, Task, bootsteps
from celery.exceptions import Ignore, Reject
from celery.signals import task_revoked, worker_ready
from celery.worker import state
from kombu.exceptions import OperationalError

from transexplain.errors import BrokerError, ConfigurationError, DatabaseError, InfrastructureError
from transexplain.settings import Settings
from transexplain.store import shards
from transexplain.store.revisions import open_database
from transexplain.store.runs import Claim
from transexplain.types.plans import DeviceClass, Modality, device_class
from workers import heartbeat, logs
from workers.app import DUTIES, make_app
from workers.claim_to_commit import End, Workbench
from workers.device_turns import Device
from workers.fair_turns import FairTurns
from workers.heartbeat import free_dead
from workers.message_guard import TASK, RefusalCounts
from workers.model_cache import ModelCache
from workers.queue_names import MODALITIES, queue_of, queues_for

#: exit status of a supervised process that found nothing to do: its place stays empty
EXIT_IDLE = 72
EXIT_AWAY = InfrastructureError.exit_code
_EVERY = 2.0  #: seconds between two looks
#: seconds that broker or database may be away: a restart, or a standby that takes over
PATIENCE = 120.0


@dataclass(kw_only=True, slots=True)
class IdleWatch:
    """A thread that calls `end`, once, after `linger` seconds in which nothing was to be done.

    Where shards wait and this worker has none their messages may be lost: it sweeps. Where
    the broker or the database is away for `patience` seconds it ends, too, with status 4.
    """

    linger: float
    in_hand: Callable[[], bool]  #: whether this worker has a task under way
    connected: Callable[[], bool]  #: whether it has a broker
    waits: Callable[[], bool]  #: whether a shard waits that it could take; may raise DatabaseError
    sweep: Callable[[], object]  #: sends lost messages again; may raise BrokerError
    end: Callable[[int], None]  #: receives the status
    every: float = _EVERY
    patience: float = PATIENCE
    _over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to look."""
        self._thread = threading.Thread(target=self._watch, name="idle-watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Look no more; the worker ends."""
        self._over.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _watch(self) -> None:
        idle_since = there_at = time.monotonic()
        pause = min(self.every, max(0.05, self.linger))
        while not self._over.wait(pause):
            try:
                idle = self._is_idle()
            except (DatabaseError, BrokerError) as error:
                idle_since, away = time.monotonic(), time.monotonic() - there_at
                log.warning(
                    "whether shards wait is not known, or no message can be sent: %s", error
                )
                if away >= self.patience:
                    log.error("away for %.0f s: this worker ends", away)
                    self.end(EXIT_AWAY)
                    return
                continue
            there_at = time.monotonic()
            if not idle:
                idle_since = there_at
            elif there_at - idle_since >= self.linger:
                log.info("nothing waits for this worker: it ends")
                self.end(EXIT_IDLE)
                return

    def _is_idle(self) -> bool:
        if self.in_hand():
            return False
        if not self.connected():
            raise BrokerError("there is no connection to the broker")
        if not self.waits():
            return True
        self.sweep()
        return False


log = logging.getLogger(__name__)

_REVOKED = "its task was revoked"


def _close(database_url: str, run_id: str, stop: threading.Event) -> None:
    """Write a run's rows for SQL; what reports need is imported when a run ends."""
    DUTIES.load("close")(database_url, run_id, stop, partial(logs.join, logs.carried()))


class ShardFailedError(Exception):
    """Reports a shard whose attempt failed to Celery; the reason is in the shard's row."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerOptions:
    """What one worker process is started with, besides the settings of the environment."""

    device: str | None = None  #: torch device; None: the plan's
    threads: int | None = None  #: of torch on the CPU; None: torch's own choice
    modalities: tuple[Modality, ...] = MODALITIES  #: whose shards it takes
    max_shards: int = 0  #: it ends after so many, to give memory back; 0: never
    neighbours: int = 1  #: processes that share this device's memory, this one among them
    crew: int = 1  #: processes that share this machine's cores, this one among them
    until_idle: float | None = None  #: it ends after so many seconds without work; None: never
    log_format: logs.Format = "text"


def run_worker(
    settings: Settings, options: WorkerOptions | None = None, *, supervised: bool = False
) -> int:
    """Serve the queues until SIGTERM, or until nothing waits; returns the exit code.

    SIGTERM (and SIGINT, unless a supervisor passes it on as SIGTERM) finishes the batch, gives
    the shard's lease back and ends. A database at another revision is an InfrastructureError, a
    device that is not there a ConfigurationError, both before anything is claimed. Under a
    supervisor the code is `EXIT_IDLE` where nothing waited: no other process need take the place.
    """
    options = options or WorkerOptions()
    logs.configure(options.log_format)
    name = heartbeat.worker_name()
    logs.for_process(worker=name)
    app = make_app(settings)
    worker = app.Worker(
        hostname=f"{name}@%h",
        queues=queues_for(settings, modalities=options.modalities),
        without_gossip=True,
        loglevel="INFO",
        options=options,
        worker_name=name,
        supervised=supervised,
    )
    worker.start()
    code = int(worker.exitcode or 0)
    if code == 0 and options.until_idle is not None and not app.connected.is_set():
        log.error("this worker was ended while it had no broker")
        return EXIT_AWAY
    return 0 if code == EXIT_IDLE and not supervised else code


class ShardStep(bootsteps.StartStopStep):  # type: ignore[misc]  # celery has no types
    """The part of a Celery worker that holds the database, the device and the task of shards."""

    requires = ("celery.worker.components:Pool",)

    def __init__(
        self,
        worker: Any,
        *,
        options: WorkerOptions | None = None,  # those below are of Celery's command line
        device: str | None = None,
        threads: int | None = None,
        max_shards: int | None = None,
        worker_name: str = "",
        supervised: bool = False,
        **more: Any,
    ) -> None:
        self._options = options or WorkerOptions(
            device=device, threads=threads, max_shards=max_shards or 0
        )
        self._name = worker_name or heartbeat.worker_name()
        self._supervised = supervised
        self._open = ExitStack()
        super().__init__(worker, **more)

    def create(self, worker: Any) -> None:
        """Prepare everything that a shard needs; raises as `run_worker`."""
        if not logging.getLogger().handlers:
            logs.configure("text")
        logs.for_process(worker=self._name)
        app: Celery = worker.app
        settings: Settings = app.settings
        queues = app.amqp.queues
        # without an accelerator it serves no queues for accelerators
        here = queues_for(settings, _prepare_torch(self._options))
        chosen = [name for name in queues.consume_from if name in here]
        if chosen and len(chosen) < len(queues.consume_from):
            queues.select(chosen)
        db = self._open.enter_context(open_database(settings.database_url))
        free_dead(db)  # what workers of this host left that were killed with their supervisor
        app.on_refused = self._open.enter_context(RefusalCounts(db)).note
        device = Device(ThreadPoolExecutor(1, "device"))
        models = ModelCache(
            self._options.device,
            memory=settings.model_memory,
            neighbours=self._options.neighbours,
        )
        served = frozenset(app.amqp.queues.consume_from)
        turns = FairTurns(
            serves=lambda plan: queue_of(settings, plan) in served,
            loaded=lambda plan: plan.task == "imported" or models.holds(plan.model),
        )
        bench = Workbench(
            db=db,
            turns=turns,
            settings=settings,
            models=models,
            name=self._name,
            device=device,
            devices=self._options.crew,
            closing=partial(_close, settings.database_url),
        )
        pool = worker.pool
        pool.consumer = lambda: getattr(worker, "consumer", None)
        pool.room = lambda: device.room
        device.on_room = pool.wake
        self._shard_task = ShardTask(app, bench, pool.leave, self._options.max_shards)
        worker_ready.connect(self._ready, weak=False)
        task_revoked.connect(self._shard_task.on_revoked, weak=False)
        self._bench, self._leave = bench, pool.leave
        self._idle: IdleWatch | None = None
        if self._options.until_idle is not None:
            self._idle = IdleWatch(
                linger=self._options.until_idle,
                in_hand=lambda: pool.in_hand,
                connected=app.connected.is_set,
                waits=partial(turns.any_waits, db, self._name),
                sweep=lambda: DUTIES.load("sweep")(db, settings),
                end=pool.leave,
            )

    def start(self, worker: Any) -> None:
        """All is prepared already; the next step waits for the broker."""
        if self._idle is not None:
            self._idle.start()

    def stop(self, worker: Any) -> None:
        """Close what `start` created, after the tasks that are under way."""
        if self._idle is not None:
            self._idle.stop()
        self._bench.stop.set()
        worker.pool.on_stop()
        self._bench.close()
        worker_ready.disconnect(self._ready)
        task_revoked.disconnect(self._shard_task.on_revoked)
        self._open.close()

    terminate = stop

    def _ready(self, **_: object) -> None:
        # Celery installs its own handlers while it starts; ours go around them
        self._end_between_batches(signal.SIGTERM)
        if self._supervised:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        else:
            self._end_between_batches(signal.SIGINT)

    def _end_between_batches(self, number: signal.Signals) -> None:
        """On this signal work ends after its batch, then the worker; on a second one at once."""
        previous = signal.getsignal(number)
        stop: threading.Event = self._bench.stop

        def handler(received: int, frame: FrameType | None) -> None:
            again = stop.is_set()
            stop.set()
            self._leave()
            if again and callable(previous):
                previous(received, frame)

        signal.signal(number, handler)


class BrokerStep(bootsteps.StartStopStep):  # type: ignore[misc]
    """The part of Celery's consumer that knows whether there is a connection to the broker."""

    requires = ("celery.worker.consumer.connection:Connection",)

    def start(self, consumer: Any) -> None:
        """There is one."""
        consumer.app.connected.set()

    def stop(self, consumer: Any) -> None:
        """It is lost, or the worker ends."""
        if state.should_stop in (None, False):
            consumer.app.connected.clear()


class ShardTask:
    """The task that works on one shard, and reports its end to Celery."""

    def __init__(
        self, app: Celery, bench: Workbench, leave: Callable[[], None], max_shards: int
    ) -> None:
        self._app = app
        self._bench = bench
        self._leave = leave
        self._left = max_shards or math.inf  # shards until the process ends

        def explain_shard(task: Task, run_id: str, shard_index: int) -> dict[str, Any]:
            return self.run(task, run_id, shard_index)

        app.task(explain_shard, name=TASK, bind=True, shared=False, throws=(ShardFailedError,))

    def run(self, task: Task, run_id: str, shard_index: int) -> dict[str, Any]:
        """Work on this shard; returns what is shown of it where it was saved by this very task."""
        bench, task_id = self._bench, task.request.id
        if bench.stop.is_set() or self._left <= 0:
            raise Reject("this worker is about to end", requeue=True)

        def revoked() -> bool:
            return task_id in state.revoked

        claims: list[Claim] = []
        end: End | str = bench.work(run_id, shard_index, revoked=revoked, on_claim=claims.append)
        if end != "done" and revoked() and self._cancel(run_id, shard_index):
            end = "cancelled"
        if end != "nothing":
            log.info("shard ended: %s", end)
            self._count()
        for claim in claims:
            # below a cap there is room for another now, and its message may be gone
            if end in ("failed", "stopped") or (end == "done" and claim.capped):
                self._send_again(claim.run_id, claim.shard.index)
            run_id, shard_index = claim.run_id, claim.shard.index
        if end == "done":
            return {"end": end, "run": run_id, "shard": shard_index, "worker": bench.name}
        if end == "failed":
            raise ShardFailedError(f"see `transexplain status {run_id}`")
        # no outcome of this task: another has it, or had it, or it was cancelled
        if not (end == "fenced" and revoked()):  # Celery has reported that already
            _report_end(task, end)
        raise Ignore

    def on_revoked(self, request: Any, **_: object) -> None:
        """A message that was revoked: its shard is cancelled, and no sweep sends it again."""
        run_id, shard_index = request.args
        with logs.fields(run=run_id, shard=shard_index):
            if self._cancel(run_id, shard_index):
                log.info("shard cancelled: %s", _REVOKED)

    def _cancel(self, run_id: str, shard_index: int) -> bool:
        try:
            return shards.cancel_shard(self._bench.db, run_id, shard_index, _REVOKED)
        except DatabaseError as error:
            log.error("the shard is not cancelled: %s", error)
            return False

    def _count(self) -> None:
        self._left -= 1
        if self._left == 0:
            self._leave()

    def _send_again(self, run_id: str, shard_index: int) -> None:
        """Send a new message; without a broker the next sweep does: the end is recorded already."""
        queue = queue_of(self._bench.settings, self._bench.plan(run_id))
        try:
            self._app.send_task(TASK, args=(run_id, shard_index), queue=queue)
        except (OperationalError, OSError) as error:
            log.warning("no message sent, the next sweep sends it: %s", error)


def _report_end(task: Task, end: str) -> None:
    """The event that ends a task without an outcome, so that no monitor shows it as running."""
    try:
        if end == "cancelled":
            task.send_event("task-revoked", terminated=True, signum=None, expired=False)
        else:
            task.send_event("task-rejected", requeue=end == "stopped")
    except (OperationalError, OSError):  # nobody hears of it
        log.debug("no event for the end of task %s", task.request.id)


def _prepare_torch(options: WorkerOptions) -> DeviceClass:
    """Set the threads; the class of the device, which has to be there."""
    import torch

    from transexplain.models.calling import place_of

    if options.threads is not None:
        torch.set_num_threads(options.threads)
    if options.device is None:
        return "gpu" if torch.accelerator.is_available() else "cpu"
    try:
        place_of(options.device)
    except ConfigurationError as error:
        raise ConfigurationError(f"worker: {error}") from error
    return device_class(options.device)
