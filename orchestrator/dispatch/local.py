"""The local executor: this process, or several, over the same SQL claims that a fleet uses."""

import multiprocessing
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from orchestrator.dispatch.stopping import stopping
from transexplain.settings import Settings
from transexplain.store import runs, shards
from transexplain.store.database import Database, open_database
from workers.shard_work import Workbench

if TYPE_CHECKING:
    from transexplain.models.base import LoadedModel

#: a local worker that was killed is found out sooner than one across a network
LEASE_SECONDS = 15.0
_POLL = 0.2

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
    raised: the run resumes.
    """
    bench = Workbench(db=db, settings=local_settings(settings), stop=stop or threading.Event())
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
    on_items: OnItems | None = None,
    stop: threading.Event | None = None,
) -> None:
    """Work on a run in several processes, each with its share of the cores.

    A process that dies costs its lease only: the others take its shard over. `stop` ends them
    all and raises KeyboardInterrupt.
    """
    stop = stop or threading.Event()
    context = multiprocessing.get_context("spawn")
    threads = max(1, (os.cpu_count() or 1) // processes)
    children = [
        context.Process(target=_child, args=(run_id, settings, threads), name=f"explain-{n}")
        for n in range(processes)
    ]
    for child in children:
        child.start()
    try:
        seen = _finished(db, run_id)
        while any(child.is_alive() for child in children) and not stop.wait(_POLL):
            seen = _tell(db, run_id, seen, on_items)
        if stop.is_set():
            raise KeyboardInterrupt
    finally:
        for child in children:
            if child.is_alive():
                child.terminate()
            child.join()
    runs.finalise(db, run_id)


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
    if runs.progress(db, run_id).state != "running":
        return False
    return bool(shards.list_shards(db, run_id, states=("queued", "running")))
