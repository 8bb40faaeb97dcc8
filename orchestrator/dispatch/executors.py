"""The executors: processes here, workers on the queue, a Slurm array job, a Ray cluster.

An executor finds workers for one run and watches it until it is over. What a worker does is the
same everywhere: it claims shards from the store, explains them, and commits with its token.
"""

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from orchestrator.dispatch.stopping import Reports
from transexplain.errors import ConfigurationError
from transexplain.registry import Registry
from transexplain.settings import Settings
from transexplain.store.database import Database

if TYPE_CHECKING:
    from transexplain.models.loaded_model import LoadedModel

#: name -> class, which is made from `Workforce`
EXECUTORS = Registry(
    "executor",
    {
        "local": "orchestrator.dispatch.executors:LocalProcesses",
        "celery": "orchestrator.dispatch.executors:QueuedWorkers",
        "slurm": "orchestrator.dispatch.slurm_array:SlurmArray",
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


class LocalProcesses:
    """This process, or several of this machine."""

    def __init__(self, workforce: Workforce) -> None:
        self._workforce = workforce

    def check(self) -> None:
        """Nothing is needed."""

    def work(self, job: RunJob) -> None:
        """Work as `Executor.work` does."""
        from orchestrator.dispatch.local import run_local

        force, (db, run_id, report, stop, model) = self._workforce, job
        run_local(
            db, run_id, force.settings, force.processes, model=model, report=report, stop=stop
        )


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
        from orchestrator.dispatch.queue import follow

        run_actions.send_hints(job.db, self._settings, job.run_id)
        follow(job.db, job.run_id, self._settings, job.report, job.stop)
