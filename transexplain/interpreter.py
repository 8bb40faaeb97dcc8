"""Settings of the Python interpreter that are changed while some work is under way.

They are those of the whole process: where several threads want one changed, the first to begin
changes it and the last to end puts it back.
"""

import gc
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Generic, TypeVar

Value = TypeVar("Value")

_ALLOCATIONS = 50_000  #: records made between two garbage collections; Python's default is 700
#: seconds after which a thread lets another one run: who comes back from a device has a batch to
#: begin, and would wait for Python's usual 5 ms while the records of the last one are made
_TURN = 0.0005


class _Setting(Generic[Value]):
    """One setting, and how many blocks want it changed."""

    def __init__(
        self,
        read: Callable[[], Value],
        write: Callable[[Value], None],
        changed: Callable[[Value], Value],
    ) -> None:
        self._read, self._write, self._changed = read, write, changed
        self._before: list[Value] = []  # one while a block is under way
        self._blocks = 0
        self._lock = threading.Lock()

    @contextmanager
    def block(self) -> Iterator[None]:
        with self._lock:
            self._blocks += 1
            if self._blocks == 1:
                self._before.append(self._read())
                self._write(self._changed(self._before[0]))
        try:
            yield
        finally:
            with self._lock:
                self._blocks -= 1
                if not self._blocks:
                    self._write(self._before.pop())


_collections = _Setting(
    gc.get_threshold,
    lambda threshold: gc.set_threshold(*threshold),
    lambda before: (max(before[0], _ALLOCATIONS), *before[1:]),
)
_turns = _Setting(sys.getswitchinterval, sys.setswitchinterval, lambda before: min(before, _TURN))


def few_collections() -> AbstractContextManager[None]:
    """A block in which garbage is looked for rarely.

    The records of a shard all stay, and a collection of everything reads through what torch and
    the model hold, too: at the default it took a third of the time of a text.
    """
    return _collections.block()


def short_turns() -> AbstractContextManager[None]:
    """A block in which threads change after half a millisecond, where others wait."""
    return _turns.block()
