"""Workers as actors of a Ray cluster, one device each, for one run.

Ray places the actors, gives each its device and starts those again whose process or node died.
Which shard an actor works on, and what counts as done, is decided by the store, as everywhere: an
actor that died leaves a lease that runs out, and one that comes back too late is fenced. Only
shards of this run are claimed.
"""

import logging
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from orchestrator.dispatch.executors import follow
from transexplain.errors import ConfigurationError, InfrastructureError
from transexplain.registry import require
from transexplain.settings import Settings
from transexplain.store import runs
from transexplain.store.database import Database
from transexplain.store.revisions import open_database
from transexplain.store.runs import RunProgress
from transexplain.types.plans import SPREAD, AuditPlan, DeviceClass, device_class

if TYPE_CHECKING:
    from orchestrator.dispatch.executors import RunJob, Workforce

_PATIENCE = 60.0  #: seconds without a finished item after which the reason is looked for
_LEAVE = 60.0  #: seconds that actors have to end their batch and give their leases back


class ShardWorker:
    """An actor: a process of the cluster that works on one run with its own device."""

    def __init__(self, settings: Settings, run_id: str, device: str | None) -> None:
        self._settings, self._run_id, self._device = settings, run_id, device
        self._stop = threading.Event()

    def work(self) -> None:
        """Work until nothing is left; raises as `run_here`.

        Called again after a death, it goes on with what is left then.
        """
        from orchestrator.dispatch.local import run_here

        with open_database(self._settings.database_url) as db, suppress(KeyboardInterrupt):
            run_here(db, self._run_id, self._settings, stop=self._stop, device=self._device)

    def stop(self) -> None:
        """End `work` after its batch, with the lease given back."""
        self._stop.set()


class RayActors:
    """Actors of a cluster, one for each requested device."""

    def __init__(self, workforce: "Workforce") -> None:
        self._wanted = workforce

    def check(self) -> None:
        """Raise ConfigurationError where Ray is not installed or no cluster is named."""
        require("ray", "ray")
        if self._wanted.address is None:
            raise ConfigurationError(
                "--executor ray needs --address: `auto` on a machine of the cluster, "
                "`HOST:6379` of its head, or `local` for a cluster of this machine alone"
            )

    def work(self, job: "RunJob") -> None:
        """Work as `Executor.work` does; ConfigurationError where the cluster has no such device."""
        db, run_id = job.db, job.run_id
        plan = runs.get(db, run_id).plan
        url = db.url if db.path is None else f"sqlite:///{db.path.absolute()}"
        settings = replace(self._wanted.settings, database_url=url)
        with _cluster(str(self._wanted.address)) as ray:
            count = self._count(ray, db, run_id, plan)
            actors = _begin(ray, plan, settings, run_id, count)
            watch = _Watch(ray, job, actors)
            try:
                follow(job, watch.step, watch.stalled, _PATIENCE)
            except KeyboardInterrupt:
                watch.end()
                raise
        runs.finalise(db, run_id)
        if watch.error is not None and runs.progress(db, run_id).state == "running":
            raise InfrastructureError(
                f"every Ray actor for run {run_id} failed, the last with: {_reason(watch.error)}"
            ) from watch.error

    def _count(self, ray: Any, db: Database, run_id: str, plan: AuditPlan) -> int:
        """The number of useful actors: no more than there are devices of the class, or shards."""
        kind = _resource(plan)
        there = int(ray.cluster_resources().get(kind, 0))
        if there < 1:
            raise ConfigurationError(
                f"run {run_id} is for device {plan.model.device}, and the Ray cluster at "
                f"{self._wanted.address} has no {kind}"
            )
        states = runs.progress(db, run_id).states
        shards = max(1, states["queued"] + states["running"])
        return min(self._wanted.workers or there, there, shards)


def _resource(plan: AuditPlan) -> str:
    """Ray's name of the resource that an actor for this plan needs."""
    if plan.model.device == SPREAD:
        raise ConfigurationError(
            f"a model on all cards (device: {SPREAD}) cannot be given to actors of one card each; "
            "use `transexplain worker --devices spread` on such a machine"
        )
    kinds: dict[DeviceClass, str] = {"cpu": "CPU", "gpu": "GPU"}
    return kinds[device_class(plan.model.device)]


@contextmanager
def _cluster(address: str) -> Iterator[Any]:
    """Ray, connected to a cluster while the block runs."""
    import ray

    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        ray.init(address=address, log_to_driver=True, logging_level=logging.WARNING)
    except Exception as error:  # a head that does not start is a bare Exception there
        raise InfrastructureError(
            f"no Ray cluster answers at {address}: {_reason(error)}. Start one "
            "(`ray start --head`), or name the one that is there: auto, HOST:6379, local"
        ) from error
    try:
        if threading.current_thread() is threading.main_thread():
            for number, handler in handlers.items():  # Ray puts its own there, which lose the lease
                signal.signal(number, handler)
        yield ray
    finally:
        ray.shutdown()


def _reason(error: BaseException) -> str:
    """Ray's message, without the traceback of another process before it."""
    lines = str(error).strip().splitlines()
    return lines[-1].rstrip(". ") if lines else type(error).__name__


def _begin(ray: Any, plan: AuditPlan, settings: Settings, run_id: str, count: int) -> list[Any]:
    """Actors on as many nodes as there are; Ray starts each again that dies, where there is room.

    `stop` may be called while `work` runs.
    """
    on_gpu = _resource(plan) == "GPU"
    kind = ray.remote(ShardWorker).options(
        num_gpus=1 if on_gpu else 0,
        num_cpus=1,
        max_restarts=-1,
        max_task_retries=-1,
        max_concurrency=2,
        scheduling_strategy="SPREAD",
    )
    # Ray shows an actor its own card alone, as the first
    device = f"{plan.model.device.partition(':')[0]}:0" if on_gpu else plan.model.device
    return [kind.remote(settings, run_id, device) for _ in range(count)]


class _Watch:
    """The actors that work on a run."""

    def __init__(self, ray: Any, job: "RunJob", actors: Sequence[Any]) -> None:
        self._ray, self._job, self._actors = ray, job, actors
        self._working = [actor.work.remote() for actor in actors]
        self.error: BaseException | None = None  #: that the last one failed with

    def step(self) -> bool:
        """Return whether every actor has ended."""
        ended, self._working = self._ray.wait(self._working, timeout=0)
        for actor in ended:
            try:
                self._ray.get(actor)
            except self._ray.exceptions.RayError as error:
                self.error = error
                self._job.report.wait(f"a Ray actor ended: {_reason(error)}")
        return not self._working

    def stalled(self, state: RunProgress) -> str:
        """The reason why nothing is finished."""
        if not state.workers:
            free = self._ray.available_resources()
            room = ", ".join(f"{free.get(resource, 0):g} {resource}" for resource in ("CPU", "GPU"))
            return f"no actor holds a shard of this run; the cluster has free: {room}"
        return f"nothing was finished for {_PATIENCE:g} s; {state.workers} actors hold shards"

    def end(self) -> None:
        """Let the actors finish their batch and give their leases back."""
        for actor in self._actors:
            actor.stop.remote()
        with suppress(self._ray.exceptions.RayError):
            self._ray.wait(self._working, num_returns=len(self._working), timeout=_LEAVE)
