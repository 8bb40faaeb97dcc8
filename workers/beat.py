"""Celery beat as a clock: what is due is called in this process, nothing is put on the queue.

The tick and the sweep are idempotent and SQL remembers what they did; a message about them could
only be lost or be late.
"""

import logging
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

from celery.beat import ScheduleEntry, Scheduler, Service

from transexplain.errors import TransExplainError
from transexplain.settings import Settings
from workers.app import make_app

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Duty:
    """Something to call, and how often."""

    call: Callable[[], object]
    seconds: float


class CallingScheduler(Scheduler):  # type: ignore[misc]  # celery has no types
    """A scheduler that calls what is due; it keeps no file and opens no connection."""

    producer = None

    def __init__(self, *args: Any, duties: Mapping[str, Duty], **kwargs: Any) -> None:
        self._duties = duties
        super().__init__(*args, **kwargs)

    def apply_async(
        self, entry: ScheduleEntry, producer: Any = None, advance: bool = True, **_: Any
    ) -> None:
        """Call the entry's duty; what goes wrong is logged and the next time comes."""
        if advance:
            self.reserve(entry)
        try:
            self._duties[entry.task].call()
        except TransExplainError as error:
            log.error("%s: %s", entry.task, error)
        except Exception:
            log.exception("%s failed", entry.task)


def run_beat(settings: Settings, duties: Mapping[str, Duty]) -> None:
    """Call each duty at its interval, until SIGTERM or Ctrl-C."""
    app = make_app(settings)
    app.conf.update(
        result_expires=None,  # or Celery adds a task of its own
        beat_schedule={
            name: {"task": name, "schedule": duty.seconds} for name, duty in duties.items()
        },
    )
    shortest = min(duty.seconds for duty in duties.values())
    scheduler = partial(CallingScheduler, duties=duties)
    service = Service(app, max_interval=min(1.0, shortest), scheduler_cls=scheduler)

    def end(number: int, frame: Any) -> NoReturn:
        service.stop()  # where a library swallows the exception, the loop ends all the same
        raise SystemExit(0)  # an unfinished transaction is rolled back, and made again

    signal.signal(signal.SIGTERM, end)
    log.info("beat: %s", ", ".join(f"{name} every {d.seconds:g} s" for name, d in duties.items()))
    service.start()
