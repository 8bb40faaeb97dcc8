"""Logs of workers: lines to read, or one JSON object each, with run, shard, attempt and worker.

The fields lie in a context variable. A thread begins without them: a thread that works on a
shard runs in `contextvars.copy_context()`; a process gets `carried()` and calls `join`.
"""

import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal, cast, get_args

from pythonjsonlogger.json import JsonFormatter

from transexplain.errors import ConfigurationError

Format = Literal["text", "json"]
_FIELDS = ("run", "shard", "attempt", "worker")
_current: ContextVar[dict[str, Any]] = ContextVar("fields", default={})  # noqa: B039 - replaced, never changed
#: arguments of a task as Celery writes them: it knows a shard before any thread works on it
_ARGUMENTS = re.compile(r"\('([\w-]+)', (\d+)\)")


#: of every line of this process
_fields_of_all: dict[str, Any] = {}
#: the form of this process's logs, and what writes it; empty: they are not configured here
_configured: list[tuple[Format, logging.Formatter]] = []


def form_of(text: str) -> Format:
    """The format called so; raises ConfigurationError for another."""
    if text not in get_args(Format):
        raise ConfigurationError(f"log format {text!r}: use {' or '.join(get_args(Format))}")
    return cast("Format", text)


def configure(form: Format) -> None:
    """Send this process's logs to standard error, from level INFO on.

    JSON objects hold time, level, logger, message, and worker, run, shard and attempt where the
    line is about one; lines of text end with them.
    """
    handler = logging.StreamHandler()
    handler.addFilter(_add_fields)
    formatter = _json() if form == "json" else _TextFormatter()
    handler.setFormatter(formatter)
    _configured[:] = [(form, formatter)]
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.getLogger("alembic").setLevel(logging.WARNING)  # it logs its plugins at every start


def for_process(**known: Any) -> None:
    """Lines of every thread of this process carry these fields."""
    _fields_of_all.update(known)


#: the logging of a process, for one that works for it: its form, and fields of every line
Carried = tuple[Format | None, Mapping[str, Any]]


def known() -> dict[str, Any]:
    """The fields of a line that is logged here and now."""
    return {**_fields_of_all, **_current.get()}


def carried() -> Carried:
    """The `Carried` of this process, for a process that it begins."""
    return next((form for form, _ in _configured), None), known()


def join(carried: Carried) -> None:
    """Log as the process that gave this: in its form, with its fields."""
    form, known = carried
    if form is not None:
        configure(form)
    for_process(**known)


def last_line(message: str) -> str | None:
    """A line as it would be logged, made without a lock: another thread may hold any for ever.

    None where this process's logs are not configured here.
    """
    if not _configured:
        return None
    _, formatter = _configured[0]
    record = logging.makeLogRecord(
        {"name": __name__, "levelno": logging.CRITICAL, "levelname": "CRITICAL", "msg": message}
    )
    _add_fields(record)
    return formatter.format(record)


@contextmanager
def fields(**known: Any) -> Iterator[None]:
    """Lines logged in this block (by this thread) carry these fields."""
    token = _current.set({**_current.get(), **known})
    try:
        yield
    finally:
        _current.reset(token)


def begin(**known: Any) -> None:
    """From here on lines carry these fields and no others; None: not known yet."""
    _current.set({name: value for name, value in known.items() if value is not None})


def note(**known: Any) -> None:
    """Add fields to the block that runs now, as soon as they are known."""
    _current.set({**_current.get(), **known})


def _add_fields(record: logging.LogRecord) -> bool:
    for name, value in {**_of_task(record), **known()}.items():
        if not hasattr(record, name):
            setattr(record, name, value)
    return True


def _of_task(record: logging.LogRecord) -> dict[str, Any]:
    """Run and shard of a line of Celery's own about a task."""
    data = getattr(record, "data", None)
    arguments = _ARGUMENTS.fullmatch(str(data.get("args"))) if isinstance(data, dict) else None
    return {"run": arguments[1], "shard": int(arguments[2])} if arguments else {}


def _json() -> logging.Formatter:
    return JsonFormatter(
        ["asctime", "levelname", "name", "message"],
        rename_fields={"asctime": "time", "levelname": "level", "name": "logger"},
        datefmt="%Y-%m-%dT%H:%M:%S%z",
        # Celery hangs the task's arguments and its own context on its records
        reserved_attrs=(*_RESERVED, "data", "taskName"),
    )


_RESERVED = tuple(vars(logging.makeLogRecord({})))


class _TextFormatter(logging.Formatter):
    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        line = super().format(record)
        if not hasattr(record, "run"):
            return line
        known = [f"{name}={getattr(record, name)}" for name in _FIELDS if hasattr(record, name)]
        return f"{line} [{' '.join(known)}]"
