"""Renews the lease on a shard from its own thread while the work makes progress."""

import faulthandler
import logging
import os
import re
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from pathlib import Path
from typing import Self

from transexplain.errors import DatabaseError
from transexplain.store import shards
from transexplain.store.database import Database
from transexplain.store.runs import Claim
from transexplain.text.error_frames import frames_of_thread
from workers import logs
from workers.work_meter import WorkMeter

log = logging.getLogger(__name__)

#: what Linux numbers the namespace of processes that are in no container
_HOST_PROCESSES = 0xEFFFFFFC


def worker_name() -> str:
    """Host, process and a random part: never the same for two lives of a process."""
    return f"{worker_prefix(os.getpid())}{uuid.uuid4().hex[:6]}"


def worker_prefix(pid: int) -> str:
    """The prefix of the names of the workers of one process on this host."""
    return f"{_here()}:{pid}:"


def free_dead(db: Database, run_id: str | None = None) -> int:
    """End the leases of dead processes of this host; return the number of freed shards.

    Of one run, or, None, of every run that is running. A process whose number another one has now
    counts as alive: its leases end by themselves.
    """
    mine = re.compile(rf"{re.escape(_here())}:(\d+):")
    pids = {int(match[1]) for name in shards.holders(db, run_id) if (match := mine.match(name))}
    return sum(shards.expire(db, run_id, worker_prefix(pid)) for pid in pids if not _lives(pid))


def _here() -> str:
    """The host, and the container where process numbers are its own."""
    host = socket.gethostname()
    try:
        space = Path("/proc/self/ns/pid").stat().st_ino
    except OSError:  # no Linux
        return host
    return host if space == _HOST_PROCESSES else f"{host}/{space}"


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):  # another user's; a number that is not of this system
        pass
    return True


EXIT_HUNG = 70  #: exit status of a process that ended itself because its work hung
#: seconds between breadcrumbs of a first attempt: a write costs about 1 ms, a batch on a GPU 20
NOTE_EVERY = 0.25
#: seconds that loading the model and reading the first items may take: more than a batch may
START_DEADLINE = 900.0
_NAMED = 3
_SHOW_CURSOR = "\x1b[?25h"  # a progress bar hides it, and cannot give it back any more


def end_process(message: str) -> None:
    """Say what hung and where, then end without waiting for anything: nothing else would work."""
    try:
        if (line := logs.last_line(message)) is None:
            out, cursor = sys.stderr, _SHOW_CURSOR if sys.stderr.isatty() else ""
            out.write(f"{cursor}\n{message}\n")
        else:  # past the logs, which may wait for a lock
            out = sys.__stderr__ or sys.stderr
            out.write(f"{line}\n")
        out.flush()
        # the one that Celery puts in its place is no file
        faulthandler.dump_traceback(sys.__stderr__ or sys.stderr)
    finally:  # whatever becomes of the words: a process that hangs must not stay
        os._exit(EXIT_HUNG)


class LeaseKeeper:
    """Observer of one shard's work that holds its lease and notes its batches.

    The lease is renewed at a third of its length. Where no batch began and no item ended within
    `item_deadline` seconds (until the first batch: `START_DEADLINE`, if that is longer), the
    keeper records that and calls `on_hang`, which ends the process.
    When the lease is lost or the run cancelled, `should_stop` turns true and the work ends before
    its next batch.

    A first attempt notes its batches at most every `NOTE_EVERY` seconds, so its breadcrumb may be
    a few short batches old. Where a note would have to wait, and always for a device that is fast
    (`beside`), the keeper's thread writes it while the batch is computed. A later attempt notes
    all, and when a batch is over, too: its breadcrumb is what the process died in.
    """

    def __init__(  # noqa: PLR0913 - each is a setting of its own, most have a default
        self,
        db: Database,
        claim: Claim,
        *,
        lease_seconds: float,
        item_deadline: float,
        meter: WorkMeter | None = None,
        stop: threading.Event | None = None,
        revoked: Callable[[], bool] | None = None,
        on_hang: Callable[[str], None] = end_process,
        beside: bool = False,
    ) -> None:
        self._db = db
        self._beside = beside
        self._claim = claim
        self._lease_seconds = lease_seconds
        self._item_deadline = item_deadline
        self._deadline = max(item_deadline, START_DEADLINE)  # until the first batch
        self._meter = meter or WorkMeter()
        self._on_hang = on_hang
        self._stop_requested = stop or threading.Event()
        self._revoked = revoked or (lambda: False)
        self._lost = threading.Event()
        self._saving = self._saved = False
        self._ended = threading.Event()
        self._exact = claim.attempt > 1
        self._batch: tuple[str, ...] = ()
        self._left: set[str] = set()
        self._working: int | None = None  # the thread that computes
        self._noted = float("-inf")
        self._unwritten: Sequence[str] | None = None  # a batch whose note would have had to wait
        self._wake = threading.Event()  # ended, or something is unwritten
        self._moved = time.monotonic()
        keep = partial(copy_context().run, self._keep)  # its lines belong to the same shard
        self._thread = threading.Thread(target=keep, name="lease-keeper", daemon=True)

    def __enter__(self) -> Self:
        self._moved = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._wake.set()
        self._thread.join()

    def batch_started(self, item_ids: Sequence[str]) -> None:
        """A batch begins: progress, and the breadcrumb."""
        self._begun(item_ids)
        self._meter.batch_started(len(item_ids))

    def check_started(self, item_ids: Sequence[str]) -> None:
        """A batch of a check begins: the same."""
        self._begun(item_ids)
        self._meter.check_started(len(item_ids))

    def _begun(self, item_ids: Sequence[str]) -> None:
        self._moved, self._deadline = time.monotonic(), self._item_deadline
        self._batch, self._left = tuple(item_ids), set(item_ids)
        self._working = threading.get_ident()
        if self._exact:
            self._note(self._batch)
        elif self._moved - self._noted >= NOTE_EVERY:
            if self._beside:
                self._note_soon(self._batch)
            else:
                self._note(self._batch, wait=False)

    def item_done(self, *item_ids: str) -> None:
        """Items ended: progress."""
        self._moved, self._deadline = time.monotonic(), self._item_deadline
        self._left.difference_update(item_ids)
        if self._batch and not self._left:
            self._batch = ()
            if self._exact:  # what ends the process from here on is not the batch's doing
                self._note(())
        self._meter.item_done(len(item_ids))

    def touch(self) -> None:
        """Count as progress although no item ended: this shard waits for another."""
        self._moved = time.monotonic()

    def saving(self) -> None:
        """The shard is being committed: the commit says whether the lease still stood."""
        self._saving = True

    def saved(self) -> None:
        """The shard is committed: there is no lease any more to renew, or to lose."""
        self._saved = True

    def should_stop(self) -> bool:
        """Return whether the lease is lost, the run cancelled, or process or task should end."""
        return self._lost.is_set() or self._stop_requested.is_set() or self._revoked()

    @property
    def lost(self) -> bool:
        """Return whether another worker may hold the shard now."""
        return self._lost.is_set()

    def _note(self, batch: Sequence[str], *, wait: bool = True) -> None:
        try:
            if not shards.note(self._db, self._claim, batch, wait=wait):
                self._lost.set()
        except DatabaseError:
            if wait:
                return  # without a breadcrumb the work is worth as much
            self._note_soon(batch)
        self._noted = time.monotonic()

    def _note_soon(self, batch: Sequence[str]) -> None:
        self._noted, self._unwritten = time.monotonic(), batch
        self._wake.set()

    def _keep(self) -> None:
        renewed = time.monotonic()
        while True:
            self._wake.wait(self._pause(renewed))
            self._wake.clear()
            if self._ended.is_set():
                return
            if self._unwritten is not None and not (self._lost.is_set() or self._saved):
                batch, self._unwritten = self._unwritten, None
                self._note(batch)
            if time.monotonic() - self._moved > self._deadline:
                self._hung()
                return
            if time.monotonic() - renewed >= self._lease_seconds / 3:
                renewed = time.monotonic()
                self._renew()

    def _pause(self, renewed: float) -> float:
        now = time.monotonic()
        next_beat = renewed + self._lease_seconds / 3 - now
        hung = self._moved + self._deadline + 0.01 - now
        # the deadline grows short when the first batch begins, while this thread sleeps
        return max(0.01, min(next_beat, hung, self._item_deadline))

    def _renew(self) -> None:
        if self._lost.is_set() or self._saved:
            return  # but a hang still ends the process: it must not hold the device
        # a batch that began meanwhile is noted by itself where that matters
        breadcrumb = None if self._exact else self._batch
        try:
            renewed = shards.renew(self._db, self._claim, self._lease_seconds, breadcrumb)
            if not (renewed or self._saving):
                self._lost.set()
                log.warning("the lease is lost: another worker has the shard, or it was cancelled")
        except Exception as error:  # noqa: BLE001 - out of memory, say; who else would see a hang?
            # the lease still stands; the next beat or the save will tell
            reason = error if isinstance(error, DatabaseError) else type(error).__name__
            log.warning("the lease is not renewed: %s", reason)

    def _hung(self) -> None:
        batch, attempt = self._batch, self._claim.attempt
        cause = f"attempt {attempt}: it hung, no progress within {self._deadline:g} seconds"
        with suppress(Exception):  # without it the lease runs out by itself
            shards.hang(self._db, self._claim, batch, cause, frames_of_thread(self._working))
        self._lost.set()
        named = ", ".join(map(repr, batch[:_NAMED])) + (", ..." if len(batch) > _NAMED else "")
        what = f"item{'s' if len(batch) > 1 else ''} {named}" if batch else "work outside a batch"
        self._on_hang(
            f"run {self._claim.run_id} shard {self._claim.shard.index}: {what} made no progress "
            f"within {self._deadline:g} seconds; this process ends (status {EXIT_HUNG})"
        )
