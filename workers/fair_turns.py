"""Chooses the run whose shard a worker takes, where several runs wait.

A message is a hint. Of the runs that this worker can serve those of the highest priority come
first. Each of them has a quota: the claimed shards, with the next, divided by `share`.
A run below its quota gets the shard; several such runs take turns in proportion to what they lack.
The worker's own shards do not count: they end before the next one begins.
"""

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from transexplain.errors import ConfigurationError
from transexplain.store import queueing, runs
from transexplain.store.database import Database
from transexplain.store.queueing import Contender
from transexplain.types.plans import AuditPlan

#: shards in a row with a model that is loaded, while a run with another one is as much in need
_STAY = 4
#: seconds for which a run that was alone is taken to be so: short shards need not look each time
_MOMENT = 0.5


def lacks(contenders: Sequence[Contender]) -> dict[str, float]:
    """The number of shards each run lacks of its quota, of those below it; never empty."""
    total = sum(run.others for run in contenders) + 1
    weight = sum(run.place.share for run in contenders)
    gains = {run.run_id: total * run.place.share / weight - run.others for run in contenders}
    return {run_id: lack for run_id, lack in gains.items() if lack > 0}


@dataclass(kw_only=True, slots=True)
class FairTurns:
    """The turns that one worker process takes; several threads may ask."""

    serves: Callable[[AuditPlan], bool] = lambda _: True  #: whether this worker can
    loaded: Callable[[AuditPlan], bool] = lambda _: True  #: whether it has the model
    _credit: dict[str, float] = field(default_factory=dict)
    _plans: dict[str, AuditPlan | None] = field(default_factory=dict)
    _stayed: int = 0
    _alone: tuple[str, float] = ("", 0.0)  #: a run without others, and until when it counts so
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def order(
        self, db: Database, worker: str, run_id: str, shard_index: int
    ) -> list[tuple[str, int | None]]:
        """The runs to claim from, in order, each with a shard if the message names it.

        Where no other run has shards for workers it is the message's, and no other.
        """
        alone, until = self._alone
        if alone == run_id and time.monotonic() < until:
            return [(run_id, shard_index)]
        if not queueing.choice(db, run_id):
            self._alone = (run_id, time.monotonic() + _MOMENT)
            return [(run_id, shard_index)]
        waiting = queueing.contenders(db, worker)
        served = self._served(db, waiting)
        with self._lock:
            chosen = self._ordered(served)
        order: list[tuple[str, int | None]] = []
        for run in chosen:
            order += [(run, shard_index), (run, None)] if run == run_id else [(run, None)]
        return order

    def any_waits(self, db: Database, worker: str) -> bool:
        """Return whether a shard waits that this worker could take now."""
        return bool(self._served(db, queueing.contenders(db, worker)))

    def _served(self, db: Database, waiting: Iterable[Contender]) -> list[Contender]:
        known = {run.run_id: self._plan(db, run.run_id) for run in waiting}
        self._plans = known
        plans = {run_id: plan for run_id, plan in known.items() if plan is not None}
        return [run for run in waiting if run.run_id in plans and self.serves(plans[run.run_id])]

    def _plan(self, db: Database, run_id: str) -> AuditPlan | None:
        if run_id not in self._plans:
            try:
                return runs.get(db, run_id).plan
            except ConfigurationError:  # of another version: not for this worker
                return None
        return self._plans[run_id]

    def _ordered(self, waiting: Sequence[Contender]) -> list[str]:
        """Ids of runs; the first is taken to be served, the others stand by."""
        if not waiting:
            return []
        highest = max(run.place.priority for run in waiting)
        first = self._turn(lacks([run for run in waiting if run.place.priority == highest]))
        rest = [run.run_id for run in waiting if run.run_id != first]
        return [first, *rest]

    def _turn(self, lacking: dict[str, float]) -> str:
        """The run whose turn it is: each gains by its lack, and the run served pays a shard."""
        total = sum(lacking.values())
        gained = {
            name: self._credit.get(name, 0.0) + lack / total for name, lack in lacking.items()
        }
        chosen = max(gained, key=lambda name: gained[name])
        here = {
            name: credit
            for name, credit in gained.items()
            if (plan := self._plans.get(name)) is not None and self.loaded(plan)
        }
        if here and chosen not in here and self._stayed < _STAY:
            chosen = max(here, key=lambda name: here[name])
            self._stayed += 1
        else:
            self._stayed = 0
        gained[chosen] -= 1.0
        self._credit = gained
        return chosen
