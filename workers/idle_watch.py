"""Ends a worker once nothing waits that it could do, for batch systems and machines paid by time.

A run that is paused, or that has as many claimed shards as it may have, does not wait. Nor does
a run whose last shards others hold: a lost shard comes back within a lease, for a worker that
lingers.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from transexplain.errors import BrokerError, DatabaseError, InfrastructureError

log = logging.getLogger(__name__)

#: exit status of a supervised process that found nothing to do: its place stays empty
EXIT_IDLE = 72
EXIT_AWAY = InfrastructureError.exit_code
_EVERY = 2.0  #: seconds between two looks
#: seconds that broker or database may be away: a restart, or a standby that takes over
PATIENCE = 120.0


@dataclass(kw_only=True, slots=True)
class IdleWatch:
    """A thread that calls `end`, once, after `linger` seconds in which nothing was to be done.

    Where shards wait and this worker has none their messages may be lost: it sweeps. Where
    the broker or the database is away for `patience` seconds it ends, too, with status 4.
    """

    linger: float
    in_hand: Callable[[], bool]  #: whether this worker has a task under way
    connected: Callable[[], bool]  #: whether it has a broker
    waits: Callable[[], bool]  #: whether a shard waits that it could take; may raise DatabaseError
    sweep: Callable[[], object]  #: sends lost messages again; may raise BrokerError
    end: Callable[[int], None]  #: receives the status
    every: float = _EVERY
    patience: float = PATIENCE
    _over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to look."""
        self._thread = threading.Thread(target=self._watch, name="idle-watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Look no more; the worker ends."""
        self._over.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _watch(self) -> None:
        idle_since = there_at = time.monotonic()
        pause = min(self.every, max(0.05, self.linger))
        while not self._over.wait(pause):
            try:
                idle = self._is_idle()
            except (DatabaseError, BrokerError) as error:
                idle_since, away = time.monotonic(), time.monotonic() - there_at
                log.warning(
                    "whether shards wait is not known, or no message can be sent: %s", error
                )
                if away >= self.patience:
                    log.error("away for %.0f s: this worker ends", away)
                    self.end(EXIT_AWAY)
                    return
                continue
            there_at = time.monotonic()
            if not idle:
                idle_since = there_at
            elif there_at - idle_since >= self.linger:
                log.info("nothing waits for this worker: it ends")
                self.end(EXIT_IDLE)
                return

    def _is_idle(self) -> bool:
        if self.in_hand():
            return False
        if not self.connected():
            raise BrokerError("there is no connection to the broker")
        if not self.waits():
            return True
        self.sweep()
        return False
