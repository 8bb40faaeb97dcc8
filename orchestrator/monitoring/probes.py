"""Probes of the store and the broker, each in a thread of its own: every wait has an end.

Where a server froze, the looks at it stay behind; nobody waits for them.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

from transexplain.errors import TransExplainError
from transexplain.settings import Settings
from transexplain.store.database import Database
from transexplain.store.revisions import require_head
from workers.queue_names import queues_for

_FRESH = 1.0  #: seconds for which an answer holds
_HUNG = 30.0  #: seconds after which another look begins while the first hangs
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
        """The result of the last look, not older than a second; None: nothing in time."""
        look = self._look()
        left = look.begun + self._within - time.monotonic()
        return look.found if look.over.wait(max(0.0, left)) else None

    def _look(self) -> _Look[T]:
        with self._lock:
            now = time.monotonic()
            if self._looks and not _is_old(self._looks[-1], now):
                return self._looks[-1]
            hanging = [look for look in self._looks if look.ended is None]
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


log = logging.getLogger(__name__)


class NotedChanges:
    """Logs that something is away, with the reason, and that it is back: each change once."""

    def __init__(self, away: str, back: str) -> None:
        self._texts = away, back
        self._away = False
        self._lock = threading.Lock()

    def note(self, reason: str | None) -> None:
        """Note what a look found; None: all is well."""
        with self._lock:
            before, self._away = self._away, reason is not None
        away, back = self._texts
        if reason is not None and not before:
            log.warning(away, reason)
        elif reason is None and before:
            log.info(back)


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
        self._changes = NotedChanges("not ready: %s", "ready again")

    def ready(self) -> bool:
        """Return whether a look, not older than a second, succeeded; waits 5 seconds."""
        reason = self._looks.answer()
        late = f"no answer in {self._within:g} seconds"
        self._changes.note(late if reason is None else reason or None)
        return reason == _ALL_WELL

    def _reason(self) -> str:
        """Call the probes in turn until one fails; return its reason."""
        try:
            for check in self._checks:
                check()
        except TransExplainError as error:
            return str(error)
        except Exception as error:  # noqa: BLE001 - whatever a driver raises: it did not answer
            return type(error).__name__
        return _ALL_WELL


def database_check(db: Database) -> Check:
    """Raises DatabaseError unless the database answers at the revision of this version."""
    return lambda: require_head(db)


_BROKER_WITHIN = 2.0  #: seconds in which a broker has to answer


class BrokerQueues:
    """Asks a broker for its queues; one that is away costs its numbers and at most two seconds.

    Several threads may ask; an answer holds for a second. Each change is logged once.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._looks = BoundedLooks(self._look, within=_BROKER_WITHIN)
        self._changes = NotedChanges(
            "messages at the broker are not known: %s", "the broker answers again"
        )

    def begin(self) -> None:
        """Ask now, so that `waiting` has less to wait for."""
        self._looks.begin()

    def waiting(self) -> Mapping[str, int] | None:
        """Messages that wait in each queue of the fleet; None: the broker does not answer."""
        answer = self._looks.answer()
        return answer if isinstance(answer, dict) else None

    def _look(self) -> dict[str, int] | str:
        """The messages of each queue, or why they are not known."""
        from orchestrator.dispatch.queue import depths  # imports Celery

        try:
            messages = depths(self._settings, queues_for(self._settings))
        except Exception as error:  # noqa: BLE001 - whatever a driver raises: it did not answer
            reason = str(error) if isinstance(error, TransExplainError) else type(error).__name__
            self._changes.note(reason)
            return reason
        self._changes.note(None)
        return messages
