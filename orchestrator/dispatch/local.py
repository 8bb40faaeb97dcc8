"""The local executor: this process, or several, over the same SQL claims that a fleet uses."""

import multiprocessing
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Self

from orchestrator.dispatch.stopping import stopping
from transexplain.errors import InfrastructureError
from transexplain.settings import Settings
from transexplain.store import runs, shards
from transexplain.store.database import Database, open_database
from workers.lease import end_process
from workers.shard_work import Workbench, worker_prefix

if TYPE_CHECKING:
    from transexplain.models.base import LoadedModel

#: a local worker that was killed is found out sooner than one across a network
LEASE_SECONDS = 15.0
_POLL = 0.2
_VAIN_DEATHS = 3

#: called with the number of items that were finished since the call before
OnItems = Callable[[int], None]


def local_settings(settings: Settings) -> Settings:
    """The settings with the short lease of local work, unless a shorter one is set."""
    return replace(settings, lease_seconds=min(settings.lease_seconds, LEASE_SECONDS))


def run_local(
    db: Database,
    run_id: str,
    settings: Settings,
    processes: int = 1,
    *,
    model: "LoadedModel | None" = None,
    on_items: OnItems | None = None,
    stop: threading.Event | None = None,
) -> None:
    """Work on a run in this process, or in `processes` children; see `run_here`, `run_processes`.

    `model` is one that is loaded already; children load their own.
    """
    if processes > 1:
        run_processes(db, run_id, settings, processes, on_items=on_items, stop=stop)
    else:
        run_here(db, run_id, settings, model=model, on_items=on_items, stop=stop)


def run_here(
    db: Database,
    run_id: str,
    settings: Settings,
    *,
    model: "LoadedModel | None" = None,
    on_items: OnItems | None = None,
    stop: threading.Event | None = None,
) -> None:
    """Work on a run in this process until nothing is left to claim or to wait for.

    When `stop` is set the shard in hand is given back after its batch and KeyboardInterrupt
    raised: the run resumes. Work that hangs ends the process with a message.
    """

    def hung(message: str) -> None:
        alone = multiprocessing.parent_process() is None  # nobody starts another process
        end_process(f"{message}. `transexplain resume {run_id}` goes on" if alone else message)

    bench = Workbench(
        db=db,
        settings=local_settings(settings),
        stop=stop or threading.Event(),
        on_hang=hung,
    )
    if on_items is not None:
        bench.on_item = lambda: on_items(1)
    if model is not None:
        bench.models.put(bench.plan(run_id).model, model)
    while not bench.stop.is_set():
        if bench.work(run_id) != "nothing":
            continue
        if not _unfinished(db, run_id):
            break
        bench.stop.wait(_POLL)  # others hold the rest; what they lose comes back
    runs.finalise(db, run_id)
    if bench.stop.is_set():
        raise KeyboardInterrupt


def run_processes(
    db: Database,
    run_id: str,
    settings: Settings,
    processes: int,
    *,
    threads: int | None = None,
    on_items: OnItems | None = None,
    stop: threading.Event | None = None,
) -> None:
    """Work on a run in several processes, each with `threads` or with its share of the cores.

    A process that dies costs the batch in its hand: its lease ends, and another process takes its
    place. `stop` ends them all and raises KeyboardInterrupt. Raises InfrastructureError where
    processes die one after the other before they take a shard.
    """
    stop = stop or threading.Event()
    threads = threads or max(1, (os.cpu_count() or 1) // processes)
    with _Children(db, run_id, settings, processes, threads) as children:
        seen = _finished(db, run_id)
        while children.alive() and not stop.wait(_POLL):
            seen = _tell(db, run_id, seen, on_items)
            children.replace_dead()
        if stop.is_set():
            raise KeyboardInterrupt
    _tell(db, run_id, seen, on_items)
    runs.finalise(db, run_id)


class _Children:
    """Child processes that work on one run; those that die are replaced."""

    def __init__(
        self, db: Database, run_id: str, settings: Settings, processes: int, threads: int
    ) -> None:
        self._db, self._run_id = db, run_id
        context = multiprocessing.get_context("spawn")
        self._make = partial(context.Process, target=_child, args=(run_id, settings, threads))
        self._running = [self._make() for _ in range(processes)]
        self._vain = 0  # deaths without a claim in between
        self._claims = 0

    def __enter__(self) -> Self:
        self._claims = runs.claims(self._db, self._run_id)
        for child in self._running:
            child.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for child in self._running:
            if child.is_alive():
                child.terminate()
        for child in self._running:
            child.join()

    def alive(self) -> bool:
        """Whether any child works, or died since the last look and is to be replaced."""
        return any(child.is_alive() or child.exitcode for child in self._running)

    def replace_dead(self) -> None:
        """Start a new process for each that died, after its leases were ended."""
        for place, child in enumerate(self._running):
            if child.is_alive() or not child.exitcode:
                continue
            shards.expire(self._db, self._run_id, worker_prefix(child.pid or 0))
            self._count_death(child.exitcode)
            self._running[place] = self._make()
            self._running[place].start()

    def _count_death(self, exitcode: int) -> None:
        claims = runs.claims(self._db, self._run_id)
        self._vain = self._vain + 1 if claims == self._claims else 0
        self._claims = claims
        if self._vain > _VAIN_DEATHS:
            raise InfrastructureError(
                f"local processes end with status {exitcode} before they take a shard of run "
                f"{self._run_id}; look at their messages above, or try --processes 1"
            )


def _child(run_id: str, settings: Settings, threads: int) -> None:
    import torch

    torch.set_num_threads(threads)
    with (
        stopping() as stop,
        open_database(settings.database_url) as db,
        suppress(KeyboardInterrupt),
    ):
        run_here(db, run_id, settings, stop=stop)


def _tell(db: Database, run_id: str, seen: int, on_items: OnItems | None) -> int:
    now = _finished(db, run_id)
    if on_items is not None and now > seen:
        on_items(now - seen)
    return now


def _finished(db: Database, run_id: str) -> int:
    state = runs.progress(db, run_id)
    return state.items_done + state.items_failed


def _unfinished(db: Database, run_id: str) -> bool:
    """Whether a shard may still come free: queued, or held by somebody else."""
    state = runs.progress(db, run_id)
    return state.state == "running" and bool(state.states["queued"] + state.states["running"])
