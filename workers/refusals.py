"""Refused messages: said in the log, counted in SQL, without letting a flood of them matter."""

import logging
import threading
from collections import Counter
from types import TracebackType
from typing import Self

from transexplain.store import dead_letters
from transexplain.store.database import Database
from workers.messages import Refusal

log = logging.getLogger(__name__)

EVERY = 5.0  #: seconds between two writes of one worker
SHOWN = 10  #: refusals in that time that have a line of their own
_LAST_WRITE = 15.0  #: seconds that the end of a worker may wait for its counts to be written


class Refusals:
    """Counts refused messages and adds them to SQL every `EVERY` seconds, from its own thread.

    The first `SHOWN` in that time are logged one by one, all the others in one line. Counts that
    cannot be written are lost: a database that is away must not cost a worker.
    """

    def __init__(self, db: Database, *, every: float = EVERY) -> None:
        self._db = db
        self._every = every
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="refusals", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join(_LAST_WRITE)

    def note(self, refusal: Refusal) -> None:
        """Log and count one message that was refused."""
        with self._lock:
            self._counts[refusal.reason] += 1
            told = self._counts.total()
        if told <= SHOWN:
            log.warning("message refused and dropped, %s", refusal)

    def _keep(self) -> None:
        while not self._ended.wait(self._every):
            self._write()
        self._write()

    def _write(self) -> None:
        with self._lock:
            counts, self._counts = self._counts, Counter()
        if not counts:
            return
        if (total := counts.total()) > SHOWN:
            by_reason = ", ".join(f"{count} {reason}" for reason, count in counts.most_common())
            log.warning("%d messages refused in %g s: %s", total, self._every, by_reason)
        try:
            dead_letters.add(self._db, counts)
        except Exception as error:  # noqa: BLE001 - no count is worth a worker
            log.warning("count of refused messages lost: %s", error)
