"""Sections and clusters of runs, made on request in a process of their own and kept.

One process works at a time, for one job, and is ended where it takes too long. A page that asks
gets what there is at once.
"""

import logging
import multiprocessing
import queue
import signal
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.serve import slow_worker
from orchestrator.serve.replies import RefusedError
from orchestrator.serve.slow_worker import Job, Piece

log = logging.getLogger(__name__)

_LONGEST = 900.0  #: seconds of a job
_KEPT_BYTES = 24 * 2**20  #: of pieces, compressed
_KEPT = 64  #: jobs, those that failed among them
_WAITING = 8  #: jobs
_FRESH = 30.0  #: seconds for which pieces of a run that works, and what failed, are not made again


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """The state and the pieces of a job."""

    at: float | None  #: when it was begun that made this, seconds since the epoch; None: nothing is
    pieces: Sequence[Piece]
    error: str | None
    waiting: bool  #: it is being made, or made anew


@dataclass(slots=True)
class _Kept:
    at: float
    pieces: Sequence[Piece] = ()
    error: str | None = None

    @property
    def bytes(self) -> int:
        return sum(len(piece.packed_html) + len(piece.packed_document) for piece in self.pieces)


class SlowDesk:
    """Several threads may ask; `close` ends what works."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._kept: OrderedDict[Job, _Kept] = OrderedDict()
        self._waiting: set[Job] = set()
        self._jobs: queue.Queue[Job | None] = queue.Queue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._process: Any = None
        self._closed = False

    def found(self, job: Job, *, moving: bool, begin: bool = True) -> Found:
        """The pieces of a job; begins it, with `begin`, where there is nothing fresh.

        `moving`: its run works, so that what was made grows old. Raises RefusedError where too
        many others wait.
        """
        with self._lock:
            kept = self._kept.get(job)
            if kept is not None:
                self._kept.move_to_end(job)
        passes = kept is not None and (moving or kept.error is not None)
        if begin and (kept is None or (passes and time.time() - kept.at > _FRESH)):
            self._ask(job)
        return Found(
            at=None if kept is None else kept.at,
            pieces=() if kept is None else kept.pieces,
            error=None if kept is None else kept.error,
            waiting=job in self._waiting,
        )

    def _ask(self, job: Job) -> None:
        with self._lock:
            if job in self._waiting or self._closed:
                return
            if len(self._waiting) >= _WAITING:
                raise RefusedError(
                    503,
                    "Too much waits",
                    "Too many others wait for what takes long; try again soon.",
                    **{"Retry-After": "30"},
                )
            self._waiting.add(job)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="slow-desk", daemon=True)
                self._thread.start()
        self._jobs.put(job)

    def close(self) -> None:
        """End the process and the thread."""
        with self._lock:
            self._closed, thread, process = True, self._thread, self._process
        self._jobs.put(None)
        if process is not None:
            process.kill()
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        # processes begun here inherit it: a Ctrl-C at the terminal is the server's
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
        while (job := self._jobs.get()) is not None and not self._closed:
            begun = time.time()
            try:
                pieces = self._made(job)
            except Exception as error:  # noqa: BLE001 - no process, no memory: the next may pass
                log.warning("%s of run %s: %s", job.kind, job.run_id, error)
                pieces = "It could not be made; the server's log says why."
            kept = _Kept(begun, error=pieces) if isinstance(pieces, str) else _Kept(begun, pieces)
            self._keep(job, kept)

    def _keep(self, job: Job, pieces: _Kept) -> None:
        with self._lock:
            self._kept[job] = pieces
            self._kept.move_to_end(job)
            while len(self._kept) > _KEPT or (len(self._kept) > 1 and self._bytes() > _KEPT_BYTES):
                self._kept.popitem(last=False)
            self._waiting.discard(job)

    def _bytes(self) -> int:
        return sum(kept.bytes for kept in self._kept.values())

    def _made(self, job: Job) -> Sequence[Piece] | str:
        """The pieces, or why there are none."""
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(
            target=slow_worker.work, args=(theirs, self._url, job), name="slow", daemon=True
        )
        with ours:
            process.start()
            theirs.close()
            with self._lock:
                self._process = process
                if self._closed:
                    process.kill()
            try:
                if not ours.poll(_LONGEST):
                    return f"It was given up after {_LONGEST / 60:g} minutes."
                pieces: Sequence[Piece] | str = ours.recv()
                return pieces
            except (EOFError, OSError):
                return "The process that made it ended, for lack of memory perhaps."
            finally:
                process.kill()
                process.join()
