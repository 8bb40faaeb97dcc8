"""Works on a shard from claim to commit, for the local executor and for a fleet's tasks.

On a fleet a Celery task is a shard. SQL is the truth; the broker may lose and repeat.

1. A message names a run and one of its shards, as JSON. It is acknowledged after the work.
2. `Workbench.work` claims that very shard; the local executor claims any. A claim is a lease and
   a token. A shard that is over, or that a living lease holds, ends the call: "nothing". Where
   several runs wait, a worker takes a shard of the run whose turn it is, see `fair_turns`.
3. From claim to commit a `LeaseKeeper` renews the lease, as long as the work moves.
4. Other processes, or a thread, read and encode items before the device needs them. One that dies
   or hangs fails the shard; the items that it was reading are then tried one by one.
5. The first batch of a shard is padded before the device is free. The `Device` computes one shard
   at a time, in one thread. When three quarters of its items are done, or the rest takes only a
   moment, the pool takes one message more, whose shard is claimed and read meanwhile. While a shard
   is computed that died before, no other is claimed: it may end the process.
6. After its last batch the device works on the next shard, while the records and totals of this one
   are finished. The commit compares the token, in one transaction.
7. An error is written to the shard's row; "failed" and "stopped" get a new message. A revoked
   task's shard is cancelled. A database that is away writes nothing: the lease ends by itself.
   Items in which attempts ended go on trial in a process of their own, and those that the model
   failed on are tried once more there: see `fresh_process`.
8. What the broker lost the sweep sends again. SIGTERM ends work after its batch and gives leases
   back, uncounted.
"""

import logging
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Literal

from transexplain.analysis.groups.shard_aggregate import check_versions
from transexplain.data.shard_reader import ids_of
from transexplain.errors import DatabaseError, FencedError
from transexplain.interpreter import few_collections
from transexplain.settings import Settings
from transexplain.store import results, run_totals, runs, shards
from transexplain.store.database import Database
from transexplain.store.runs import Claim
from transexplain.text.error_frames import traceback_of
from transexplain.types.observer import NO_CAUTION, Caution, Observer
from transexplain.types.plans import AuditPlan, ShardResult, device_class
from workers import fresh_process, logs, tracing
from workers.device_turns import Device, Watch
from workers.fair_turns import FairTurns
from workers.fresh_process import FreshProcessDiedError, ShardJob
from workers.heartbeat import LeaseKeeper, end_process, worker_name
from workers.model_cache import ModelCache
from workers.reader_pool import ReadAhead, ReaderDiedError, ReaderPool, host_processes
from workers.shard_work import compute, model_for, prepare
from workers.work_meter import WorkMeter

if TYPE_CHECKING:
    from transexplain.auditing.explained_shard import Unfinished

log = logging.getLogger(__name__)

End = Literal["nothing", "done", "stopped", "failed", "fenced"]
#: seconds in which a signal for a whole group of processes reaches this one, too
_SIGNALS = 0.5
#: kinds of failures that may lie in the process, so that a fresh one may not have them
_OF_THE_PROCESS = ("model-error", "out-of-memory")
_ONCE_MORE = 100  #: items of a run that a fresh process tries again
#: plans that are kept besides the newest: runs take turns
_PLANS = 15


def _never() -> bool:
    return False


@dataclass(kw_only=True, slots=True)
class Workbench:
    """The store, device, readers and models with which a process works on shards."""

    db: Database
    settings: Settings
    models: ModelCache = field(default_factory=ModelCache)
    name: str = field(default_factory=worker_name)
    stop: threading.Event = field(default_factory=threading.Event)
    meter: WorkMeter = field(default_factory=WorkMeter)
    on_hang: Callable[[str], None] = end_process
    device: Device = field(default_factory=Device)
    devices: int = 1  #: that share the cores of this machine with this process
    #: called, without any lease, with a run that a commit here has closed, and with `stop`
    closing: Callable[[str, threading.Event], None] | None = None
    turns: FairTurns | None = None  #: who else may be served than a message names; None: nobody
    _plans: dict[str, AuditPlan] = field(default_factory=dict)
    _tried: Counter[str] = field(default_factory=Counter)  #: run -> items that had a second try
    _readers: ReaderPool | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def work(
        self,
        run_id: str,
        shard_index: int | None = None,
        *,
        revoked: Callable[[], bool] = _never,
        on_claim: Callable[[Claim], None] = lambda _: None,
    ) -> End:
        """Claim a shard (any, or this one), explain and save it; several threads may call this.

        With `turns` another run's shard may be taken than this one. `on_claim` receives the claim.
        `revoked` is called between batches; where it returns true the work stops.

        Returns:
            `nothing` if no shard could be claimed; `fenced` if another worker had it meanwhile;
            `failed` if it was put back (or declared dead) with its error; else `done` or
            `stopped`, with the shard given back.

        Raises DatabaseError where the end cannot be written down: the shard comes back when its
        lease ends.
        """
        logs.begin(worker=self.name, run=run_id, shard=shard_index)
        with tracing.shard_trace() as trace:
            claim = self._claim(run_id, shard_index)
            if claim is None:
                return "nothing"
            on_claim(claim)
            logs.note(run=claim.run_id, shard=claim.shard.index, attempt=claim.attempt)
            trace.claimed(claim, self.name)
            end = self._worked(claim, revoked)
            trace.ended(end)
            return end

    def _worked(self, claim: Claim, revoked: Callable[[], bool]) -> End:
        """The end of a claimed shard; raises as `work`."""
        try:
            with few_collections():
                return self._explain_and_save(claim, revoked)
        except FencedError:
            return "fenced"
        except ReaderDiedError as died:
            ids = ids_of(self.plan(claim.run_id).dataset, died.rows)
            return self._died(claim, FreshProcessDiedError(died.cause, ids))
        except FreshProcessDiedError as died:
            return self._died(claim, died)
        except DatabaseError:
            raise  # nothing can be written down now
        except Exception as error:  # noqa: BLE001 - written to the shard's row, seen in `status`
            shards.fail(self.db, claim, f"{type(error).__name__}: {error}", traceback_of(error))
            return "failed"

    def _died(self, claim: Claim, death: FreshProcessDiedError) -> End:
        """The end of a shard whose items killed the process that had them, or were with it."""
        if self.stop.wait(_SIGNALS):  # a signal may have ended that process first
            shards.give_back(self.db, claim)
            return "stopped"
        shards.hang(
            *(self.db, claim, death.items, f"attempt {claim.attempt}: {death}"),
            death.traceback,
            convicted=death.convicts,
        )
        return "failed"

    def _claim(self, run_id: str, shard_index: int | None) -> Claim | None:
        lease = self.settings.lease_seconds
        claims: list[tuple[str, int | None]] = [(run_id, shard_index)]
        if self.turns is not None and shard_index is not None:
            claims = self.turns.order(self.db, self.name, run_id, shard_index)
        for run, index in claims:
            claim = shards.claim(self.db, run, self.name, lease, index)
            if claim is not None:
                return claim
        return None

    def _explain_and_save(self, claim: Claim, revoked: Callable[[], bool]) -> End:
        from transexplain.explaining import Stopped

        keeper = self.keeper(claim, revoked)
        try:
            with keeper:
                unfinished = self._computed(claim, keeper)
                with self.device.committing():
                    keeper.touch()
                    with self.meter.beside("finishing"), tracing.span("finish"):
                        result = unfinished()
                    keeper.touch()
                    result = self._tried_again(claim, keeper, result)
                    keeper.touch()
                    with self.meter.beside("commit"), tracing.span("commit"):
                        keeper.saving()
                        closed = self._commit(claim, result)
                        keeper.saved()
                    records = [*result.attributions, *result.outcomes, *result.mentions]
                    del unfinished, result
                    while records:  # to free thousands at once would hold up all threads
                        records.pop()
        except (Stopped, KeyboardInterrupt) as ended:
            if not keeper.lost:
                shards.give_back(self.db, claim)
            if isinstance(ended, KeyboardInterrupt):
                raise
            return "fenced" if keeper.lost else "stopped"
        if closed and self.closing is not None and not self.stop.is_set():
            with self.device.committing():  # it may take minutes: no lease, and room for another
                self.closing(claim.run_id, self.stop)
        return "done"

    def _computed(self, claim: Claim, keeper: LeaseKeeper) -> "Unfinished":
        plan = self.plan(claim.run_id)
        if claim.caution.accused and plan.task != "imported":
            self.models.clear()
            return self._afresh(claim, keeper, claim.caution)
        with self.meter.beside("loading"), tracing.span("load"):
            readers = None if plan.task == "imported" else self.readers(plan)
            model = model_for(plan, self.models)
        tracing.note(device=self.models.device_of(plan.model))
        careful = claim.caution != NO_CAUTION
        with ExitStack() as stack:
            items, prepared = None, None
            # a thread that reads ahead would be blamed on the batch: items are read in turn then
            if model is not None and readers is not None and (readers.processes or not careful):
                items = ReadAhead(
                    *(readers, claim, plan, model, self.meter),
                    should_stop=keeper.should_stop,
                    moved=partial(self._moved, keeper),
                )
                stack.callback(items.close)
                if not careful and plan.task != "evaluation":
                    with self.meter.beside("reading"), tracing.span("prepare"):
                        prepared = prepare(
                            plan, claim.shard, model, caution=claim.caution, items=items
                        )
                    stack.callback(prepared[1].close)
            explain = partial(compute, plan, claim.shard, model, caution=claim.caution)
            return self._on_device(claim, keeper, partial(explain, items=items, prepared=prepared))

    def _moved(self, keeper: LeaseKeeper) -> None:
        """Another process works for this shard: neither it nor one that waits behind it hangs."""
        keeper.touch()
        self.device.moved()

    def _on_device(
        self, claim: Claim, keeper: LeaseKeeper, explain: "Callable[..., Unfinished]"
    ) -> "Unfinished":
        """What `explain` returns, called with an `observer` when it is this shard's turn."""

        def call(watch: Watch) -> "Unfinished":
            self.meter.shard_begun(claim.run_id)
            try:
                with tracing.span("explain"), tracing.batches(watch) as observer:
                    unfinished = explain(observer=observer)
            finally:
                self.meter.shard_ended()
                spent = self.meter.device_seconds()
            return lambda: replace(unfinished(), device=spent)

        return self.device.compute(claim, keeper, call)

    def _afresh(self, claim: Claim, keeper: LeaseKeeper, caution: Caution) -> "Unfinished":
        """The shard computed in a fresh process; raises FreshProcessDiedError."""
        import torch

        plan = self.plan(claim.run_id)
        job = ShardJob(
            plan=plan,
            shard=claim.shard,
            caution=caution,
            device=self.models.device_of(plan.model),
            deadline=self.settings.item_deadline,
            threads=torch.get_num_threads(),
        )

        def explain(observer: Observer) -> "Unfinished":
            result = fresh_process.computed(job, observer, partial(self._moved, keeper))
            return lambda: result

        return self._on_device(claim, keeper, explain)

    def _tried_again(self, claim: Claim, keeper: LeaseKeeper, result: ShardResult) -> ShardResult:
        """The result, from a fresh process where the model failed here on a few items.

        It may lie in this process. At most `_ONCE_MORE` items of a run have a second try.
        """
        from transexplain.explaining import Stopped

        caution, plan = claim.caution, self.plan(claim.run_id)
        failed = {failure.item_id for failure in result.failures if failure.kind in _OF_THE_PROCESS}
        if not failed or caution.accused or plan.task == "imported":
            return result
        kinds = runs.failures(self.db, claim.run_id)
        final = sum(kinds.get(kind, 0) for kind in _OF_THE_PROCESS)
        if len(failed) + max(final, self._tried[claim.run_id]) > _ONCE_MORE:
            return result
        self._tried[claim.run_id] += len(failed)
        try:
            again = self._afresh(claim, keeper, replace(caution, alone=caution.alone | failed))()
        except (Stopped, FencedError, DatabaseError):
            raise
        except Exception as error:  # noqa: BLE001 - then what is known already is the result
            log.warning("not tried again in a fresh process: %s", error)
            return result
        return again if len(again.failures) <= len(result.failures) else result

    def readers(self, plan: AuditPlan) -> ReaderPool:
        """The readers that read and encode for this process; begun at the first call."""
        with self._lock:
            if self._readers is None:
                device = self.models.device_of(plan.model)
                count = host_processes(self.settings.host_processes, device, self.devices)
                self._readers = ReaderPool(count, self.settings.item_deadline)
            return self._readers

    def close(self) -> None:
        """End the processes that this process began, and send the last spans."""
        if self._readers is not None:
            self._readers.close()
        tracing.flush()

    def _commit(self, claim: Claim, result: ShardResult) -> bool:
        """Save the result; whether that closed the run."""
        results.save(self.db, claim, result)
        return runs.finalise(self.db, claim.run_id)

    def plan(self, run_id: str) -> AuditPlan:
        """The plan of a run, read once; threads may ask about different runs.

        Raises ConfigurationError where what the run has saved so far cannot be read by this
        version: its shards would be computed in vain.
        """
        known = self._plans.get(run_id)
        if known is None:
            check_versions(run_totals.aggregate_versions(self.db, run_id))
            known = runs.get(self.db, run_id).plan
            latest = list(self._plans.items())[-_PLANS:]
            self._plans = {**dict(latest), run_id: known}
        return known

    def keeper(self, claim: Claim, revoked: Callable[[], bool] = _never) -> LeaseKeeper:
        """The keeper of a claim's lease while this process works on it."""
        return LeaseKeeper(
            self.db,
            claim,
            lease_seconds=self.settings.lease_seconds,
            item_deadline=self.settings.item_deadline,
            meter=self.meter,
            stop=self.stop,
            revoked=revoked,
            on_hang=self.on_hang,
            beside=device_class(self.models.device_of(self.plan(claim.run_id).model)) == "gpu",
        )
