"""Logs of workers: lines to read, or one JSON object each, with the run and shard."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal, cast, get_args

from pythonjsonlogger.json import JsonFormatter

from transexplain.errors import ConfigurationError

Format = Literal["text", "json"]
_FIELDS = ("worker", "run", "shard", "attempt")
_current: ContextVar[dict[str, Any]] = ContextVar("fields", default={})  # noqa: B039 - replaced, never changed


def form_of(text: str) -> Format:
    """The format called so; raises ConfigurationError for another."""
    if text not in get_args(Format):
        raise ConfigurationError(f"log format {text!r}: use {' or '.join(get_args(Format))}")
    return cast("Format", text)


def configure(form: Format) -> None:
    """Send this process's logs to standard error, from level INFO on.

    JSON objects hold time, level, logger, message, and worker, run, shard and attempt where the
    line is about one.
    """
    handler = logging.StreamHandler()
    handler.addFilter(_add_fields)
    handler.setFormatter(_json() if form == "json" else _Text())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.getLogger("alembic").setLevel(logging.WARNING)  # it logs its plugins at every start


@contextmanager
def fields(**known: Any) -> Iterator[None]:
    """Lines logged in this block (by this thread) carry these fields."""
    token = _current.set({**_current.get(), **known})
    try:
        yield
    finally:
        _current.reset(token)


def note(**known: Any) -> None:
    """Add fields to the block that runs now, as soon as they are known."""
    _current.set({**_current.get(), **known})


def _add_fields(record: logging.LogRecord) -> bool:
    for name, value in _current.get().items():
        if not hasattr(record, name):
            setattr(record, name, value)
    return True


def _json() -> logging.Formatter:
    return JsonFormatter(
        ["asctime", "levelname", "name", "message"],
        rename_fields={"asctime": "time", "levelname": "level", "name": "logger"},
        datefmt="%Y-%m-%dT%H:%M:%S%z",
        # Celery hangs the task's arguments and its own context on its records
        reserved_attrs=(*_RESERVED, "data", "taskName"),
    )


_RESERVED = tuple(vars(logging.makeLogRecord({})))


class _Text(logging.Formatter):
    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        known = [f"{name}={getattr(record, name)}" for name in _FIELDS[1:] if hasattr(record, name)]
        line = super().format(record)
        return f"{line} [{' '.join(known)}]" if known else line
