"""Workers as an array job of Slurm, which end when nothing waits.

Slurm's own commands are called where they are on the path: `sbatch` with the array, `squeue` to see
whether tasks of it are left, and `scancel` when the run is to stop.
"""

import shutil
import subprocess
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from orchestrator.dispatch import run_actions
from orchestrator.dispatch.queue import check_broker, follow
from transexplain.errors import ConfigurationError, InfrastructureError
from transexplain.store import runs

if TYPE_CHECKING:
    from orchestrator.dispatch.executors import RunJob, Workforce

_COMMANDS = ("sbatch", "squeue", "scancel")
_WORKERS = 8  #: tasks of the array, unless another number is named
_LOOK_EVERY = 10.0  #: seconds between two questions to Slurm about the job
_TIMEOUT = 60.0  #: seconds that one of its commands may take


class SlurmArray:
    """An array job whose tasks are `transexplain worker --until-idle`."""

    def __init__(self, workforce: "Workforce") -> None:
        self._wanted = workforce

    def check(self) -> None:
        """Raise ConfigurationError without a script or without Slurm, BrokerError as the queue."""
        script = self._wanted.script
        if script is None:
            raise ConfigurationError(
                "--executor slurm needs --script: the job that starts a worker, such as "
                "ops/slurm/workers.sbatch of the sources with your partition and modules"
            )
        if not script.is_file():
            raise ConfigurationError(f"--script {script}: there is no such file")
        missing = [name for name in _COMMANDS if shutil.which(name) is None]
        if missing:
            raise ConfigurationError(
                f"--executor slurm calls {', '.join(missing)}, which is not on the path; run this "
                "on a login node"
            )
        check_broker(self._wanted.settings)

    def work(self, job: "RunJob") -> None:
        """Work as `Executor.work` does; a stop cancels the job, whose tasks give leases back."""
        db, run_id, settings = job.db, job.run_id, self._wanted.settings
        run_actions.send_hints(db, settings, run_id)
        states = runs.progress(db, run_id).states
        waiting = states["queued"] + states["running"]
        tasks = min(self._wanted.workers or _WORKERS, max(1, waiting))
        words = ["sbatch", "--parsable", f"--array=1-{tasks}", str(self._wanted.script)]
        started = _run(words)
        if started.returncode:
            raise InfrastructureError(f"{' '.join(words)} failed: {started.stderr.strip()}")
        number = started.stdout.partition(";")[0].strip()  # "number;cluster" of several clusters
        watch = _JobWatch(number, run_id)
        try:
            follow(db, run_id, settings, job.report, job.stop, look=watch.look)
        except BaseException:
            _run(["scancel", number])  # what is gone already is an error there
            raise


class _JobWatch:
    """A watch on a job that checks now and then whether tasks of it are left."""

    def __init__(self, job: str, run_id: str) -> None:
        self._job, self._run_id = job, run_id
        self._asked = time.monotonic()
        self._gone = False

    def look(self) -> None:
        """Raise InfrastructureError where two looks in a row found no task of the job."""
        if time.monotonic() - self._asked < _LOOK_EVERY:
            return
        self._asked = time.monotonic()
        listed = _run(["squeue", "--noheader", "--format=%i", "--jobs", self._job])
        alive = bool(listed.stdout.strip())
        if listed.returncode:  # one that does not answer may still have tasks that wait or run
            alive = "Invalid job id" not in listed.stderr  # the words for one that is long over
        if not alive and self._gone:
            raise InfrastructureError(
                f"no task of Slurm job {self._job} is left and run {self._run_id} is not over: see "
                f"their output (`sacct -j {self._job}`); `transexplain resume {self._run_id} "
                "--executor slurm` with the same options goes on"
            )
        self._gone = not alive


def _run(words: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    try:
        return subprocess.run(words, capture_output=True, text=True, timeout=_TIMEOUT, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InfrastructureError(f"{words[0]} cannot be called: {error}") from error
