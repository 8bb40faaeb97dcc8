"""Computes a shard in a process of its own, whose parent sees how it ends: a trial of items.

An item in which a worker died may have been there by chance: whatever ends processes from outside
ends them in some item. So a fresh process computes a canary first, an item that nobody suspects,
then each accused item by itself, and then the shard. An item is convicted where that process dies
in it right after its canary passed, a second process does the same, and their parent is alive to
say so. A kill from outside ends the parent, too, and convicts nobody.
"""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from typing import Any

from transexplain.data.shard_reader import ids_of
from transexplain.errors import InfrastructureError
from transexplain.text.error_frames import frames_of_thread
from transexplain.types.observer import Caution, Observer
from transexplain.types.plans import AuditPlan, Shard, ShardResult
from workers import logs
from workers.child_process import HungError, await_message, ended, portable
from workers.heartbeat import START_DEADLINE
from workers.model_cache import ModelCache
from workers.shard_work import compute, model_for

_GRACE = 5.0  #: seconds in which a process that hangs may say where
_FIRST = 60.0  #: seconds that the first item may take at least: libraries load and choose kernels
_ENDS = ("done", "tried")  #: of items
_MAIN = "import sys; from workers.fresh_process import serve; serve(int(sys.argv[1]))"


class FreshProcessDiedError(InfrastructureError):
    """A fresh process died, hung or never began; `items` are the ids of those that it computed."""

    def __init__(
        self, cause: str, items: tuple[str, ...], traceback: str = "", *, accuses: bool = False
    ) -> None:
        super().__init__(cause)
        self.items = items
        self.traceback = traceback  #: where it hung, if it could say
        self.accuses = accuses  #: it died in the trial of one item, after the canary had passed
        self.convicts = False  #: another process did the same


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardJob:
    """The shard that the process computes, and the settings."""

    plan: AuditPlan
    shard: Shard
    caution: Caution
    device: str
    deadline: float  #: seconds that an item may take
    threads: int  #: of torch
    logged: logs.Carried = field(default_factory=logs.carried)


def computed(job: ShardJob, observer: Observer, alive: Callable[[], None]) -> ShardResult:
    """The result of a shard, from a fresh process; `alive` is called while that is watched.

    Raises FreshProcessDiedError, Stopped where the observer requests it, and as `compute` does.
    """
    try:
        return _Trial(job, observer, alive).result()
    except FreshProcessDiedError as died:
        if not died.accuses:
            raise
        first = died.items
    try:
        return _Trial(job, observer, alive).result()
    except FreshProcessDiedError as died:
        died.convicts = died.accuses and died.items == first
        raise


class _Trial:
    """One fresh process, as its parent sees it."""

    def __init__(self, job: ShardJob, observer: Observer, alive: Callable[[], None]) -> None:
        self._job, self._observer, self._alive = job, observer, alive
        self._items: tuple[str, ...] = ()
        self._passed = False  #: an item went through by itself
        self._on_trial = False  #: the items are one accused item

    def result(self) -> ShardResult:
        """The result as `computed`, of one process."""
        ours, theirs = socket.socketpair()
        with Connection(ours.detach()) as pipe, theirs:
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", _MAIN, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
            theirs.close()
            try:
                pipe.send(self._job)
                return self._watched(pipe)
            except (EOFError, OSError):
                raise self._died(_end_of(process)) from None
            finally:
                process.kill()
                process.wait()

    def _watched(self, pipe: Connection) -> ShardResult:
        limit, hung = max(START_DEADLINE, self._job.deadline), False  # until there is a model
        while True:
            try:
                await_message(pipe, _GRACE if hung else limit, self._look)
            except HungError:
                if hung:
                    self._hear("hung", "")
                hung = True
                pipe.send("where")
                continue
            kind, content = pipe.recv()
            if kind == "result":
                return content  # type: ignore[no-any-return]
            limit, hung = _limit_after(kind, limit, self._job.deadline), False
            self._hear(kind, content)

    def _look(self) -> None:
        from transexplain.explaining import Stopped

        self._alive()
        if self._observer.should_stop():
            raise Stopped

    def _hear(self, kind: str, content: Any) -> None:
        if kind == "failed":
            raise content
        if kind == "hung":
            cause = f"it hung, no progress within {self._job.deadline:g} seconds"
            raise self._died(cause, content)
        if kind == "done":
            self._observer.item_done(*content)
            self._items = tuple(name for name in self._items if name not in content)
        elif kind == "tried":
            self._passed, self._items = self._passed or content, ()
        else:
            self._items, self._on_trial = content, kind == "trial"
            observer = self._observer
            (observer.batch_started if kind == "batch" else observer.check_started)(content)

    def _died(self, cause: str, traceback: str = "") -> FreshProcessDiedError:
        accuses = self._on_trial and self._passed and bool(self._items)
        return FreshProcessDiedError(cause, self._items, traceback, accuses=accuses)


def _limit_after(kind: str, limit: float, deadline: float) -> float:
    """Seconds in which the next word has to come."""
    if kind in _ENDS or limit == deadline:
        return deadline
    return max(deadline, _FIRST)


def _end_of(process: "subprocess.Popen[bytes]") -> str:
    with suppress(subprocess.TimeoutExpired):
        process.wait(_GRACE)
    return f"a process that computed it {ended(process.returncode or 0)}"


def serve(descriptor: int) -> None:
    """Compute the job that comes by this socket; what a fresh process does."""
    for number in (signal.SIGINT, signal.SIGTERM):  # its parent ends it
        signal.signal(number, signal.SIG_IGN)
    pipe = Connection(descriptor)
    job: ShardJob = pipe.recv()
    logs.join(job.logged)
    reporter = _Reporter(pipe)
    watch = (pipe, reporter, threading.get_ident())
    threading.Thread(target=_follow_parent, args=watch, daemon=True).start()
    try:
        reporter.report("result", _computed(job, reporter))
    except Exception as error:  # noqa: BLE001 - raised again where the result is wanted
        reporter.report("failed", portable(error))


def _follow_parent(pipe: Connection, reporter: "_Reporter", working: int) -> None:
    """Say where the work hangs when the parent asks, and end with it."""
    with suppress(EOFError, OSError):
        while pipe.recv():
            reporter.report("hung", frames_of_thread(working))
    os._exit(0)


def _computed(job: ShardJob, reporter: "_Reporter") -> ShardResult:
    import torch

    from transexplain.explaining.item_loop import Silent

    torch.set_num_threads(job.threads)
    model = model_for(job.plan, ModelCache(job.device))
    for name, row in _tried(job):
        reporter.report("trial" if name in job.caution.accused else "canary", (name,))
        alone = replace(job.shard, start=row, stop=row + 1)
        caution = Caution(alone=frozenset((name,)))
        result = compute(job.plan, alone, model, observer=Silent(), caution=caution)()
        reporter.report("tried", not result.failures)
    return compute(job.plan, job.shard, model, observer=reporter, caution=job.caution)()


def _tried(job: ShardJob) -> Iterator[tuple[str, int]]:
    """The ids and rows of the canary and the accused, in the order of their trials."""
    caution, shard = job.caution, job.shard
    if not caution.accused:
        return
    whole = range(shard.start, shard.stop)
    rows = dict(zip(ids_of(job.plan.dataset, whole), whole, strict=True))
    free = [name for name in rows if name not in caution.accused | caution.quarantined.keys()]
    if free:  # what was in no batch that died, else what was farthest from where it began
        canary = max(free, key=lambda name: (name not in caution.alone, rows[name]))
        yield canary, rows[canary]
    yield from ((name, row) for name, row in rows.items() if name in caution.accused)


class _Reporter:
    """Observer that reports to the parent what is computed."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._lock = threading.Lock()

    def report(self, kind: str, content: object) -> None:
        """Send a message."""
        with self._lock:
            self._pipe.send((kind, content))

    def batch_started(self, item_ids: Sequence[str]) -> None:
        self.report("batch", tuple(item_ids))

    def check_started(self, item_ids: Sequence[str]) -> None:
        self.report("check", tuple(item_ids))

    def item_done(self, *item_ids: str) -> None:
        self.report("done", item_ids)

    def should_stop(self) -> bool:
        return False  # the parent ends this process
