"""Does long work for readers a piece at a time, and keeps what was found between the pieces."""

import threading
import time
from collections.abc import Callable, Iterator

from transexplain.store.database import Database


class Piecemeal:
    """Work that its steps part into pieces; threads take turns.

    `begin` gives the steps, and forgets what earlier ones have found.
    """

    def __init__(self, begin: Callable[[Database], Iterator[None]]) -> None:
        self.done = False
        self._begin = begin
        self._steps: Iterator[None] | None = None
        self._lock = threading.Lock()

    def go_on(self, db: Database, seconds: float) -> None:
        """Work for about so long, a step at least; once it is done not at all.

        Raises what a step raises; the work begins anew after that.
        """
        until = time.monotonic() + seconds
        if self.done or not self._lock.acquire(timeout=max(0.0, seconds)):
            return
        try:
            if self._steps is None:
                self._steps = self._begin(db)
            while not self.done:
                self.done = next(self._steps, self) is self
                if time.monotonic() > until:
                    break
        except BaseException:
            self._steps = None
            raise
        finally:
            self._lock.release()
