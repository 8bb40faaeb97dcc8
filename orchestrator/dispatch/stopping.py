"""Handles Ctrl-C and SIGTERM: work ends between two batches, and nothing is lost.

The first Ctrl-C requests a stop. The second ends the process at once, also while a model loads, a
report is drawn or the process waits for children.
"""

import atexit
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.process import BaseProcess
from types import FrameType
from typing import NamedTuple, NoReturn

INTERRUPTED = 130
_SHOW_CURSOR = b"\x1b[?25h"  # a progress bar hides it


@contextmanager
def stopping() -> Iterator[threading.Event]:
    """An event that SIGINT and SIGTERM set while the block runs; a second Ctrl-C ends at once.

    Only the main thread can receive signals; elsewhere the event is never set.
    """
    event = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield event
        return

    def handler(number: int, frame: FrameType | None) -> None:
        event.set()
        signal.signal(signal.SIGINT, _end)

    before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield event
    finally:
        for number, previous in before.items():
            # the process ends now: the next Ctrl-C still counts as the second
            again = number == signal.SIGINT and event.is_set() and previous is _request_stop
            signal.signal(number, _end if again else previous)


def handle_interrupts() -> None:
    """From now on Ctrl-C ends this process with a line and 130; where work goes on, see `stopping`.

    To be called by the main thread of a process of our own.
    """
    signal.signal(signal.SIGINT, _request_stop)
    # Python's last steps have no handlers; what is registered first is called last
    atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)


def interrupted() -> bool:
    """Return whether a Ctrl-C came since `handle_interrupts`: the next ends the process at once."""
    return signal.getsignal(signal.SIGINT) is _end


def end_on_interrupt() -> None:
    """Let a Ctrl-C end this process at once, without a traceback: its work is done."""
    signal.signal(signal.SIGINT, _end)


def start_ignoring_interrupts(process: BaseProcess) -> None:
    """Start a child that ignores Ctrl-C at the terminal until it handles it itself.

    While it imports, nobody could answer for it but Python, with a traceback; its parent ends it.
    """
    if threading.current_thread() is not threading.main_thread():
        process.start()
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        process.start()
    finally:
        signal.signal(signal.SIGINT, before)


def _request_stop(number: int, frame: FrameType | None) -> NoReturn:
    signal.signal(signal.SIGINT, _end)
    _say(b"interrupted\n")
    raise KeyboardInterrupt


def _end(number: int, frame: FrameType | None) -> NoReturn:
    """End without another step of Python: handlers and threads may hang, or print tracebacks."""
    processes = sys.modules.get("multiprocessing")
    if processes is not None:
        if processes.parent_process() is not None:
            os._exit(INTERRUPTED)  # the parent says it
        for child in processes.active_children():
            child.kill()
    _say(b"interrupted again: ended at once\n")
    os._exit(INTERRUPTED)


def _say(line: bytes) -> None:
    with suppress(OSError):  # nobody reads it
        os.write(2, _SHOW_CURSOR + b"\n" + line if os.isatty(2) else line)


def _ignored(*_: object) -> None: ...


class Reports(NamedTuple):
    """Whom the work on a run reports to."""

    #: the number of items that were finished since the call before
    items: Callable[[int], None] = _ignored
    #: the number of passes of checks since then, which finish no item; and the share of all
    #: computing so far that checks took, 0 to 1
    checks: Callable[[int, float], None] = _ignored
    #: why nothing can be done but to wait for somebody else
    wait: Callable[[str], None] = _ignored


NOBODY = Reports()
