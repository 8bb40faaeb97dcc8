"""Groups of worker processes: a supervisor and what it spawned, in a session of their own."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
HOOK = Path(__file__).parent / "chaos_hook"


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "orchestrator.cli", *words]


def environment(folder: Path, **extra: str) -> dict[str, str]:
    """What every process of a fleet is started with; workers find the hook on their path."""
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(HOOK), str(ROOT)]),
        "OMP_NUM_THREADS": "1",
        "CHAOS_FOLDER": str(folder),
        "CHAOS_SLOWLY": "0",
        "TRANSEXPLAIN_SNAPSHOT_DIR": str(folder / "snapshots"),
        **extra,
    }


def wait_for(condition: Callable[[], object], what: str, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds:g} s in vain: {what}"
        time.sleep(0.05)


def lives(pid: int | None) -> bool:
    """Whether a process is there and no corpse that nobody has buried yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class Group:
    """One supervisor with one process on the CPU; killed and started again under one log."""

    def __init__(self, name: str, env: dict[str, str], folder: Path) -> None:
        self.name = name
        self.log = folder / f"group-{name}.log"
        self._env, self._folder = env, folder
        self.kills = 0
        self.start()

    def start(self) -> None:
        words = ("worker", "--devices", "cpu:1", "--threads", "1", "--log-format", "json")
        with self.log.open("ab") as out:
            self._process = subprocess.Popen(
                command(*words),
                env=self._env,
                cwd=self._folder,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    def revive(self) -> bool:
        """Start it where it ended by itself, as whatever keeps a container up; whether it had.

        A supervisor that finds no database at its start says so and ends.
        """
        if self._process.poll() is None:
            return False
        self.start()
        return True

    def holds(self, worker: str | None) -> bool:
        """Whether the process that a claim names (`host:process:random`) is one of this group."""
        return worker is not None and self.has(int(worker.split(":")[-2]))

    def has(self, pid: int) -> bool:
        """Whether this process lives and is one of this group."""
        try:
            return os.getpgid(pid) == self._process.pid
        except ProcessLookupError:
            return False

    def kill(self) -> None:
        """End every process of the group at once, as a machine that loses its power."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self.kills += 1

    def end(self) -> int:
        """Ask the group to end, and wait for it; its exit status."""
        self._process.terminate()
        try:
            return self._process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self.kill()
            return -signal.SIGKILL

    def lines(self, text: str) -> list[dict[str, Any]]:
        """The lines of its log that hold `text`; one that a kill cut off is none."""
        printed = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return [json.loads(one) for one in printed if one[:1] + one[-1:] == "{}" and text in one]
