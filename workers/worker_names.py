"""Names of workers: the host, the process, and chance; what dead processes of this host held."""

import os
import re
import socket
import uuid
from pathlib import Path

from transexplain.store import shards
from transexplain.store.database import Database

#: what Linux numbers the namespace of processes that are in no container
_HOST_PROCESSES = 0xEFFFFFFC


def worker_name() -> str:
    """Host, process and a random part: never the same for two lives of a process."""
    return f"{worker_prefix(os.getpid())}{uuid.uuid4().hex[:6]}"


def worker_prefix(pid: int) -> str:
    """How the names of the workers of one process on this host begin."""
    return f"{_here()}:{pid}:"


def free_dead(db: Database, run_id: str | None = None) -> int:
    """End the leases that processes of this host left when they died; how many shards are free.

    Of one run, or, None, of every run that is running. A process whose number another one has now
    counts as alive: its leases end by themselves.
    """
    mine = re.compile(rf"{re.escape(_here())}:(\d+):")
    found = {int(one[1]) for name in shards.holders(db, run_id) if (one := mine.match(name))}
    return sum(shards.expire(db, run_id, worker_prefix(pid)) for pid in found if not _lives(pid))


def _here() -> str:
    """The host, and the container where process numbers are its own."""
    host = socket.gethostname()
    try:
        space = Path("/proc/self/ns/pid").stat().st_ino
    except OSError:  # no Linux
        return host
    return host if space == _HOST_PROCESSES else f"{host}/{space}"


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):  # another user's; a number that is not of this system
        pass
    return True
