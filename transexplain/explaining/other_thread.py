"""Calls made in another thread, one after the other, while this one goes on."""

import queue
import threading
from collections.abc import Callable
from contextvars import copy_context
from functools import partial

from transexplain.interpreter import short_turns

Call = Callable[[], None]
#: calls that may wait: who makes them faster than they are done waits, so that memory is bounded
WAITING = 64


class OtherThread(threading.Thread):
    """A thread that makes the calls it is given, in their order, from its `start` to its `end`."""

    def __init__(self) -> None:
        super().__init__(name="finishing", daemon=True)
        self._calls: queue.Queue[Call | None] = queue.Queue(WAITING)
        self._error: BaseException | None = None
        self._ended = False

    def soon(self, call: Call) -> None:
        """Have it called, in the context of now; raises what an earlier call raised."""
        if self._error is not None:
            raise self._error
        self._calls.put(partial(copy_context().run, call))

    def end(self) -> None:
        """Let it end after the calls that it has; none is made after one that raised."""
        if not self._ended:
            self._ended = True
            self._calls.put(None)

    def over(self) -> None:
        """Wait for the last call; raises what one of them raised."""
        self.join()
        if self._error is not None:
            raise self._error

    def run(self) -> None:
        """Make the calls."""
        with short_turns():
            self._run()

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            if self._error is None:
                try:
                    call()
                except BaseException as error:  # noqa: BLE001 - raised in the thread that called
                    self._error = error
