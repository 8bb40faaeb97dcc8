"""Calls made in another thread, one after the other, while this one goes on."""

import queue
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import copy_context

Call = Callable[[], None]
#: calls that may wait: who makes them faster than they are done waits, so that memory is bounded
WAITING = 64
#: seconds after which a thread lets another one run: who comes back from a device has a batch to
#: begin, and would wait for Python's usual 5 ms while the records of the last one are made
_TURN = 0.0005


class _OtherThread(threading.Thread):
    def __init__(self) -> None:
        super().__init__(name="finishing", daemon=True)
        self._calls: queue.Queue[Call | None] = queue.Queue(WAITING)
        self._context = copy_context()
        self.error: BaseException | None = None

    def soon(self, call: Call) -> None:
        """Have it called; raises what an earlier call raised."""
        if self.error is not None:
            raise self.error
        self._calls.put(call)

    def end(self) -> None:
        """Wait for all calls; none is made after one that raised."""
        self._calls.put(None)
        self.join()

    def run(self) -> None:
        self._context.run(self._run)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            if self.error is None:
                try:
                    call()
                except BaseException as error:  # noqa: BLE001 - raised in the thread that called
                    self.error = error


@contextmanager
def other_thread() -> Iterator[Callable[[Call], None]]:
    """A block with a function that has calls made by another thread, in their order.

    The block ends when all are done, and raises what one of them raised; none is made after that.
    """
    thread = _OtherThread()
    before = sys.getswitchinterval()
    sys.setswitchinterval(min(before, _TURN))
    thread.start()
    try:
        yield thread.soon
    finally:
        thread.end()
        sys.setswitchinterval(before)
    if thread.error is not None:
        raise thread.error
