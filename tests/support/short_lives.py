"""What children of a test's supervisor or executor run; imports next to nothing.

Every child imports the module that its function is of: a test's own takes seconds.
"""

import os
import signal
import threading
import time
from typing import TYPE_CHECKING

from transexplain.errors import ConfigurationError, DatabaseError
from transexplain.settings import Settings

if TYPE_CHECKING:
    from workers.device_worker import WorkerOptions


def ends_at_once(*_: object) -> None:
    os._exit(5)


def begin(settings: Settings, options: "WorkerOptions") -> None:
    with (settings.snapshot_dir / "lives").open("a", encoding="utf-8") as file:
        file.write(f"{options.device} {os.getpid()} {options.threads}\n")


def patient(settings: Settings, options: "WorkerOptions") -> int:
    """Ends gracefully at SIGTERM, and leaves a note that it did."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    begin(settings, options)
    stop.wait(60)
    (settings.snapshot_dir / f"graceful-{os.getpid()}").touch()
    return 0


def deaf(settings: Settings, options: "WorkerOptions") -> int:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    begin(settings, options)
    time.sleep(60)
    return 0


def hangs_up(settings: Settings, options: "WorkerOptions") -> int:
    begin(settings, options)
    return 70


def misses_its_database(settings: Settings, options: "WorkerOptions") -> int:
    begin(settings, options)
    raise DatabaseError("the database is away")


def refuses(settings: Settings, options: "WorkerOptions") -> int:
    begin(settings, options)
    raise ConfigurationError(f"device {options.device} is not there")
