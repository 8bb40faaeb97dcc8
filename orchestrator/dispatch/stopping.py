"""Ctrl-C and SIGTERM as a wish: work ends between two batches, with nothing lost."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


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
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield event
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)
