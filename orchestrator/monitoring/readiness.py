"""Whether a server can do its work: its database answers and its tables fit, and its broker does.

Anybody may ask, so an answer says nothing but yes or no, and many requests cost one look. A look
runs in a thread of its own: one that hangs, at a server that froze, holds up no answer.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence

from transexplain.errors import TransExplainError
from transexplain.store.database import Database
from transexplain.store.revisions import require_head

log = logging.getLogger(__name__)

ALIVE_PATH, READY_PATH = "/healthz", "/readyz"
ALIVE, READY, NOT_READY = b"alive\n", b"ready\n", b"not ready\n"

#: raises a TransExplainError where what it asks does not answer
Check = Callable[[], None]
_WITHIN = 5.0  #: seconds in which a look has to end
_FRESH = 1.0  #: seconds for which its answer holds
_HUNG = 30.0  #: seconds after which another one begins beside it
_MOST = 4  #: looks that hang at once; beyond them nobody looks


class _Look(threading.Thread):
    """One look, in a thread that nobody waits for at the end of the process."""

    def __init__(self, checks: Sequence[Check]) -> None:
        super().__init__(name="readiness", daemon=True)
        self._checks = checks
        self.begun = time.monotonic()
        self.ended: float | None = None
        self.reason: str | None = None  #: why not; None: ready
        self.over = threading.Event()

    def run(self) -> None:
        """Ask one after the other, until one does not answer."""
        try:
            for check in self._checks:
                check()
        except TransExplainError as error:
            self.reason = str(error)
        except Exception as error:  # noqa: BLE001 - whatever a driver raises: it did not answer
            self.reason = type(error).__name__
        self.ended = time.monotonic()
        self.over.set()


class Readiness:
    """Answers whether all checks pass; several threads may ask. A change is logged with its why."""

    def __init__(self, checks: Sequence[Check], *, within: float = _WITHIN) -> None:
        self._checks = checks
        self._within = within
        self._looks: list[_Look] = []  # those that are under way, and the last one
        self._ready: bool | None = None
        self._lock = threading.Lock()

    def ready(self) -> bool:
        """Whether the last look, not older than a second, found everything; waits 5 seconds."""
        look = self._look()
        in_time = look.over.wait(self._within)
        found = in_time and look.reason is None
        self._note(found, look.reason if in_time else f"no answer in {self._within:g} seconds")
        return found

    def _look(self) -> _Look:
        with self._lock:
            now = time.monotonic()
            if self._looks and not self._is_old(self._looks[-1], now):
                return self._looks[-1]
            hanging = [one for one in self._looks if one.ended is None]
            if len(hanging) >= _MOST:
                return hanging[-1]
            new = _Look(self._checks)
            self._looks = [*hanging, new]
            new.start()
            return new

    def _is_old(self, look: _Look, now: float) -> bool:
        if look.ended is None:
            return now - look.begun > _HUNG
        return now - look.ended > _FRESH

    def _note(self, ready: bool, reason: str | None) -> None:
        with self._lock:
            before, self._ready = self._ready, ready
        if ready and before is False:
            log.info("ready again")
        elif not ready and before is not False:
            log.warning("not ready: %s", reason)


def database_check(db: Database) -> Check:
    """Raises DatabaseError unless the database answers at the revision of this version."""
    return lambda: require_head(db)
