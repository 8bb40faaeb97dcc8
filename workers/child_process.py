"""Child processes that do one task at a time, so that the end of one says which task ended it.

A child ignores signals that are sent to the process group, as its parent ends it, and it ends with
its parent, however that dies.
"""

import mmap
import multiprocessing
import os
import pickle
import signal
import tempfile
import threading
from collections.abc import Callable, Sequence
from itertools import accumulate
from multiprocessing import reduction, util
from multiprocessing.connection import Connection
from typing import IO, TYPE_CHECKING, Any

from transexplain.text.error_frames import keep_frames

if TYPE_CHECKING:
    from transexplain.explaining.explain_request import Entry

POLL = 0.1  #: seconds
_ALIGNED = 64  #: bytes: where arrays begin
_ENDING = 10.0  #: seconds that a killed process has to be gone
_STARTING = threading.Lock()
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class HungError(Exception):
    """A process sends nothing, and nothing of it moves, for too long."""


def await_message(
    pipe: Connection, seconds: float, moves: Callable[[], object] = lambda: None
) -> None:
    """Wait until the pipe has a message, or its end; `moves` is called meanwhile.

    Raises HungError where nothing comes and `moves` returns the same for so many seconds. They are
    counted by polls: a clock would go on while both processes are stopped.
    """
    before, polls = moves(), 0
    while not pipe.poll(min(POLL, seconds)):
        polls += 1
        if (now := moves()) != before:
            before, polls = now, 0
        elif polls * POLL > seconds:
            raise HungError


class ChildProcess:
    """A process and the pipe to it; `target` gets the other end of the pipe and `args`."""

    def __init__(
        self, name: str, target: Callable[..., None], *args: Any, context: Any = None
    ) -> None:
        context = context or multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self._process = context.Process(
            target=_run, args=(target, theirs, *args), name=name, daemon=True
        )
        with _STARTING:
            # it inherits them: a Ctrl-C at the terminal while it imports is its parent's
            before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
            try:
                self._process.start()
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()
        # at its parent's end it would be sent SIGTERM, which it ignores, and waited for
        util.Finalize(self, _kill, args=(self._process,), exitpriority=20)

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid  # type: ignore[no-any-return]

    def is_alive(self) -> bool:
        """Return whether the process works or waits."""
        return self._process.is_alive()  # type: ignore[no-any-return]

    def kill(self) -> None:
        """End the process, whatever it does; a thread that waits for it gets an EOFError."""
        _kill(self._process)

    def end(self) -> str:
        """End the process and close the pipe; returns how it ended, which may be by itself."""
        self._process.join(POLL)
        self.kill()
        self._process.join(_ENDING)
        self.pipe.close()
        return ended(self._process.exitcode or 0)


def _run(target: Callable[..., None], *args: Any) -> None:
    follow_parent()
    target(*args)


def _kill(process: multiprocessing.Process) -> None:
    if process.exitcode is None:
        process.kill()


def ended(code: int) -> str:
    """How a process with this exit code ended, in words."""
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended ({code})"


def follow_parent(
    ignored: Sequence[signal.Signals] = _SIGNALS, last: signal.Signals | None = None
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


def send_entries(connection: Connection, entries: "list[Entry]") -> None:
    """Send entries, whose large arrays go by memory that both processes map."""
    from transexplain.explaining.reading import packed

    document, buffers = packed(entries)
    arrays = [buffer.raw() for buffer in buffers]
    connection.send(("done", document, [array.nbytes for array in arrays]))
    if arrays:
        with _memory() as memory:
            for array in arrays:
                memory.write(array)
                memory.write(bytes(-array.nbytes % _ALIGNED))
            memory.flush()
            reduction.send_handle(connection, memory.fileno(), os.getppid())


def _memory() -> IO[bytes]:
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("transexplain", os.MFD_CLOEXEC), "w+b")
    return tempfile.TemporaryFile()


def received_entries(connection: Connection, document: bytes, sizes: list[int]) -> "list[Entry]":
    """The entries of `send_entries`, after its message; their arrays keep the memory."""
    from transexplain.explaining.reading import unpacked

    if not sizes:
        return unpacked(document, [])
    descriptor = reduction.recv_handle(connection)
    try:
        memory = memoryview(mmap.mmap(descriptor, 0))
    finally:
        os.close(descriptor)
    begins = accumulate((size + -size % _ALIGNED for size in sizes), initial=0)
    return unpacked(
        document, [memory[begin : begin + size] for begin, size in zip(begins, sizes, strict=False)]
    )
