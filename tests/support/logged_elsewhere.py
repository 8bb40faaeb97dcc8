"""What another process does to show how its logs are set; it imports little, to be quick."""

import logging
from collections.abc import Callable
from pathlib import Path


def log_what_is_known(prepare: Callable[[], None], path: str) -> None:
    """Prepare the logs and write the line that they would."""
    prepare()
    (handler,) = logging.getLogger().handlers
    record = logging.makeLogRecord({"msg": "closing", "levelname": "WARNING"})
    assert handler.filter(record)
    Path(path).write_text(handler.format(record), encoding="utf-8")
