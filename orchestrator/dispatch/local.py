"""The local executor: this process, or several, over the same SQL claims that a fleet uses."""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType
from typing import TYPE_CHECKING

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


def run_here(
    db: Database,
    run_id: str,
    settings: Settings,
    *,
    model: "LoadedModel | None" = None,
    on_items: OnItems | None = None,
) -> None:
    """Work on a run in this process until nothing is left to claim or to wait for.

    Ctrl-C or SIGTERM gives the shard in hand back and raises KeyboardInterrupt: the run resumes.
    """
    bench = Workbench(db=db, settings=local_settings(settings))
    if on_items is not None:
        bench.on_item = lambda: on_items(1)
    if model is not None:
        bench.models.put(bench.plan(run_id).model, model)
    with _stopping(bench.stop):
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
) -> None:
    """Work on a run in several processes, each with its share of the cores.

    A process that dies costs its lease only: the others take its shard over.
    """
    context = multiprocessing.get_context("spawn")
    threads = max(1, (os.cpu_count() or 1) // processes)
    children = [
        context.Process(target=_child, args=(run_id, settings, threads), name=f"explain-{n}")
        for n in range(processes)
    ]
    for child in children:
        child.start()
    try:
        with _stopping(threading.Event()) as stop:
            seen = _finished(db, run_id)
            while any(child.is_alive() for child in children) and not stop.is_set():
                time.sleep(_POLL)
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
    with open_database(settings.database_url) as db:
        try:
            run_here(db, run_id, settings)
        except KeyboardInterrupt:
            return


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


@contextmanager
def _stopping(event: threading.Event) -> Iterator[threading.Event]:
    """Turn SIGINT and SIGTERM into `event`, so that work ends between two batches."""
    if threading.current_thread() is not threading.main_thread():
        yield event
        return

    def handler(number: int, frame: FrameType | None) -> None:
        event.set()
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a second Ctrl-C ends at once

    before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield event
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)
