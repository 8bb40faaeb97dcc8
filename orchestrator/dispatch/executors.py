"""The executors: processes here, workers on the queue, a Slurm array job, a Ray cluster.

An executor finds workers for one run and watches it until it is over. What a worker does is the
same everywhere: it claims shards from the store, explains them, and commits with its token.
"""

import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from orchestrator.dispatch.stopping import Reports
from transexplain.errors import BrokerError, ConfigurationError, InfrastructureError
from transexplain.registry import Registry
from transexplain.settings import Settings
from transexplain.store import runs
from transexplain.store.database import Database
from transexplain.store.runs import RunProgress

if TYPE_CHECKING:
    from transexplain.models.loaded_model import LoadedModel


#: name -> class, which is made from `Workforce`
EXECUTORS = Registry(
    "executor",
    {
        "local": "orchestrator.dispatch.executors:LocalProcesses",
        "celery": "orchestrator.dispatch.executors:QueuedWorkers",
        "slurm": "orchestrator.dispatch.executors:SlurmArray",
        "ray": "orchestrator.dispatch.ray_actors:RayActors",
    },
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Workforce:
    """The options of an executor; each takes those that concern it."""

    settings: Settings
    processes: int = 1  #: of `local`
    workers: int | None = None  #: of `slurm` and `ray`; None: as many as can be of use
    address: str | None = None  #: of a Ray cluster
    script: Path | None = None  #: that `sbatch` is given


class RunJob(NamedTuple):
    """One run for an executor."""

    db: Database
    run_id: str
    report: Reports
    stop: threading.Event  #: ends the work
    model: "LoadedModel | None" = None  #: that is loaded here already; it need not be used


class Executor(Protocol):
    """Works on runs with workers of one kind."""

    def check(self) -> None:
        """Raise BrokerError, ConfigurationError or InfrastructureError before a run is made."""

    def work(self, job: RunJob) -> None:
        """Work on a run until it is over.

        Raises KeyboardInterrupt when the job was stopped, after its workers got the signal
        to end. Raises InfrastructureError where the workers are gone and the run is not over.
        """


def executor(name: str, workforce: Workforce) -> Executor:
    """The executor of this name; raises ConfigurationError for what it does not take."""
    executor: Executor = EXECUTORS.load(name)(workforce)
    takes = {"address": ("ray",), "script": ("slurm",), "workers": ("ray", "slurm")}
    for option, names in takes.items():
        if getattr(workforce, option) is not None and name not in names:
            raise ConfigurationError(
                f"--{option} is for --executor {' and '.join(names)}, and this is {name}"
            )
    if workforce.processes > 1 and name != "local":
        raise ConfigurationError(f"--processes is for --executor local, and this is {name}")
    return executor


_POLL = 0.5  #: seconds between two looks at a run
#: at most this share of the time goes into queries: counting a million shards takes a second
_QUERY_SHARE = 0.2


def follow(
    job: RunJob,
    step: Callable[[], bool],
    stalled: Callable[[RunProgress], str | None],
    patience: float,
) -> None:
    """Watch a run until it is over or `step`, which is called each time, returns true.

    Where nothing was finished for `patience` seconds, the report gets the reason that `stalled`
    returns. A stop ends it with KeyboardInterrupt.
    """
    state = runs.progress(job.db, job.run_id)
    seen, moved, pause = state.items_finished, time.monotonic(), _POLL
    while state.state == "running":
        if job.stop.wait(pause):
            raise KeyboardInterrupt
        ended = step()
        started = time.monotonic()
        state = runs.progress(job.db, job.run_id)
        pause = max(_POLL, (time.monotonic() - started) / _QUERY_SHARE)
        if state.items_finished > seen:
            job.report.items(state.items_finished - seen)
            seen, moved = state.items_finished, time.monotonic()
        elif time.monotonic() - moved > patience:
            paused = f"the run is paused; `transexplain unpause {job.run_id}` lets it go on"
            if reason := paused if state.paused else stalled(state):
                job.report.wait(reason)
            moved = time.monotonic()
        if ended:
            return


def follow_queue(
    job: RunJob, settings: Settings, look: Callable[[], object] = lambda: None
) -> None:
    """Watch a run until it ends, sweeping: lost messages are sent again, the run is closed.

    That the broker is away ends nothing. Exceptions of `look`, which is called each time, end the
    watching. A stop ends it with KeyboardInterrupt; workers go on.
    """
    from orchestrator.dispatch.queue import sweep

    def step() -> bool:
        look()
        try:
            sweep(job.db, settings)
        except BrokerError as error:
            job.report.wait(str(error))
        return False

    def stalled(state: RunProgress) -> str | None:
        if state.workers or state.state != "running":
            return None
        return "no worker holds a shard of this run; start one with `transexplain worker`"

    follow(job, step, stalled, settings.lease_seconds)


class LocalProcesses:
    """This process, or several of this machine."""

    def __init__(self, workforce: Workforce) -> None:
        self._workforce = workforce

    def check(self) -> None:
        """Nothing is needed."""

    def work(self, job: RunJob) -> None:
        """Work as `Executor.work` does."""
        from orchestrator.dispatch.local import run_here, run_processes

        settings, processes = self._workforce.settings, self._workforce.processes
        db, run_id, report, stop, model = job
        if processes > 1:  # they load their own model
            run_processes(db, run_id, settings, processes, report=report, stop=stop)
        else:
            run_here(db, run_id, settings, model=model, report=report, stop=stop)


class QueuedWorkers:
    """Workers that `transexplain worker` has started anywhere, by messages on the queue."""

    def __init__(self, workforce: Workforce) -> None:
        self._settings = workforce.settings

    def check(self) -> None:
        """Check as `queue.check_broker` does."""
        from orchestrator.dispatch.queue import check_broker

        check_broker(self._settings)

    def work(self, job: RunJob) -> None:
        """Work as `Executor.work` does; workers go on when it stops."""
        from orchestrator.dispatch import run_actions

        run_actions.send_hints(job.db, self._settings, job.run_id)
        follow_queue(job, self._settings)


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
        from orchestrator.dispatch.queue import check_broker

        check_broker(self._wanted.settings)

    def work(self, job: "RunJob") -> None:
        """Work as `Executor.work` does; a stop cancels the job, whose tasks give leases back."""
        from orchestrator.dispatch import run_actions

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
            follow_queue(job, settings, watch.look)
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
