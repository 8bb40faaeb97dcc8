"""One shard from claim to commit: the same for the local executor and for Celery tasks."""

import os
import re
import socket
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from transexplain.bias.aggregates import check_versions
from transexplain.errors import DatabaseError, FencedError
from transexplain.plans import AuditPlan
from transexplain.settings import Settings
from transexplain.store import results, runs, shards, totals
from transexplain.store.database import Database
from transexplain.store.records import Claim
from workers import logs
from workers.computing import compute, model_for
from workers.lease import LeaseKeeper, end_process
from workers.models import ModelCache

#: what Linux numbers the namespace of processes that are in no container
_HOST_PROCESSES = 0xEFFFFFFC
End = Literal["nothing", "done", "stopped", "failed", "fenced"]


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


@dataclass(kw_only=True, slots=True)
class Workbench:
    """What a process needs to work on shards."""

    db: Database
    settings: Settings
    models: ModelCache = field(default_factory=ModelCache)
    name: str = field(default_factory=worker_name)
    stop: threading.Event = field(default_factory=threading.Event)
    on_item: Callable[[], None] | None = None
    on_hang: Callable[[str], None] = end_process
    _plan: tuple[str, AuditPlan] | None = None

    def work(self, run_id: str, shard_index: int | None = None) -> End:
        """Claim a shard (any, or this one), explain and save it.

        Returns:
            `nothing` if no shard could be claimed; `fenced` if another worker had it meanwhile;
            `failed` if it was put back (or declared dead) with its error; else `done` or
            `stopped`.
        """
        claim = shards.claim(self.db, run_id, self.name, self.settings.lease_seconds, shard_index)
        if claim is None:
            return "nothing"
        logs.note(run=run_id, shard=claim.shard.index, attempt=claim.attempt)
        try:
            return self._explain_and_save(claim)
        except FencedError:
            return "fenced"
        except DatabaseError:
            raise  # nothing can be written down now; the lease runs out and the shard comes back
        except Exception as error:  # noqa: BLE001 - written to the shard's row, seen in `status`
            shards.fail(self.db, claim, f"{type(error).__name__}: {error}")
            return "failed"

    def _explain_and_save(self, claim: Claim) -> End:
        from transexplain.explaining import Stopped

        keeper = self.keeper(claim)
        plan = self.plan(claim.run_id)
        try:
            with keeper:
                model = model_for(plan, self.models)
                result = compute(plan, claim.shard, model, observer=keeper, caution=claim.caution)
                results.save(self.db, claim, result)
        except (Stopped, KeyboardInterrupt) as ended:
            if not keeper.lost:
                shards.give_back(self.db, claim)
            if isinstance(ended, KeyboardInterrupt):
                raise
            return "fenced" if keeper.lost else "stopped"
        runs.finalise(self.db, claim.run_id)
        return "done"

    def plan(self, run_id: str) -> AuditPlan:
        """The plan of a run, read once; threads may ask about different runs.

        Raises ConfigurationError where what the run has saved so far cannot be read by this
        version: its shards would be computed in vain.
        """
        known = self._plan
        if known is None or known[0] != run_id:
            check_versions(totals.aggregate_versions(self.db, run_id))
            known = self._plan = (run_id, runs.get(self.db, run_id).plan)
        return known[1]

    def keeper(self, claim: Claim) -> LeaseKeeper:
        """Who keeps the lease of a claim while this process works on it."""
        return LeaseKeeper(
            self.db,
            claim,
            lease_seconds=self.settings.lease_seconds,
            item_deadline=self.settings.item_deadline,
            on_item=self.on_item,
            stop=self.stop,
            on_hang=self.on_hang,
        )
