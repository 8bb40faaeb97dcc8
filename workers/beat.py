"""Celery beat: the periodic tasks `transexplain.tick` and `transexplain.sweep`.

They stand in beat's schedule, and beat carries them out in its own process: a message about them
could only be lost or be late, and a sweep mends a broker that has lost messages. They are
idempotent and SQL remembers what they did, so several beats do no harm.
"""

import logging
import signal
from collections.abc import Callable, Mapping
from typing import Any

from celery import Celery
from celery.beat import ScheduleEntry, Scheduler, Service

from transexplain.errors import TransExplainError
from transexplain.settings import Settings
from transexplain.store.revisions import open_database
from workers.app import DUTIES, PERIODIC, make_app

log = logging.getLogger(__name__)


#: name of a task -> what it calls, and every how many seconds
PeriodicTasks = Mapping[str, tuple[Callable[[], object], float]]


class PeriodicScheduler(Scheduler):  # type: ignore[misc]  # celery has no types
    """A scheduler that carries out what is due; it keeps no file and opens no connection."""

    producer = None

    def setup_schedule(self) -> None:
        """Open the store and prepare the tasks of the schedule; raises as `open_database`."""
        if not PERIODIC.keys() & self.app.tasks.keys():
            settings: Settings = self.app.settings
            db = open_database(settings.database_url)  # for as long as this process lives
            seconds = PERIODIC["transexplain.tick"]
            register(self.app, DUTIES.load("periodic tasks")(db, settings, seconds))
        super().setup_schedule()

    def apply_async(
        self, entry: ScheduleEntry, producer: Any = None, advance: bool = True, **_: Any
    ) -> None:
        """Carry out the entry's task; what goes wrong is logged and the next time comes."""
        if advance:
            self.reserve(entry)
        try:
            self.app.tasks[entry.task]()
        except TransExplainError as error:
            log.error("%s: %s", entry.task, error)
        except Exception:
            log.exception("%s failed", entry.task)


def register(app: Celery, tasks: PeriodicTasks) -> None:
    """Make these the tasks of the application's schedule."""
    for name, (call, _) in tasks.items():
        app.task(_task(call), name=name, shared=False)
    app.conf.beat_schedule = {
        name: {"task": name, "schedule": seconds} for name, (_, seconds) in tasks.items()
    }


def _task(call: Callable[[], object]) -> Callable[[], None]:
    def periodic() -> None:  # Celery reads a function's definition, and cannot a lambda's
        call()

    return periodic


def run_beat(settings: Settings, tasks: PeriodicTasks) -> None:
    """Carry out each task at its interval, until SIGTERM or Ctrl-C.

    SIGTERM lets the task in hand end; a second one ends at once, and an unfinished transaction is
    rolled back.
    """
    app = make_app(settings)
    register(app, tasks)
    shortest = min(seconds for _, seconds in tasks.values())
    service = Service(app, max_interval=min(1.0, shortest), scheduler_cls=PeriodicScheduler)

    def end(number: int, frame: Any) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        service.stop()  # the loop ends; an exception from here could land in any library's callback

    signal.signal(signal.SIGTERM, end)
    every = (f"{name} every {seconds:g} s" for name, (_, seconds) in tasks.items())
    log.info("beat: %s", ", ".join(every))
    service.start()
