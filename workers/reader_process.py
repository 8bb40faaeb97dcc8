"""What a process that reads and encodes does: parts come by a pipe, entries go back by it.

It ends when the pipe ends, that is with its parent, however that dies. Signals of the group are
not for it: its parent finishes the batch first. What hangs and cannot be ended by the parent,
because there is none any more, ends itself.
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
from collections.abc import Iterator, MutableSequence, Sequence
from contextlib import suppress
from multiprocessing import reduction
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transexplain.explaining.reading import Entry, Part

#: what the memory that parent and child share holds
HAND, MOVES = range(2)  # the row in hand, or NOBODY; how often that changed
NOBODY = -1.0
_ALIGNED = 64  # bytes: where arrays begin in shared memory
JOBS = 2  #: runs that a process remembers


def serve(connection: Connection, hand: MutableSequence[float], deadline: float) -> None:
    """Read parts until the pipe ends; `deadline` in seconds is that of one item."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, name="parent-watch", daemon=True).start()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # the processes are the parallelism
    import torch

    torch.set_num_threads(1)
    jobs: dict[str, Any] = {}
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
            _answer(connection, jobs[key], content, hand)
            faulthandler.cancel_dump_traceback_later()
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return  # nobody asks any more


def _job(content: bytes) -> Any:
    """The job, and all that takes long the first time: no item is to be blamed for it."""
    from transexplain.data.source_files import verify
    from transexplain.errors import DataSourceError

    job = pickle.loads(content)
    with suppress(DataSourceError):  # told with the first part
        verify(job.plan.dataset)
    return job


def _answer(connection: Connection, job: Any, part: "Part", hand: MutableSequence[float]) -> None:
    from transexplain.explaining.reading import read_part

    def in_hand(row: int | None) -> None:
        hand[HAND] = NOBODY if row is None else float(row)
        hand[MOVES] += 1

    try:
        entries = read_part(job, part, in_hand)
    except Exception as error:  # noqa: BLE001 - raised where the part was asked for
        connection.send(("failed", _portable(error)))
        return
    finally:
        in_hand(None)
    send_entries(connection, entries)


def _portable(error: Exception) -> Exception:
    """The error, or what says the same where it cannot be sent."""
    try:
        same = pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001 - whatever its class does when it is made again
        same = None
    return error if type(same) is type(error) else RuntimeError(f"{type(error).__name__}: {error}")


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(0)


def send_entries(connection: Connection, entries: "Sequence[Entry]") -> None:
    """Send entries; large arrays go by memory that both processes map, where the system has it."""
    from transexplain.explaining.packed_parts import packed

    document, buffers = packed(entries)
    raw = [buffer.raw() for buffer in buffers]
    shared = bool(raw) and hasattr(os, "memfd_create")
    connection.send(("done", document, [one.nbytes for one in raw], shared))
    if not shared:
        for one in raw:
            connection.send_bytes(one)
        return
    descriptor = os.memfd_create("transexplain", os.MFD_CLOEXEC)
    try:
        for (begin, _), one in zip(_places([one.nbytes for one in raw]), raw, strict=True):
            os.lseek(descriptor, begin, os.SEEK_SET)
            left = one
            while left:
                left = left[os.write(descriptor, left) :]
        reduction.send_handle(connection, descriptor, os.getppid())
    finally:
        os.close(descriptor)


def received(connection: Connection, document: bytes, sizes: list[int], shared: bool) -> Any:
    """The entries that `send_entries` sent after it sent these three."""
    from transexplain.explaining.packed_parts import unpacked

    if not shared:
        return unpacked(document, [bytearray(connection.recv_bytes()) for _ in sizes])
    descriptor = reduction.recv_handle(connection)
    try:
        places = list(_places(sizes))
        memory = memoryview(mmap.mmap(descriptor, places[-1][1]))
    finally:
        os.close(descriptor)
    return unpacked(document, [memory[begin:stop] for begin, stop in places])


def _places(sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Where arrays of so many bytes begin and end, one behind the other."""
    stop = 0
    for size in sizes:
        begin = -(-stop // _ALIGNED) * _ALIGNED
        stop = begin + size
        yield begin, stop


def context() -> Any:
    """How processes are begun: never by a fork of this one, which has threads and maybe a card."""
    if "forkserver" not in multiprocessing.get_all_start_methods() or sys.platform == "darwin":
        return multiprocessing.get_context("spawn")
    made = multiprocessing.get_context("forkserver")
    # what takes seconds to import is imported once, by the process that all others come from
    heavy = ["transexplain.explaining.packed_parts", "transformers.tokenization_utils_base"]
    made.set_forkserver_preload([*heavy, __name__])
    return made
