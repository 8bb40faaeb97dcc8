"""Asks for what may hang, in a thread of its own: a wait has an end, many requests cost one look.

Where a server froze, the looks at it stay behind; nobody waits for them.
"""

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

_FRESH = 1.0  #: seconds for which an answer holds
_HUNG = 30.0  #: seconds after which another look begins beside one that hangs
_MOST = 4  #: looks that hang at once; beyond them nobody looks

T = TypeVar("T")


class _Look(threading.Thread, Generic[T]):
    """One look, in a thread that nobody waits for at the end of the process."""

    def __init__(self, ask: Callable[[], T]) -> None:
        super().__init__(name="bounded-look", daemon=True)
        self._ask = ask
        self.begun = time.monotonic()
        self.ended: float | None = None
        self.found: T | None = None
        self.over = threading.Event()

    def run(self) -> None:
        """Ask once."""
        self.found = self._ask()
        self.ended = time.monotonic()
        self.over.set()


class BoundedLooks(Generic[T]):
    """Answers what `ask` finds, which may hang but raises nothing; several threads may ask."""

    def __init__(self, ask: Callable[[], T], *, within: float) -> None:
        """`within`: seconds from the beginning of a look in which its answer is waited for."""
        self._ask = ask
        self._within = within
        self._looks: list[_Look[T]] = []  # those that are under way, and the last one
        self._lock = threading.Lock()

    def begin(self) -> None:
        """Look, unless an answer is still fresh; another thread does."""
        self._look()

    def answer(self) -> T | None:
        """What the last look found, not older than a second; None: nothing in time."""
        look = self._look()
        left = look.begun + self._within - time.monotonic()
        return look.found if look.over.wait(max(0.0, left)) else None

    def _look(self) -> _Look[T]:
        with self._lock:
            now = time.monotonic()
            if self._looks and not _is_old(self._looks[-1], now):
                return self._looks[-1]
            hanging = [one for one in self._looks if one.ended is None]
            if len(hanging) >= _MOST:
                return hanging[-1]
            new = _Look(self._ask)
            self._looks = [*hanging, new]
            new.start()
            return new


def _is_old(look: _Look[T], now: float) -> bool:
    if look.ended is None:
        return now - look.begun > _HUNG
    return now - look.ended > _FRESH
