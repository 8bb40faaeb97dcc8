"""Stands in for `sbatch`, `squeue` and `scancel`: tasks of an array are processes of this machine.

Called with the name of the command and its words; what jobs there are lies below SLURM_STAND_IN.
"""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path


def main(name: str, *words: str) -> None:
    """Do as the command of this name would."""
    jobs = Path(os.environ["SLURM_STAND_IN"])
    {"sbatch": submit, "squeue": show, "scancel": cancel}[name](jobs, *words)


def submit(jobs: Path, *words: str) -> None:
    """Start a process for each number of the array; print the job's number."""
    options, script = words[:-1], words[-1]
    assert "--parsable" in options
    (array,) = [one for one in options if one.startswith("--array=")]
    first, last = map(int, re.fullmatch(r"--array=(\d+)-(\d+)", array).groups())  # type: ignore[union-attr]
    jobs.mkdir(exist_ok=True)
    job = jobs / str(1 + len(list(jobs.iterdir())))
    job.mkdir()
    for task in range(first, last + 1):
        env = {**os.environ, "SLURM_ARRAY_TASK_ID": str(task), "SLURM_CPUS_PER_TASK": "1"}
        with (job / f"{task}.log").open("wb") as log:
            started = subprocess.Popen(
                ["bash", script], env=env, stdout=log, stderr=log, start_new_session=True
            )
        (job / f"{task}.pid").write_text(str(started.pid))
    sys.stdout.write(f"{job.name};here\n")


def alive(job: Path) -> list[tuple[str, int]]:
    """(task, process) of those that live."""
    found = [(one.stem, int(one.read_text())) for one in sorted(job.glob("*.pid"))]
    return [(task, pid) for task, pid in found if _lives(pid)]


def _lives(pid: int) -> bool:
    try:
        # a process that ended and that nobody waits for has no words left
        return bool(Path(f"/proc/{pid}/cmdline").read_bytes())
    except OSError:
        return False


def show(jobs: Path, *words: str) -> None:
    """Print a line for each task that is left."""
    job = jobs / words[words.index("--jobs") + 1]
    for task, _ in alive(job):
        sys.stdout.write(f"{job.name}_{task}\n")


def cancel(jobs: Path, number: str) -> None:
    """SIGTERM to each task."""
    for _, pid in alive(jobs / number):
        os.kill(pid, signal.SIGTERM)


if __name__ == "__main__":
    main(*sys.argv[1:])
