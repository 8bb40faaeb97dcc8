"""Processes, or one thread, that read and encode parts of shards before the device needs them.

Each process reads one part at a time: where it dies or hangs, what it was reading is known, the
row, or the part where several rows are encoded by one call. Another process takes its place.
"""

import faulthandler
import logging
import math
import multiprocessing
import os
import pickle
import queue
import sys
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, MutableSequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from itertools import chain
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, TypeVar

from transexplain.errors import InfrastructureError
from transexplain.store.runs import Claim
from transexplain.types.plans import GENERATED, AuditPlan, Shard
from workers import logs, tracing
from workers.child_process import (
    ChildProcess,
    HungError,
    await_message,
    portable,
    received_entries,
    send_entries,
)
from workers.heartbeat import START_DEADLINE
from workers.work_meter import WorkMeter

if TYPE_CHECKING:
    from transexplain.explaining.explain_request import Entry
    from transexplain.explaining.reading import ReadingJob, ReadPart
    from transexplain.models.loaded_model import LoadedModel

_T = TypeVar("_T")
log = logging.getLogger(__name__)

#: processes of `auto` at most: beyond them one thread cannot take what they read
MOST = 12
_VAIN_DEATHS = 3
_KEPT = 3  #: jobs
_JOBS = 2  #: that a process remembers


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


class ReaderPool:
    """Reads parts in `processes`, or in one thread where that is 0 or a job cannot travel."""

    def __init__(self, processes: int, item_deadline: float) -> None:
        self.processes = processes
        self._jobs: OrderedDict[str, tuple[ReadingJob, bytes | None]] = OrderedDict()
        self._thread = ThreadPoolExecutor(1, "shard-reader")
        self._threads = ThreadPoolExecutor(max(1, processes), "reader")  # one for each process
        self._readers = [_Reader(item_deadline) for _ in range(processes)]
        self._free: queue.SimpleQueue[_Reader] = queue.SimpleQueue()
        for reader in self._readers:
            self._free.put(reader)
            self._threads.submit(self._apart, _Reader.begin_early)

    def prepare(self, key: str, job: "ReadingJob") -> bool:
        """Make a job known by its key before its parts are read; the latest ones are kept.

        Returns whether processes read its parts, so that hangs are found here.
        """
        if key not in self._jobs:
            self._jobs[key] = (job, _sent(job) if self.processes else None)
            while len(self._jobs) > _KEPT:
                self._jobs.popitem(last=False)
        self._jobs.move_to_end(key)
        return self._jobs[key][1] is not None

    def read(self, key: str, part: "ReadPart") -> "Future[list[Entry]]":
        """The entries of a part, soon; raises ReaderDiedError, or as `reading.read_part`."""
        from transexplain.explaining.reading import read_part

        job, sent = self._jobs[key]

        def read() -> "list[Entry]":
            with tracing.span("read", items=part.shard.stop - part.shard.start):
                if sent is None:
                    return read_part(job, part)
                return self._apart(lambda reader: reader.read(key, sent, part))

        threads = self._thread if sent is None else self._threads
        return threads.submit(copy_context().run, read)

    def _apart(self, work: "Callable[[_Reader], _T]") -> _T:
        reader = self._free.get()
        try:
            return work(reader)
        finally:
            self._free.put(reader)

    def close(self) -> None:
        """End the processes; their parts are lost."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._thread.shutdown(wait=False, cancel_futures=True)
        for reader in self._readers:
            reader.close()


def _sent(job: "ReadingJob") -> bytes | None:
    """The job as it travels; None where it cannot, or would take the model along."""
    if job.plan.dataset.modality == "nodes" or job.plan.model.head == GENERATED:
        return None  # the encoder generates, by the model itself
    try:
        return pickle.dumps(job)
    except Exception as error:  # noqa: BLE001 - a transform of somebody's own may be anything
        log.warning("items are read by a thread, what encodes them cannot be sent: %s", error)
        return None


class _Reader:
    """One process, or where it died the next."""

    def __init__(self, deadline: float) -> None:
        self._deadline = deadline
        self._context = _context()
        self._child: ChildProcess | None = None
        self._known: list[str] = []  #: keys of the jobs that it has
        self._vain = 0
        self._closed = False
        #: shared with it: the row that it reads, or _NOBODY; how often that changed
        self._hand: MutableSequence[float] = []

    def begin_early(self) -> None:
        """Begin a process before there is a part to read."""
        try:
            self._begin()
        except Exception as error:  # noqa: BLE001 - tried again and reported at the first part
            log.warning("%s", error)

    def close(self) -> None:
        """End the process, which has no successor."""
        self._closed = True
        if self._child is not None:
            self._child.kill()

    def read(self, key: str, job: bytes, part: "ReadPart") -> "list[Entry]":
        """The entries of a part; raises as `ReaderPool.read`."""
        child = self._child or self._begin()
        try:
            if key not in self._known:
                child.pipe.send(("job", key, job))
                self._received(child, START_DEADLINE)
                self._known = [*self._known, key][-_JOBS:]
            child.pipe.send(("part", key, (part, logs.known())))
            kind, *content = self._received(child, self._deadline)
            if kind == "done":
                return received_entries(child.pipe, *content)
        except (EOFError, OSError, HungError) as error:
            self._child, how = None, child.end()
            cause = f"a process that read its items {how}"
            if isinstance(error, HungError):
                cause = f"it hung, no progress within {self._deadline:g} seconds"
            raise ReaderDiedError(self._rows(part.shard), cause) from None
        raise content[0]

    def _received(self, child: ChildProcess, deadline: float) -> Any:
        await_message(child.pipe, deadline, lambda: self._hand[_MOVES])
        return child.pipe.recv()

    def _begin(self) -> ChildProcess:
        """Start a process and wait until it is there; raises InfrastructureError."""
        if self._vain >= _VAIN_DEATHS or self._closed:
            raise InfrastructureError(
                "processes that read items end before they read any; look at their messages "
                "above, or read in a thread: --host-processes 0"
            )
        self._vain += 1
        self._hand = self._context.RawArray("d", [_NOBODY, 0.0])
        self._known = []
        work = (_serve, self._hand, self._deadline, logs.carried())
        child = self._child = ChildProcess("reader", *work, context=self._context)
        try:
            self._received(child, START_DEADLINE)
        except (EOFError, OSError, HungError):
            self._child = None
            raise InfrastructureError(
                f"a process that reads items {child.end()} before it read any"
            ) from None
        self._vain = 0
        return child

    def _rows(self, shard: Shard) -> range:
        row = int(self._hand[_HAND])
        return (
            range(row, row + 1)
            if shard.start <= row < shard.stop
            else range(shard.start, shard.stop)
        )


_HAND, _MOVES = range(2)
_NOBODY = -1.0


def _context() -> Any:
    """The start method: never a fork of this process, which has threads and maybe a card."""
    if "forkserver" not in multiprocessing.get_all_start_methods() or sys.platform == "darwin":
        return multiprocessing.get_context("spawn")
    processes = multiprocessing.get_context("forkserver")
    # what takes seconds to import is imported once, by the process that all others come from
    heavy = ["transexplain.explaining.reading", "transformers.tokenization_utils_base"]
    processes.set_forkserver_preload([*heavy, __name__])
    return processes


def _serve(
    connection: Connection, hand: MutableSequence[float], deadline: float, logged: logs.Carried
) -> None:
    """Read parts until the pipe ends; `deadline` in seconds is that of one item.

    `logged` is the logging of the parent. Where an item hangs and no parent is left to end this
    process, it ends itself.
    """
    logs.join(logged)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # the processes are the parallelism
    import torch

    torch.set_num_threads(1)
    jobs: dict[str, Any] = {}
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):  # nobody asks any more
        connection.send(("ready",))
        while True:
            kind, key, content = connection.recv()
            if kind == "job":
                while len(jobs) >= _JOBS:
                    del jobs[next(iter(jobs))]
                jobs[key] = _job(content)
                connection.send(("known",))
                continue
            if math.isfinite(deadline):
                faulthandler.dump_traceback_later(2 * deadline + 1, exit=True)
            part, known = content
            with logs.fields(**known):
                answer = _answer(jobs[key], part, hand)
            if isinstance(answer, Exception):
                connection.send(("failed", answer))
            else:
                send_entries(connection, answer)
            faulthandler.cancel_dump_traceback_later()


def _job(content: bytes) -> Any:
    """The job, and all that takes long the first time: no item is to be blamed for it."""
    from transexplain.data.source_files import verify
    from transexplain.errors import DataSourceError

    job = pickle.loads(content)
    with suppress(DataSourceError):  # reported with the first part
        verify(job.plan.dataset)
    return job


def _answer(job: Any, part: "ReadPart", hand: MutableSequence[float]) -> "list[Entry] | Exception":
    """The entries of a part, or why there are none: raised in the process that requested them."""
    from transexplain.explaining.reading import read_part

    def in_hand(row: int | None) -> None:
        hand[_HAND] = _NOBODY if row is None else float(row)
        hand[_MOVES] += 1

    try:
        return read_part(job, part, in_hand)
    except Exception as error:  # noqa: BLE001 - whatever an item or its file may do
        return portable(error)
    finally:
        in_hand(None)


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
        self._watched = readers.prepare(self._key, job)
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
