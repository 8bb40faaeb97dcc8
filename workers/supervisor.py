"""One process per device, each replaced when it ends, until a signal stops the supervisor."""

import logging
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess
from types import FrameType

from transexplain.errors import ConfigurationError, DatabaseError, TransExplainError
from transexplain.settings import Settings
from transexplain.store import shards
from transexplain.store.database import Database
from transexplain.types.plans import SPREAD
from workers.child_process import follow_parent
from workers.device_worker import EXIT_AWAY, EXIT_IDLE, PATIENCE, WorkerOptions, run_worker
from workers.heartbeat import worker_prefix

log = logging.getLogger(__name__)

#: what a child runs; returns its exit code
Work = Callable[[Settings, WorkerOptions], int]
#: receives the process id of a child that died
OnDeath = Callable[[int], None]
_POLL = 0.2  # seconds
_AT_ONCE = 30.0  # seconds of life below which a death counts as one at the start
_LONGEST_PAUSE = 60.0  # seconds
_BAD_REQUEST = ConfigurationError.exit_code


def options_per_device(devices: str, options: WorkerOptions) -> list[WorkerOptions]:
    """The options of each process for `cuda:0,cuda:1`, or `cpu:2` (two processes on the CPU).

    `spread` is one process on all CUDA devices. Without a number of threads every process gets its
    share of the cores. Raises ConfigurationError for a device that cannot be read or an accelerator
    named twice.
    """
    names = [name for word in devices.split(",") for name in _processes(word.strip())]
    twice = {name for name in names if name != "cpu" and names.count(name) > 1}
    if twice:
        raise ConfigurationError(
            f"--devices {devices}: {', '.join(sorted(twice))} is named twice; one process per "
            "device, more would share its memory"
        )
    if SPREAD in names and set(names) - {SPREAD, "cpu"}:
        raise ConfigurationError(
            f"--devices {devices}: {SPREAD} is all CUDA devices, so no other process may have one"
        )
    share = max(1, len(os.sched_getaffinity(0)) // len(names))
    return [
        replace(
            options,
            device=name,
            threads=options.threads or share,
            neighbours=names.count(name),
            crew=len(names),
        )
        for name in names
    ]


def _processes(word: str) -> list[str]:
    kind, _, number = word.partition(":")
    if not kind.isalpha() or (number and not number.isdecimal()) or word.endswith(":"):
        raise ConfigurationError(f"device {word!r} is none of cuda:N, spread, cpu, cpu:PROCESSES")
    if kind != "cpu":
        return [word]
    if number and int(number) < 1:
        raise ConfigurationError(f"device {word!r}: at least one process")
    return ["cpu"] * int(number or 1)


@dataclass(kw_only=True, slots=True)
class _Place:
    """One device's process: the one that runs, or when the next may start."""

    options: WorkerOptions
    process: SpawnProcess | None = None
    started: float = 0.0
    due: float = 0.0
    deaths: int = 0  #: in a row, each at once after the start
    status: int = 0  #: that the last process ended with
    away: float | None = None  #: since when broker or database are
    #: no process is to take its place: the last called its own request wrong, missed a server for
    #: too long, or found nothing to do
    over: bool = False


def supervise(
    settings: Settings,
    crew: Sequence[WorkerOptions],
    *,
    work: Work | None = None,
    on_death: OnDeath | None = None,
) -> int:
    """Keep one process per entry of `crew` running until SIGTERM or SIGINT; returns an exit code.

    The first signal goes on to the children, which finish their batch and give their lease back:
    0. A second one kills them: 128 plus its number. A child that ends is replaced, after a pause
    that grows where it died soon after its start; one that calls its own request wrong is not,
    and where none is left the code is 2. Nor is one that is to end when it is idle and misses the
    broker or the database for `PATIENCE` seconds, or at the signal: 4. One that found nothing to do
    is not either, and where these are the last the code is 0. `on_death` receives the process id of
    every child that died, to free what it held.
    """
    places = [_Place(options=options) for options in crew]
    work = work or partial(run_worker, supervised=True)
    with _signals() as received:
        stops = 0
        while True:
            for number in received[stops : stops + 1]:
                stops += 1
                _pass_on(places, number, kill=stops > 1)
            for place in places:
                pid = _dead_child(place, stopping=stops > 0)
                if pid is not None and on_death is not None:
                    on_death(pid)
                _fill(place, settings, work, stopping=stops > 0)
            running = [place.process for place in places if place.process is not None]
            if stops and not running:
                missed = any(map(_misses_a_server, places))
                return 128 + received[stops - 1] if stops > 1 else EXIT_AWAY if missed else 0
            if all(place.over for place in places):
                return next((place.status for place in places if place.status != EXIT_IDLE), 0)
            wait([process.sentinel for process in running], timeout=_POLL)


def free(db: Database, pid: int) -> None:
    """End the leases of a child that died, so that its shards are free at once."""
    try:
        shards.expire(db, None, worker_prefix(pid))
    except DatabaseError as error:
        log.warning("what process %d held is free when its lease ends: %s", pid, error)


@contextmanager
def _signals() -> Iterator[list[int]]:
    received: list[int] = []

    def handler(number: int, frame: FrameType | None) -> None:
        received.append(number)

    before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


def _pass_on(places: Sequence[_Place], number: int, *, kill: bool) -> None:
    name = signal.Signals(number).name
    log.info(
        "%s: %s", name, "killing the workers" if kill else "workers finish their batch and end"
    )
    for place in places:
        if place.process is not None and place.process.is_alive():
            (place.process.kill if kill else place.process.terminate)()


def _fill(place: _Place, settings: Settings, work: Work, *, stopping: bool) -> None:
    over = stopping or place.over
    if place.process is None and not over and time.monotonic() >= place.due:
        place.process = multiprocessing.get_context("spawn").Process(
            target=_child,
            args=(settings, place.options, work),
            name=f"worker-{place.options.device}",
        )
        place.started = time.monotonic()
        place.process.start()
        log.info("worker on %s: process %d", place.options.device, place.process.pid)


def _dead_child(place: _Place, *, stopping: bool) -> int | None:
    """Note how a child ended and when its place may be taken again; its id, if it died."""
    process = place.process
    if process is None or process.is_alive():
        return None
    process.join()
    code, pid = process.exitcode or 0, process.pid
    process.close()
    lived = time.monotonic() - place.started
    place.process = None
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
    place.status = place.status if code < 0 else code
    message = f"worker on {place.options.device} (process {pid}) {how} after {lived:.0f} s"
    if code == EXIT_IDLE:
        place.over = True
        log.info("worker on %s (process %d) found nothing to do", place.options.device, pid)
        return None
    if stopping or code == 0:
        place.deaths = 0
        log.info("%s", message)
        return pid if code else None
    if code == _BAD_REQUEST:
        place.over = True
        log.error("%s; it is not started again: see its message above", message)
        return pid
    place.away = (place.away or place.started) if _misses_a_server(place) else None
    if place.away is not None and time.monotonic() - place.away >= PATIENCE:
        place.over = True
        log.error("%s; it is not started again: a server is away for too long", message)
        return pid
    place.deaths = place.deaths + 1 if lived < _AT_ONCE else 0
    pause = min(_LONGEST_PAUSE, 2.0 ** (place.deaths - 1)) if place.deaths else 0.0
    place.due = time.monotonic() + pause
    log.warning("%s; another starts in %.0f s", message, pause)
    return pid


def _misses_a_server(place: _Place) -> bool:
    return place.options.until_idle is not None and place.status == EXIT_AWAY


def _child(settings: Settings, options: WorkerOptions, work: Work) -> None:
    # Ctrl-C reaches the whole group of processes; the supervisor passes it on as SIGTERM, and
    # where it was killed nobody else would end a worker
    follow_parent((signal.SIGINT,), signal.SIGTERM)
    try:
        code = work(settings, options)
    except TransExplainError as error:
        log.error("%s", error)
        code = error.exit_code
    sys.exit(code)
