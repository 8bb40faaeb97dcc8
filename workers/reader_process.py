"""The process that reads and encodes: parts come by a pipe, entries go back by it.

It ends when the pipe ends, that is with its parent, however that dies. It ignores signals that are
sent to the process group: its parent finishes the batch first. Where it hangs and no parent is left
to end it, it ends itself.
"""

import faulthandler
import math
import mmap
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import weakref
from collections.abc import Iterator, MutableSequence, Sequence
from contextlib import suppress
from multiprocessing import reduction
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

import numpy as np

from transexplain.text.error_frames import keep_frames
from workers import logs

if TYPE_CHECKING:
    from transexplain.explaining.explain_request import Entry
    from transexplain.explaining.reading import ReadPart

_ALIGNED = 64  # bytes: where arrays begin
_SPARE = 2  #: free pieces of memory that are kept


class Sender:
    """Sends entries; large arrays go by memory that both map, where the system has it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._held: dict[int, tuple[int, int]] = {}  # number -> file descriptor, bytes
        self._free: set[int] = set()
        self._next = 0

    def released(self, numbers: Sequence[int]) -> None:
        """Take back pieces of memory, as `PipeReceiver.free` names them."""
        self._free.update(numbers)

    def send(self, entries: "Sequence[Entry]") -> None:
        """Send entries, of which the large arrays are copied once."""
        from transexplain.explaining.reading import packed

        document, buffers = packed(entries)
        raw = [buffer.raw() for buffer in buffers]
        sizes = [array.nbytes for array in raw]
        if not raw or not hasattr(os, "memfd_create"):
            self._connection.send(("done", document, sizes, None))
            for array in raw:
                self._connection.send_bytes(array)
            return
        places = list(_places(sizes))
        number, dropped = self._chosen(places[-1][1])
        fresh = number not in self._held
        descriptor = self._open(number, places[-1][1]) if fresh else self._held[number][0]
        for (begin, _), array in zip(places, raw, strict=True):
            left, at = array, begin
            while left:
                wrote = os.pwrite(descriptor, left, at)
                left, at = left[wrote:], at + wrote
        self._connection.send(("done", document, sizes, (number, fresh, dropped)))
        if fresh:
            reduction.send_handle(self._connection, descriptor, os.getppid())

    def _chosen(self, size: int) -> tuple[int, list[int]]:
        """The number of memory of at least `size` bytes, and those that are given up."""
        by_size = sorted(self._free, key=lambda name: self._held[name][1])
        chosen = next((name for name in by_size if self._held[name][1] >= size), None)
        others = [name for name in by_size if name != chosen]
        dropped = others if chosen is None else others[:-_SPARE]
        for name in dropped:
            os.close(self._held.pop(name)[0])
        self._free.difference_update([chosen, *dropped])
        if chosen is None:
            chosen, self._next = self._next, self._next + 1
        return chosen, dropped

    def _open(self, number: int, size: int) -> int:
        descriptor = os.memfd_create("transexplain", os.MFD_CLOEXEC)
        self._held[number] = descriptor, size
        os.ftruncate(descriptor, size)
        return descriptor


class PipeReceiver:
    """Receives what a `Sender` at the other end of a pipe sends, and says what is free again."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._maps: dict[int, mmap.mmap] = {}
        self._free: list[int] = []

    def free(self) -> list[int]:
        """Numbers of pieces of memory to which nothing that was received refers any more."""
        return [self._free.pop() for _ in range(len(self._free))]

    def received(
        self, document: bytes, sizes: list[int], memory: tuple[int, bool, list[int]] | None
    ) -> Any:
        """The entries that `Sender.send` sent after it sent these three."""
        from transexplain.explaining.reading import unpacked

        if memory is None:
            return unpacked(document, [bytearray(self._connection.recv_bytes()) for _ in sizes])
        number, fresh, dropped = memory
        for name in dropped:
            del self._maps[name]
        places = list(_places(sizes))
        if fresh:
            descriptor = reduction.recv_handle(self._connection)
            try:
                self._maps[number] = mmap.mmap(descriptor, 0)
            finally:
                os.close(descriptor)
        whole = np.frombuffer(self._maps[number], dtype=np.uint8)
        # every array that is made of a view of it keeps it alive
        weakref.finalize(whole, self._free.append, number).atexit = False
        view = whole.data
        return unpacked(document, [view[begin:stop] for begin, stop in places])


def _places(sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The begin and end of arrays of so many bytes, one behind the other."""
    stop = 0
    for size in sizes:
        begin = -(-stop // _ALIGNED) * _ALIGNED
        stop = begin + size
        yield begin, stop


#: what the memory that parent and child share holds
HAND, MOVES = range(2)  # the row being read, or NOBODY; how often that changed
NOBODY = -1.0
JOBS = 2  #: runs that a process remembers


def serve(
    connection: Connection,
    hand: MutableSequence[float],
    deadline: float,
    logged: logs.Carried | None = None,
) -> None:
    """Read parts until the pipe ends; `deadline` in seconds is that of one item.

    `logged` is the logging of the process that requests them.
    """
    if logged is not None:
        logs.join(logged)
    follow_parent()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # the processes are the parallelism
    import torch

    torch.set_num_threads(1)
    jobs: dict[str, Any] = {}
    sender = Sender(connection)
    try:
        connection.send(("ready",))
        while True:
            kind, key, content = connection.recv()
            if kind == "job":
                while len(jobs) >= JOBS:
                    del jobs[next(iter(jobs))]
                jobs[key] = _job(content)
                connection.send(("known",))
                continue
            if math.isfinite(deadline):
                faulthandler.dump_traceback_later(2 * deadline + 1, exit=True)
            part, free, known = content
            sender.released(free)
            with logs.fields(**known):
                answer = _answer(jobs[key], part, hand)
            if isinstance(answer, Exception):
                connection.send(("failed", answer))
            else:
                sender.send(answer)
            faulthandler.cancel_dump_traceback_later()
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return  # nobody asks any more


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
        hand[HAND] = NOBODY if row is None else float(row)
        hand[MOVES] += 1

    try:
        return read_part(job, part, in_hand)
    except Exception as error:  # noqa: BLE001 - whatever an item or its file may do
        return portable(error)
    finally:
        in_hand(None)


def portable(error: Exception) -> Exception:
    """The error, or what says the same where it cannot be sent, with its frames."""
    keep_frames(error)
    try:
        same = pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001 - whatever its class does when it is made again
        same = None
    if type(same) is type(error):
        return error
    other = RuntimeError(f"{type(error).__name__}: {error}").with_traceback(error.__traceback__)
    keep_frames(other)
    return other


def follow_parent(
    ignored: Sequence[signal.Signals] = (signal.SIGINT, signal.SIGTERM),
    last: signal.Signals | None = None,
) -> None:
    """Leave signals to the parent process, and end with it: at once, or by the signal `last`."""
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)

    def watch() -> None:
        parent = multiprocessing.parent_process()
        if parent is not None:
            parent.join()
            if last is None:
                os._exit(0)
            os.kill(os.getpid(), last)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


def context() -> Any:
    """The start method: never a fork of this process, which has threads and maybe a card."""
    if "forkserver" not in multiprocessing.get_all_start_methods() or sys.platform == "darwin":
        return multiprocessing.get_context("spawn")
    processes = multiprocessing.get_context("forkserver")
    # what takes seconds to import is imported once, by the process that all others come from
    heavy = ["transexplain.explaining.reading", "transformers.tokenization_utils_base"]
    processes.set_forkserver_preload([*heavy, __name__])
    return processes
