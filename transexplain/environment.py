"""Records what a program runs on: versions of software, the machine, the state of the repository.

No name of a host, of a user or of a folder is among it. Nothing heavy is imported for it: a GPU
is named where torch is loaded and in use already.
"""

import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from transexplain.version import __version__

#: distributions whose version may move a number
_SOFTWARE = ("numpy", "pillow", "safetensors", "timm", "tokenizers", "torch", "transformers")
_GIT_SECONDS = 10.0


def planned_here() -> dict[str, Any]:
    """Return what is recorded with a run when it is created."""
    return {**saved_here(), "git": git_state(Path.cwd())}


def saved_here(
    steps: Sequence[str] = (), device: Mapping[str, float] | None = None
) -> dict[str, Any]:
    """Return what is recorded with a shard when it is saved: `software` and `hardware`.

    `steps` says how explanations ran; where all of them ran eagerly that is left out. `device` are
    the seconds of a `DeviceTime`.
    """
    ran: dict[str, Any] = {} if set(steps) <= {"eager"} else {"steps": list(steps)}
    if device:
        ran["device"] = {name: round(seconds, 6) for name, seconds in device.items()}
    return {"software": software(), "hardware": {**_machine(), "gpus": gpus()}, **ran}


@cache
def software() -> dict[str, str]:
    """Versions by name: this package, Python, and the distributions that are installed."""
    versions = {"python": platform.python_version(), "transexplain": __version__}
    for name in _SOFTWARE:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


def gpus() -> list[str]:
    """Names of the GPUs, where this process has used one."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is None or not cuda.is_initialized():
        return []
    return [cuda.get_device_name(index) for index in range(cuda.device_count())]


@cache
def _machine() -> dict[str, Any]:
    # the processor's own name: Python knows only its family on Linux
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    cpu = next(named, "") or platform.processor() or platform.machine()
    return {"platform": platform.platform(), "cpu": cpu, "cores": os.cpu_count()}


def git_state(folder: Path) -> dict[str, Any] | None:
    """The commit that `folder` is at, and whether files differ from it; None: no repository."""
    commit = _git(folder, "rev-parse", "--verify", "HEAD")
    if commit is None:
        return None
    changed = _git(folder, "status", "--porcelain", "--untracked-files=no")
    return {"commit": commit, "dirty": None if changed is None else bool(changed)}


def _git(folder: Path, *words: str) -> str | None:
    # a repository may name a program to ask about changed files: it is not run
    command = ["git", "-c", "core.fsmonitor=false", "--no-optional-locks", *words]
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, timeout=_GIT_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.decode("utf-8", "replace").strip()
