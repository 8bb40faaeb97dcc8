"""Processes, or one thread, that read and encode parts of shards before the device needs them.

Every process has a thread here that gives it one part at a time and waits for the entries. So a
process that dies or hangs is found at once, and what it was reading is known: the row, or the
part where several rows are encoded by one call. Another process takes its place.
"""

import logging
import multiprocessing
import os
import pickle
import queue
import signal
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, MutableSequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import Context, copy_context
from dataclasses import dataclass
from itertools import chain
from multiprocessing import connection as connections
from multiprocessing import util
from typing import TYPE_CHECKING, Any

from transexplain.errors import InfrastructureError
from transexplain.store.runs import Claim
from transexplain.types.plans import GENERATED, AuditPlan
from workers import logs, reader_process, tracing
from workers.heartbeat import START_DEADLINE
from workers.reader_process import PipeReceiver
from workers.work_meter import WorkMeter

if TYPE_CHECKING:
    from transexplain.explaining.explain_request import Entry
    from transexplain.explaining.reading import ReadingJob, ReadPart
    from transexplain.models.loaded_model import LoadedModel

log = logging.getLogger(__name__)

#: processes of `auto` at most: beyond them one thread cannot take what they read
MOST = 12
_POLL = 0.1  # seconds
_VAIN_DEATHS = 3
_STARTING = threading.Lock()


def host_processes(processes: int | None, device: str, devices: int = 1) -> int:
    """The number of processes that read and encode for one device.

    Args:
        processes: as the settings say; None: chosen here.
        device: as torch calls it; on a CPU the model is slower than one thread that reads.
        devices: that share this machine's cores.
    """
    if processes is not None:
        return processes
    if device.partition(":")[0] == "cpu":
        return 0
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, min(MOST, (cores or 1) // devices - 1))


class ReaderDiedError(InfrastructureError):
    """A process that read items died or hung; `rows` are those that it had in its hand."""

    def __init__(self, rows: range, cause: str) -> None:
        super().__init__(cause)
        self.rows = rows
        self.cause = cause


@dataclass(frozen=True, slots=True)
class _Task:
    key: str
    job: bytes
    part: "ReadPart"
    future: "Future[list[Entry]]"
    context: Context  #: of the caller, for its log lines and spans


class ReaderPool:
    """Reads parts in `processes`, or in one thread where that is 0 or a job cannot travel."""

    def __init__(self, processes: int, item_deadline: float) -> None:
        self.processes = processes
        self._thread = ThreadPoolExecutor(1, "shard-reader")
        self._tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._jobs: OrderedDict[str, tuple[ReadingJob, bytes | None]] = OrderedDict()
        self._readers = [_ReaderThread(self._tasks, item_deadline) for _ in range(processes)]
        for reader in self._readers:
            reader.start()

    def watches(self, key: str) -> bool:
        """Return whether hangs are found here: the parts of this job are read by processes."""
        return self.processes > 0 and self._jobs[key][1] is not None

    def prepare(self, key: str, job: "ReadingJob") -> None:
        """Make a job known by its key before its parts are read; the latest ones are kept."""
        if key in self._jobs:
            self._jobs.move_to_end(key)
            return
        self._jobs[key] = (job, _sent(job) if self.processes else None)
        while len(self._jobs) > _KEPT:
            self._jobs.popitem(last=False)

    def read(self, key: str, part: "ReadPart") -> "Future[list[Entry]]":
        """The entries of a part, soon; raises ReaderDiedError, or as `reading.read_part`."""
        job, sent = self._jobs[key]
        if sent is None:
            return self._thread.submit(copy_context().run, _read_here, job, part)
        task = _Task(key, sent, part, Future(), copy_context())
        self._tasks.put(task)
        return task.future

    def close(self) -> None:
        """End the processes; their parts are lost."""
        for reader in self._readers:
            reader.end()
            self._tasks.put(None)
        self._thread.shutdown(wait=False, cancel_futures=True)


_KEPT = 3  #: jobs


def _read_here(job: "ReadingJob", part: "ReadPart") -> "list[Entry]":
    from transexplain.explaining.reading import read_part

    with tracing.span("read", items=part.shard.stop - part.shard.start):
        return read_part(job, part)


def _sent(job: "ReadingJob") -> bytes | None:
    """The job as it travels; None where it cannot, or would take the model along."""
    if job.plan.dataset.modality == "nodes" or job.plan.model.head == GENERATED:
        return None  # the encoder generates, by the model itself
    try:
        return pickle.dumps(job)
    except Exception as error:  # noqa: BLE001 - a transform of somebody's own may be anything
        log.warning("items are read by a thread, what encodes them cannot be sent: %s", error)
        return None


class _ReaderThread(threading.Thread):
    """One process and the thread that hands it its parts."""

    def __init__(self, tasks: "queue.SimpleQueue[_Task | None]", deadline: float) -> None:
        super().__init__(name="reader", daemon=True)
        self._tasks = tasks
        self._deadline = deadline
        self._context = reader_process.context()
        self._process: Any = None
        self._pipe: Any = None
        self._arrays: Any = None
        self._hand: MutableSequence[float] = []
        self._known: list[str] = []
        self._vain = 0
        self._ended = False

    def run(self) -> None:
        try:
            self._begin()
        except Exception as error:  # noqa: BLE001 - tried again and reported at the first request
            log.warning("%s", error)
        while (task := self._tasks.get()) is not None:
            if not task.future.set_running_or_notify_cancel():
                continue
            try:
                answer = task.context.run(self._traced, task)
            except BaseException as error:  # noqa: BLE001 - raised where the part is wanted
                task.future.set_exception(error)
            else:
                task.future.set_result(answer)
        self.end()

    def end(self) -> None:
        self._ended = True
        process = self._process
        if process is not None and process.pid is not None:
            _kill(process)

    def _traced(self, task: _Task) -> "list[Entry]":
        with tracing.span("read", items=task.part.shard.stop - task.part.shard.start):
            return self._answer(task)

    def _answer(self, task: _Task) -> "list[Entry]":
        if self._process is None:
            self._begin()
        try:
            if task.key not in self._known:
                self._pipe.send(("job", task.key, task.job))
                self._heard(START_DEADLINE)
                self._known = [*self._known, task.key][-reader_process.JOBS :]
            content = (task.part, self._arrays.free(), logs.known())
            self._pipe.send(("part", task.key, content))
            kind, *rest = self._heard(self._deadline)
            if kind == "done":
                entries: list[Entry] = self._arrays.received(*rest)
                return entries
        except (EOFError, OSError, _HungError) as error:
            hung = f"it hung, no progress within {self._deadline:g} seconds"
            how = self._buried()
            raise ReaderDiedError(
                self._rows(task),
                hung if isinstance(error, _HungError) else f"a process that read its items {how}",
            ) from None
        raise rest[0]

    def _heard(self, deadline: float) -> Any:
        """The next message of the process; EOFError if it died, _HungError if nothing moves."""
        moves, since = self._hand[reader_process.MOVES], time.monotonic()
        while True:
            ready = connections.wait([self._pipe, self._process.sentinel], _POLL)
            if self._pipe in ready or (ready and self._pipe.poll()):
                return self._pipe.recv()
            if ready:
                raise EOFError
            if moves != self._hand[reader_process.MOVES]:
                moves, since = self._hand[reader_process.MOVES], time.monotonic()
            elif time.monotonic() - since > deadline:
                raise _HungError

    def _begin(self) -> None:
        """Start a process and wait until it is there; raises InfrastructureError."""
        if self._vain >= _VAIN_DEATHS or self._ended:
            raise InfrastructureError(
                "processes that read items end before they read any; look at their messages "
                "above, or read in a thread: --host-processes 0"
            )
        self._hand = self._context.RawArray("d", [reader_process.NOBODY, 0.0])
        self._known = []
        self._pipe, theirs = self._context.Pipe()
        self._arrays = PipeReceiver(self._pipe)
        process = self._context.Process(
            target=reader_process.serve,
            args=(theirs, self._hand, self._deadline, logs.carried()),
            name="reader",
            daemon=True,
        )
        self._vain += 1
        with _STARTING:
            process.start()
        self._process = process
        theirs.close()
        util.Finalize(self, _kill, args=(process,), exitpriority=20)
        try:
            self._heard(START_DEADLINE)
        except (EOFError, OSError, _HungError):
            raise InfrastructureError(
                f"a process that reads items {self._buried()} before it read any"
            ) from None
        self._vain = 0

    def _buried(self) -> str:
        """The end of the process, after it was made sure that it ended."""
        process, self._process = self._process, None
        process.join(_POLL)
        _kill(process)
        process.join()
        self._pipe.close()
        code = process.exitcode or 0
        return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended ({code})"

    def _rows(self, task: _Task) -> range:
        row, whole = self._hand[reader_process.HAND], task.part.shard
        if whole.start <= row < whole.stop:
            return range(int(row), int(row) + 1)
        return range(whole.start, whole.stop)


class _HungError(Exception):
    """Nothing moved for too long."""


def _kill(process: multiprocessing.Process) -> None:
    # SIGTERM is not for it, and at its parent's end it would be waited for
    if process.exitcode is None:
        process.kill()


_STOP_POLL = 0.25  # seconds between two looks whether to stop


class ReadAhead:
    """The entries of a shard in order; a pool reads the next ones while the device computes.

    At most as many entries are read before they are needed as are explained together, and one
    part more for each process, so memory is bounded. How a shard is cut into parts does not
    change its result.
    """

    def __init__(
        self,
        readers: ReaderPool,
        claim: Claim,
        plan: AuditPlan,
        model: "LoadedModel",
        meter: WorkMeter,
        *,
        should_stop: Callable[[], bool] = lambda: False,
        moved: Callable[[], None] = lambda: None,
    ) -> None:
        """`moved` is called while the device waits for a process that is watched."""
        from transexplain.explaining.explain_request import read_together
        from transexplain.explaining.reading import PART, ReadingJob, parts_of

        self._readers, self._meter, self._key = readers, meter, claim.run_id
        self._should_stop, self._moved = should_stop, moved
        job = ReadingJob.of(plan, model, by_reference=readers.processes > 0)
        readers.prepare(self._key, job)
        self._watched = readers.watches(self._key)
        self._left = parts_of(plan, claim.shard, claim.caution)
        together = -(-read_together(model) // PART[plan.dataset.modality])
        self._ahead: deque[Future[list[Entry]]] = deque()
        self._most = together + max(1, readers.processes)
        self._fill()

    def __iter__(self) -> "Iterator[Entry]":
        return chain.from_iterable(self._parts())

    def _parts(self) -> "Iterator[list[Entry]]":
        while self._ahead:
            entries = self._awaited(self._ahead.popleft())
            self._fill()
            yield entries

    def close(self) -> None:
        """Read no further; a thread that has begun with a part is waited for."""
        for future in self._ahead:
            if not future.cancel() and not self._watched:
                future.exception()
        self._ahead.clear()

    def _fill(self) -> None:
        while len(self._ahead) < self._most and (part := next(self._left, None)) is not None:
            self._ahead.append(self._readers.read(self._key, part))

    def _awaited(self, future: "Future[list[Entry]]") -> "list[Entry]":
        """Raises as `ReaderPool.read`, and Stopped where the work shall end."""
        from transexplain.explaining import Stopped

        with self._meter.reading():
            while True:
                try:
                    return future.result(_STOP_POLL)
                except TimeoutError:
                    if future.done():
                        raise
                if self._should_stop():
                    raise Stopped
                if self._watched:  # what hangs is found by who watches the process
                    self._moved()
