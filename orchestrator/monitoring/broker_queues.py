"""How many messages wait at the broker, by queue, beside what SQL says of shards."""

import logging
from collections.abc import Mapping

from orchestrator.monitoring.bounded_looks import BoundedLooks
from transexplain.errors import TransExplainError
from transexplain.settings import Settings
from workers.queue_names import queues_for

log = logging.getLogger(__name__)

_WITHIN = 2.0  #: seconds in which a broker has to answer


class BrokerQueues:
    """Asks a broker for its queues; one that is away costs its numbers and at most two seconds.

    Several threads may ask; an answer holds for a second. Each change is logged once.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._looks = BoundedLooks(self._look, within=_WITHIN)
        self._away = False

    def begin(self) -> None:
        """Ask now, so that `waiting` has less to wait for."""
        self._looks.begin()

    def waiting(self) -> Mapping[str, int] | None:
        """Messages that wait in each queue of the fleet; None: the broker does not answer."""
        found = self._looks.answer()
        return found if isinstance(found, dict) else None

    def _look(self) -> dict[str, int] | str:
        """The messages of each queue, or why they are not known."""
        from orchestrator.dispatch.queue import depths  # Celery, where a broker is asked alone

        try:
            found = depths(self._settings, queues_for(self._settings))
        except TransExplainError as error:
            return self._noted(str(error))
        except Exception as error:  # noqa: BLE001 - whatever a driver raises: it did not answer
            return self._noted(type(error).__name__)
        if self._away:
            log.info("the broker answers again")
        self._away = False
        return found

    def _noted(self, reason: str) -> str:
        if not self._away:
            log.warning("messages at the broker are not known: %s", reason)
        self._away = True
        return reason
