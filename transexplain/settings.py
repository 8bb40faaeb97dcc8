"""Settings from the environment: where the store, the broker and the snapshots are."""

import os
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, get_args

from transexplain.errors import ConfigurationError
from transexplain.files.local_copies import cache_dir
from transexplain.files.remote_files import check_address, is_url

#: `auto`: steps that recur are traced and replayed; `eager`: never
StepPolicy = Literal["auto", "eager"]
QUEUE = "transexplain"  #: first part of the queues' names, unless another is set
_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """Settings of one process, read once by `Settings.from_environment`."""

    #: SQLAlchemy URL; not in the repr, it may hold a password
    database_url: str = field(default="sqlite:///transexplain.db", repr=False)
    #: Celery broker URL: redis, rediss, amqp or amqps; not in the repr either
    broker_url: str = field(default="redis://127.0.0.1:6379/0", repr=False)
    broker_ca: Path | None = None  #: CA certificates of a broker with TLS; None: the system's
    snapshot_dir: Path = Path(".transexplain/snapshots")  #: Parquet snapshots; shared by a fleet
    #: folder in an object store that runs have their snapshots in; "": workers share the one above
    snapshot_url: str = ""
    queue: str = QUEUE  #: first part of the queues' names, key prefix at Redis
    lease_seconds: float = 60.0  #: a shard's lease, renewed at a third of it
    item_deadline: float = 300.0  #: seconds without progress after which a worker gives up
    #: that read and encode for each device; 0: a thread does, None: see `host_processes`
    host_processes: int | None = None
    model_memory: int | None = None  #: bytes of models that a process keeps; None: see ModelCache
    retention: float = 0.0  #: seconds for which a run that is over cannot be deleted

    def planning_only(self) -> "Settings":
        """The same for a plan that no worker works on: its snapshot stays on this machine."""
        return replace(self, snapshot_url="")

    @classmethod
    def from_environment(cls) -> "Settings":
        """Read `TRANSEXPLAIN_DATABASE_URL`, `_BROKER_URL`, `_SNAPSHOT_DIR`, `_QUEUE`, ...

        Raises ConfigurationError for a number, a size or a secret's file that cannot be read, and
        for a URL of snapshots that no store has.
        """
        default = cls()
        ca, memory = _env("BROKER_CA", ""), _env("MODEL_MEMORY", "")
        snapshots = _env("SNAPSHOT_DIR", str(default.snapshot_dir))
        remote = is_url(snapshots)
        if remote:
            check_address(snapshots)
        return cls(
            database_url=secret("DATABASE_URL") or default.database_url,
            broker_url=secret("BROKER_URL") or default.broker_url,
            broker_ca=Path(ca) if ca else None,
            snapshot_dir=cache_dir() / "snapshots" if remote else Path(snapshots),
            snapshot_url=snapshots if remote else "",
            queue=_env("QUEUE", default.queue),
            lease_seconds=_seconds("LEASE_SECONDS", default.lease_seconds),
            item_deadline=_seconds("ITEM_DEADLINE", default.item_deadline),
            host_processes=processes_of(
                _env("HOST_PROCESSES", "auto"), "TRANSEXPLAIN_HOST_PROCESSES"
            ),
            model_memory=_size("MODEL_MEMORY", memory) if memory else None,
            retention=age_of(_env("RETENTION", "0h"), "TRANSEXPLAIN_RETENTION"),
        )


_MOST_PROCESSES = 256


def processes_of(text: str, name: str) -> int | None:
    """A number of processes, or None for `auto`; ConfigurationError with `name` for other text."""
    if text == "auto":
        return None
    if text.isascii() and text.isdecimal() and int(text) <= _MOST_PROCESSES:
        return int(text)
    raise ConfigurationError(
        f"{name}={text!r} is neither auto nor a number from 0 to {_MOST_PROCESSES}"
    )


_AGES = {"h": 3600.0, "d": 86_400.0, "w": 604_800.0}


def age_of(text: str, name: str) -> float:
    """Seconds of a whole number of hours, days or weeks; ConfigurationError with `name` else."""
    match = re.fullmatch(r"(\d{1,5})([hdw])", text.strip())
    if match is None:
        raise ConfigurationError(
            f"{name}={text!r}: write a whole number of hours, days or weeks: 36h, 90d or 12w"
        )
    return int(match[1]) * _AGES[match[2]]


def step_policy() -> StepPolicy:
    """The value of `TRANSEXPLAIN_STEPS`; ConfigurationError where there is none such."""
    policy_name = _env("STEPS", "auto")
    policies: tuple[StepPolicy, ...] = get_args(StepPolicy)
    for policy in policies:
        if policy_name == policy:
            return policy
    raise ConfigurationError(f"TRANSEXPLAIN_STEPS={policy_name!r} is none of {', '.join(policies)}")


def secret(name: str) -> str | None:
    """The value of `TRANSEXPLAIN_<name>`, or of the file that `TRANSEXPLAIN_<name>_FILE` names.

    White space around a file's text does not count. Raises ConfigurationError where both are
    set, and where the file cannot be read or is empty.
    """
    variable = f"TRANSEXPLAIN_{name}"
    value, file = os.environ.get(variable), os.environ.get(f"{variable}_FILE")
    if not file:
        return value or None
    if value:
        raise ConfigurationError(f"{variable} and {variable}_FILE are both set; unset one of them")
    try:
        text = Path(file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is no text"
        raise ConfigurationError(
            f"{variable}_FILE: {file}: {reason}; name a file that this process may read"
        ) from None
    if not text:
        raise ConfigurationError(f"{variable}_FILE: {file} is empty; write the value into it")
    return text


def _env(name: str, default: str) -> str:
    return os.environ.get(f"TRANSEXPLAIN_{name}") or default


def _seconds(name: str, default: float) -> float:
    text = _env(name, str(default))
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise ConfigurationError(f"TRANSEXPLAIN_{name}={text!r} is no number of seconds above 0")
    return value


def _size(name: str, text: str) -> int:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", text.strip().lower())
    if match is None:
        raise ConfigurationError(f"TRANSEXPLAIN_{name}={text!r} is no size; write 800MB or 12GB")
    return int(float(match[1]) * _UNITS[match[2]])
