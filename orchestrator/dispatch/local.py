"""The local executor: this process, or several, over the same SQL claims that a fleet uses."""

import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from contextvars import copy_context
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from orchestrator.dispatch.stopping import (
    NOBODY,
    Reports,
    start_ignoring_interrupts,
    stopping,
)
from transexplain.errors import InfrastructureError
from transexplain.settings import Settings
from transexplain.store import runs, shards
from transexplain.store.database import Database
from transexplain.store.revisions import open_database
from workers.claim_to_commit import End, Workbench
from workers.device_turns import Device
from workers.heartbeat import end_process, free_dead, worker_prefix
from workers.model_cache import ModelCache
from workers.work_meter import SIZE, Cells, WorkMeter, checks, in_hand

if TYPE_CHECKING:
    from multiprocessing.context import SpawnProcess

    from transexplain.models.loaded_model import LoadedModel

#: a local worker that was killed is found out sooner than one across a network
LEASE_SECONDS = 15.0
_POLL = 0.2
#: seconds of waiting for others after which the reason is given, and again after each lease
_PATIENCE = 2.0
_VAIN_DEATHS = 3
_AT_ONCE = 5  #: shards at once: one is computed, two are ahead, two finished or committed


def local_settings(settings: Settings) -> Settings:
    """The settings with the short lease of local work, unless a shorter one is set."""
    return replace(settings, lease_seconds=min(settings.lease_seconds, LEASE_SECONDS))


def run_here(  # noqa: PLR0913 - who works here says all of it, and most say little
    db: Database,
    run_id: str,
    settings: Settings,
    *,
    model: "LoadedModel | None" = None,
    report: Reports = NOBODY,
    stop: threading.Event | None = None,
    cells: Cells | None = None,
    processes: int = 1,
    device: str | None = None,
) -> None:
    """Work on a run in this process until nothing is left to claim or to wait for.

    One shard is computed while the next is read and the last is committed. What is done is counted
    in `cells`, those of a `WorkMeter`, where they are given; `processes` share the machine's cores.
    `device` is a torch device that takes the place of the plan's.
    Leases of dead processes of this host end at once. While others hold the rest, `report.wait`
    gets their names.
    When `stop` is set the claimed shard is given back after its batch and KeyboardInterrupt
    raised: the run resumes. Work that hangs ends the process with a message.
    """

    def hung(message: str) -> None:
        alone = multiprocessing.parent_process() is None  # nobody starts another process
        end_process(f"{message}. `transexplain resume {run_id}` goes on" if alone else message)

    bench = Workbench(
        db=db,
        settings=local_settings(settings),
        models=ModelCache(device),
        stop=stop or threading.Event(),
        on_hang=hung,
        devices=processes,
    )
    reported = _Reported(db, run_id, report)
    bench.meter = WorkMeter(cells, changed=lambda: reported.report([bench.meter.cells]))
    if model is not None:
        bench.models.put(bench.plan(run_id).model, model)
    free_dead(db, run_id)
    waiting = _Waiting(db, run_id, bench.settings.lease_seconds, report.wait)
    with ThreadPoolExecutor(1, "device") as turns, closing(bench):
        bench.device = Device(turns, most_ahead=2 if processes == 1 else 1)
        _in_turns(bench, run_id, reported, waiting)
    runs.finalise(db, run_id)
    if bench.stop.is_set():
        raise KeyboardInterrupt


def _in_turns(bench: Workbench, run_id: str, reported: "_Reported", waiting: "_Waiting") -> None:
    """Work on shards, as many at once as the device has room for, until none is left."""
    changed = threading.Event()
    bench.device.on_room = changed.set
    in_hand: set[Future[End]] = set()
    free = True  # as far as is known there is a shard to claim
    with ThreadPoolExecutor(_AT_ONCE, "shard") as threads, _ending(bench.stop):
        while not bench.stop.is_set():
            changed.clear()
            over = {future for future in in_hand if future.done()}
            in_hand -= over
            ends = [future.result() for future in over]
            if any(end != "nothing" for end in ends):
                free = True
                reported.look([bench.meter.cells])
                waiting.over()
            elif ends:
                free = False
            if not in_hand and not free:
                state = runs.progress(bench.db, run_id)
                if state.state != "running" or not state.states["queued"] + state.states["running"]:
                    break
                waiting.tell()
                bench.stop.wait(_POLL)  # others hold the rest; what they lose comes back
                free = True
            if free and len(in_hand) < bench.device.room:
                claimed = threads.submit(copy_context().run, bench.work, run_id)
                claimed.add_done_callback(lambda _: changed.set())
                in_hand.add(claimed)
            changed.wait(_POLL)
        for future in in_hand:
            future.result()
    reported.look([bench.meter.cells])


@contextmanager
def _ending(stop: threading.Event) -> Iterator[None]:
    """A block whose threads end after their batch where it is interrupted."""
    try:
        yield
    except BaseException as error:
        if not isinstance(error, Exception):
            stop.set()
        raise


def run_processes(
    db: Database,
    run_id: str,
    settings: Settings,
    processes: int,
    *,
    threads: int | None = None,
    report: Reports = NOBODY,
    stop: threading.Event | None = None,
) -> None:
    """Work on a run in several processes, each with `threads` or with its share of the cores.

    A process that dies costs its batch: its lease ends, and another process takes its
    place. `stop` ends them all and raises KeyboardInterrupt. Raises InfrastructureError where
    processes die one after the other before they take a shard.
    """
    stop = stop or threading.Event()
    threads = threads or max(1, (os.cpu_count() or 1) // processes)
    free_dead(db, run_id)
    waiting = _Waiting(db, run_id, local_settings(settings).lease_seconds, report.wait)
    reported = _Reported(db, run_id, report)
    with _Children(db, run_id, settings, processes, threads) as children:
        while children.alive() and not stop.wait(_POLL):
            saved = reported.look(children.cells)
            children.replace_dead()
            if saved:
                waiting.over()
            else:
                waiting.tell(unless=children.hold_any)
        if stop.is_set():
            raise KeyboardInterrupt
    reported.look(children.cells)
    runs.finalise(db, run_id)


class _Reported:
    """The progress reported of a run so far, so that only changes are reported."""

    def __init__(self, db: Database, run_id: str, report: Reports) -> None:
        self._db, self._run_id, self._report = db, run_id, report
        self._lock = threading.RLock()  # items end in one thread, shards in others
        self._saved = self._items = runs.progress(db, run_id).items_finished
        self._checks = 0

    def look(self, cells: Sequence[Sequence[float]]) -> bool:
        """Report the saved items; return whether there are more than before, by any process."""
        saved = runs.progress(self._db, self._run_id).items_finished  # the lock waits for no query
        with self._lock:
            before, self._saved = self._saved, saved
            self.report(cells)
            return saved > before

    def report(self, cells: Sequence[Sequence[float]]) -> None:
        """Report items that are saved or computed, and checks; `cells` are of all meters.

        The shard of a process that died is done again, and is not counted a second time.
        """
        with self._lock:
            items, (passes, share) = self._saved + in_hand(cells), checks(cells)
            if items > self._items:
                self._report.items(items - self._items)
            if passes > self._checks:
                self._report.checks(passes - self._checks, share)
            self._items, self._checks = max(self._items, items), max(self._checks, passes)


class _Children:
    """Child processes that work on one run; those that die are replaced."""

    def __init__(
        self, db: Database, run_id: str, settings: Settings, processes: int, threads: int
    ) -> None:
        self._db, self._run_id = db, run_id
        self._threads, self._settings = threads, settings
        self._context = multiprocessing.get_context("spawn")
        # memory without a lock: one process writes, and its death leaves numbers that can be read
        raw: Any = self._context.RawArray  # as typeshed has it, no sequence of numbers
        #: of the children's meters; who takes a dead one's place counts on
        self.cells: list[Cells] = [raw("d", SIZE) for _ in range(processes)]
        self._running: list[SpawnProcess] = []
        self._vain = 0  # deaths without a claim in between
        self._claims = runs.claims(db, run_id)

    def __enter__(self) -> Self:
        self._running += map(self._begun, range(len(self.cells)))
        return self

    def __exit__(self, *_: object) -> None:
        for child in self._running:
            child.terminate()
        for child in self._running:
            child.join()

    def _begun(self, place: int) -> "SpawnProcess":
        work = (self._run_id, self._settings, self._threads, self.cells[place], len(self.cells))
        child = self._context.Process(target=_child, args=work)
        start_ignoring_interrupts(child)
        return child

    def alive(self) -> bool:
        """Return whether any child works, or died since the last look and is to be replaced."""
        return any(child.is_alive() or child.exitcode for child in self._running)

    def hold_any(self) -> bool:
        """Return whether a child holds a shard, so that the others wait for nobody else."""
        names = shards.holders(self._db, self._run_id)
        prefixes = tuple(worker_prefix(child.pid) for child in self._running if child.pid)
        return any(name.startswith(prefixes) for name in names)

    def replace_dead(self) -> None:
        """Start a new process for each that died, after its leases were ended."""
        for place, child in enumerate(self._running):
            if child.is_alive() or not child.exitcode:
                continue
            shards.expire(self._db, self._run_id, worker_prefix(child.pid or 0))
            self._count_death(child.exitcode)
            WorkMeter(self.cells[place]).shard_ended()
            self._running[place] = self._begun(place)

    def _count_death(self, exitcode: int) -> None:
        claims = runs.claims(self._db, self._run_id)
        self._vain = self._vain + 1 if claims == self._claims else 0
        self._claims = claims
        if self._vain > _VAIN_DEATHS:
            raise InfrastructureError(
                f"local processes end with status {exitcode} before they take a shard of run "
                f"{self._run_id}; look at their messages above, or try --processes 1"
            )


class _Waiting:
    """Tells whom a run waits for: after a moment, and then once in the length of a lease."""

    def __init__(
        self, db: Database, run_id: str, every: float, on_wait: Callable[[str], None]
    ) -> None:
        self._db, self._run_id = db, run_id
        self._every = every
        self._on_wait = on_wait
        self._due: float | None = None

    def over(self) -> None:
        """There is work again."""
        self._due = None

    def tell(self, unless: Callable[[], bool] | None = None) -> None:
        """Report that nothing can be claimed now, with the reason, where it is time to.

        `unless` is called then; where it is true the wait begins again.
        """
        now = time.monotonic()
        if self._due is None:
            self._due = now + _PATIENCE
        if now < self._due:
            return
        if unless is not None and unless():
            self.over()
            return
        self._due = now + self._every
        free_dead(self._db, self._run_id)
        if reason := self._reason():
            self._on_wait(reason)

    def _reason(self) -> str | None:
        if runs.progress(self._db, self._run_id).paused:
            return (
                f"run {self._run_id} is paused; `transexplain unpause {self._run_id}` lets it go "
                "on, and Ctrl-C ends the waiting"
            )
        held = shards.list_shards(self._db, self._run_id, states=("running",))
        if not held:
            return None
        first = min(held, key=lambda shard: shard.lease_left or 0.0)
        others = f" and {len(held) - 1} more" if len(held) > 1 else ""
        left = max(0.0, first.lease_left or 0.0)
        return (
            f"waiting for shard {first.shard.index}{others}: worker {first.worker} holds it and "
            f"has {left:.0f} s to renew its lease; if that process is gone, the work goes on then"
        )


def _child(run_id: str, settings: Settings, threads: int, cells: Cells, processes: int) -> None:
    import torch

    torch.set_num_threads(threads)
    with (
        stopping() as stop,
        open_database(settings.database_url) as db,
        suppress(KeyboardInterrupt),
    ):
        run_here(db, run_id, settings, stop=stop, cells=cells, processes=processes)
