"""Whether a server can do its work: its database answers and its tables fit, and its broker does.

Anybody may ask, so an answer says nothing but yes or no, and many requests cost one look. A look
runs in a thread of its own: one that hangs, at a server that froze, holds up no answer.
"""

import logging
import threading
from collections.abc import Callable, Sequence

from orchestrator.monitoring.bounded_looks import BoundedLooks
from transexplain.errors import TransExplainError
from transexplain.store.database import Database
from transexplain.store.revisions import require_head

log = logging.getLogger(__name__)

ALIVE_PATH, READY_PATH = "/healthz", "/readyz"
ALIVE, READY, NOT_READY = b"alive\n", b"ready\n", b"not ready\n"

#: raises a TransExplainError where what it asks does not answer
Check = Callable[[], None]
_WITHIN = 5.0  #: seconds in which a look has to end
_ALL_WELL = ""


class Readiness:
    """Answers whether all checks pass; several threads may ask. A change is logged with its why."""

    def __init__(self, checks: Sequence[Check], *, within: float = _WITHIN) -> None:
        self._checks = checks
        self._within = within
        self._looks = BoundedLooks(self._reason, within=within)
        self._ready: bool | None = None
        self._lock = threading.Lock()

    def ready(self) -> bool:
        """Whether the last look, not older than a second, found everything; waits 5 seconds."""
        reason = self._looks.answer()
        self._note(f"no answer in {self._within:g} seconds" if reason is None else reason)
        return reason == _ALL_WELL

    def _reason(self) -> str:
        """Ask one after the other, until one does not answer: why not."""
        try:
            for check in self._checks:
                check()
        except TransExplainError as error:
            return str(error)
        except Exception as error:  # noqa: BLE001 - whatever a driver raises: it did not answer
            return type(error).__name__
        return _ALL_WELL

    def _note(self, reason: str) -> None:
        ready = reason == _ALL_WELL
        with self._lock:
            before, self._ready = self._ready, ready
        if ready and before is False:
            log.info("ready again")
        elif not ready and before is not False:
            log.warning("not ready: %s", reason)


def database_check(db: Database) -> Check:
    """Raises DatabaseError unless the database answers at the revision of this version."""
    return lambda: require_head(db)
