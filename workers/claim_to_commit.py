"""Works on a shard from claim to commit, for the local executor and for a fleet's tasks.

On a fleet a Celery task is a shard. SQL is the truth; the broker may lose and repeat.

1. A message names a run and one of its shards, as JSON. It is acknowledged after the work.
2. `Workbench.work` claims that very shard; the local executor claims any. A claim is a lease and
   a token. A shard that is over, or that a living lease holds, ends the call: "nothing".
3. From claim to commit a `LeaseKeeper` renews the lease, as long as the work moves.
4. Another thread reads and encodes the items, a chunk ahead of who computes.
5. The `Device` computes one shard at a time, in one thread. When three quarters of its items are
   done there is room for the next shard: the pool then takes one message more, whose shard is
   claimed and read meanwhile. A shard that died before gets nobody to wait behind it: it may take
   the process along.
6. The commit compares the token, in one transaction; the device works on the next shard.
7. An error is written to the shard's row; "failed" and "stopped" get a new message. A revoked
   task's shard is cancelled. A database that is away writes nothing: the lease ends by itself.
8. What the broker lost the sweep sends again. SIGTERM ends work after its batch and gives leases
   back, uncounted.
"""

import math
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

from transexplain.analysis.groups.shard_aggregate import check_versions
from transexplain.auditing.text_guard import guard_of
from transexplain.data.attribution_files import read_attributions
from transexplain.data.shard_reader import read_shard
from transexplain.errors import DatabaseError, FencedError, InfrastructureError
from transexplain.methods.learned_facts import check_explainers
from transexplain.settings import Settings
from transexplain.store import results, run_totals, runs, shards
from transexplain.store.database import Database
from transexplain.store.runs import Claim
from transexplain.types.items import Item, ItemFailure
from transexplain.types.observer import NO_CAUTION, Caution, Observer
from transexplain.types.plans import AuditPlan, Shard, ShardResult
from workers import logs
from workers.heartbeat import LeaseKeeper, end_process, worker_name
from workers.model_cache import ModelCache
from workers.work_meter import WorkMeter

if TYPE_CHECKING:
    from transexplain.auditing.explained_shard import Given
    from transexplain.models.loaded_model import Encoded, LoadedModel


def model_for(plan: AuditPlan, models: ModelCache) -> "LoadedModel | None":
    """The model of a plan; None where its attributions were imported.

    Raises ModelLoadError as `ModelCache.get`, ConfigurationError as `guard_of` and where an
    explainer cannot be read.
    """
    guard_of(plan)  # where the key, the hook or an explainer is not there, no model is loaded
    check_explainers(plan)
    return None if plan.task == "imported" else models.get(plan.model)


def compute(
    plan: AuditPlan,
    shard: Shard,
    model: "LoadedModel | None",
    *,
    observer: Observer,
    caution: Caution,
    items: "Given" = None,
) -> ShardResult:
    """The result of one shard as it may be stored; `model` is what `model_for` gave.

    Raises as `explain_shard` and `guard_of`; where the plan keeps texts out of the store, errors
    do not tell what they were about.
    """
    guard = guard_of(plan)
    if guard is None:
        return _computed(plan, shard, model, observer, caution, items)
    from transexplain.explaining import Stopped

    try:
        given = guard.read(_read(plan, shard, model) if items is None else items)
        result = _computed(plan, shard, model, observer, caution, given)
        return guard.storable(result)
    except (Stopped, InfrastructureError):
        raise
    except Exception as error:  # noqa: BLE001 - raised again without what it may quote
        raise guard.error_without_text(error) from None


def _computed(
    plan: AuditPlan,
    shard: Shard,
    model: "LoadedModel | None",
    observer: Observer,
    caution: Caution,
    items: Any,
) -> ShardResult:
    if model is None:
        from transexplain.auditing.explained_shard import import_shard

        return import_shard(plan, shard, observer=observer, items=items)
    from transexplain.auditing.explained_shard import explain_shard

    return explain_shard(plan, shard, model, observer=observer, caution=caution, items=items)


def _read(plan: AuditPlan, shard: Shard, model: "LoadedModel | None") -> Iterable[Any]:
    return read_attributions(plan, shard) if model is None else read_shard(plan.dataset, shard)


class ReadAhead:
    """The items of a shard, read and encoded in a thread one chunk ahead of who takes them.

    Chunks are those that `explain_items` reads together, so the batches, and with them every bit
    of the result, are the same as without.
    """

    def __init__(
        self, reader: ThreadPoolExecutor, plan: AuditPlan, shard: Shard, model: "LoadedModel"
    ) -> None:
        self._reader = reader
        self._plan = plan
        self._model = model
        self._items: Iterator[Item | ItemFailure] = iter(())
        self._next = reader.submit(self._open, shard)

    def __iter__(self) -> "Iterator[Item | ItemFailure | Encoded]":
        while chunk := self._next.result():
            self._next = self._reader.submit(self._chunk)
            yield from chunk

    def close(self) -> None:
        """Read no further; a chunk that is begun is waited for."""
        if not self._next.cancel():
            self._next.exception()

    def _open(self, shard: Shard) -> "Sequence[Item | ItemFailure | Encoded]":
        self._items = iter(read_shard(self._plan.dataset, shard))
        return self._chunk()

    def _chunk(self) -> "Sequence[Item | ItemFailure | Encoded]":
        from transexplain.explaining import Request
        from transexplain.explaining.item_loop import read_together

        given = list(islice(self._items, read_together(self._model)))
        if self._plan.task == "evaluation":  # measures encode perturbed items themselves
            return given
        readable = [one for one in given if isinstance(one, Item)]
        encoded = iter(Request.from_plan(self._plan).encode(self._model, readable))
        return [next(encoded) if isinstance(one, Item) else one for one in given]


End = Literal["nothing", "done", "stopped", "failed", "fenced"]
#: share of a shard's items after which the next is claimed: earlier would keep it from others
NEAR_END = 0.75


def _never() -> bool:
    return False


class Device:
    """What computes one shard at a time, while the next is read and the last is committed.

    Without an `executor` of one thread the caller's thread computes. `on_room` is called, from any
    thread, when `room` may have changed.
    """

    def __init__(
        self, executor: Executor | None = None, on_room: Callable[[], None] | None = None
    ) -> None:
        self._executor = executor
        self.on_room = on_room or (lambda: None)
        self._waiting: list[LeaseKeeper] = []
        self._near_end = False
        self._committing = 0
        self._lock = threading.Lock()

    @property
    def room(self) -> int:
        """How many shards the process may hold now, at least one."""
        return 1 + self._committing + self._near_end

    def compute(
        self, claim: Claim, keeper: LeaseKeeper, call: Callable[["Watch"], ShardResult]
    ) -> ShardResult:
        """What `call` returns, when it is this shard's turn; raises as it does."""
        watch = Watch(self, claim, keeper)
        if self._executor is None:
            return self._compute(watch, call)
        self._waiting.append(keeper)
        return self._executor.submit(
            copy_context().run, self._compute, watch, call, keeper
        ).result()

    @contextmanager
    def committing(self) -> Iterator[None]:
        """A block in which a shard is written that the device is through with."""
        self._change(committing=1)
        try:
            yield
        finally:
            self._change(committing=-1)

    def moved(self) -> None:
        """The device makes progress: who waits for it does not hang."""
        for keeper in tuple(self._waiting):
            keeper.touch()

    def nears_end(self) -> None:
        """The shard that is computed is nearly through."""
        self._change(near_end=True)

    def _compute(
        self,
        watch: "Watch",
        call: Callable[["Watch"], ShardResult],
        waited: LeaseKeeper | None = None,
    ) -> ShardResult:
        if waited is not None:
            self._waiting.remove(waited)
            waited.touch()
        try:
            return call(watch)
        finally:
            self._change(near_end=False)

    def _change(self, *, committing: int = 0, near_end: bool | None = None) -> None:
        with self._lock:
            self._committing += committing
            if near_end is not None:
                self._near_end = near_end
        self.on_room()


class Watch:
    """Observer of the shard that is computed: its lease keeper, and the device's progress."""

    def __init__(self, device: Device, claim: Claim, keeper: LeaseKeeper) -> None:
        self._device = device
        self._keeper = keeper
        items = claim.shard.stop - claim.shard.start
        # a shard that died before may take the process along, and one that waits with it
        self._left: float = math.ceil(items * NEAR_END) if claim.attempt == 1 else math.inf

    def batch_started(self, item_ids: Sequence[str]) -> None:
        """Progress; a shard that waits does not hang either."""
        self._keeper.batch_started(item_ids)
        self._device.moved()

    def check_started(self, item_ids: Sequence[str]) -> None:
        """As `batch_started`."""
        self._keeper.check_started(item_ids)
        self._device.moved()

    def item_done(self, item_id: str) -> None:
        """Progress, and after enough of it there is room for the next shard."""
        self._keeper.item_done(item_id)
        self._left -= 1
        if self._left == 0:
            self._device.nears_end()

    def should_stop(self) -> bool:
        """As the keeper says."""
        return self._keeper.should_stop()


@dataclass(kw_only=True, slots=True)
class Workbench:
    """What a process needs to work on shards."""

    db: Database
    settings: Settings
    models: ModelCache = field(default_factory=ModelCache)
    name: str = field(default_factory=worker_name)
    stop: threading.Event = field(default_factory=threading.Event)
    meter: WorkMeter = field(default_factory=WorkMeter)
    on_hang: Callable[[str], None] = end_process
    device: Device = field(default_factory=Device)
    reader: ThreadPoolExecutor = field(
        default_factory=partial(ThreadPoolExecutor, 1, "shard-reader")
    )
    #: called, without any lease, with a run that a commit here has closed, and with `stop`
    closing: Callable[[str, threading.Event], None] | None = None
    _plan: tuple[str, AuditPlan] | None = None

    def work(
        self,
        run_id: str,
        shard_index: int | None = None,
        *,
        revoked: Callable[[], bool] = _never,
    ) -> End:
        """Claim a shard (any, or this one), explain and save it; several threads may call this.

        `revoked` is called between batches; where it returns true the work stops.

        Returns:
            `nothing` if no shard could be claimed; `fenced` if another worker had it meanwhile;
            `failed` if it was put back (or declared dead) with its error; else `done` or
            `stopped`, with the shard given back.

        Raises DatabaseError where the end cannot be written down: the shard comes back when its
        lease ends.
        """
        claim = self._claim(run_id, shard_index)
        if claim is None:
            return "nothing"
        logs.note(run=run_id, shard=claim.shard.index, attempt=claim.attempt)
        try:
            return self._explain_and_save(claim, revoked)
        except FencedError:
            return "fenced"
        except DatabaseError:
            raise  # nothing can be written down now
        except Exception as error:  # noqa: BLE001 - written to the shard's row, seen in `status`
            shards.fail(self.db, claim, f"{type(error).__name__}: {error}")
            return "failed"

    def _claim(self, run_id: str, shard_index: int | None) -> Claim | None:
        lease = self.settings.lease_seconds
        return shards.claim(self.db, run_id, self.name, lease, shard_index)

    def _explain_and_save(self, claim: Claim, revoked: Callable[[], bool]) -> End:
        from transexplain.explaining import Stopped

        keeper = self.keeper(claim, revoked)
        try:
            with keeper:
                result = self._computed(claim, keeper)
                with self.device.committing():
                    keeper.touch()
                    closed = self._commit(claim, result)
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

    def _computed(self, claim: Claim, keeper: LeaseKeeper) -> ShardResult:
        plan = self.plan(claim.run_id)
        model = model_for(plan, self.models)
        items = None  # read one by one when their turn comes, as caution asks
        if model is not None and claim.caution == NO_CAUTION:
            items = ReadAhead(self.reader, plan, claim.shard, model)

        def call(watch: Watch) -> ShardResult:
            return compute(
                plan, claim.shard, model, observer=watch, caution=claim.caution, items=items
            )

        try:
            return self.device.compute(claim, keeper, call)
        finally:
            self.meter.shard_ended()
            if items is not None:
                items.close()

    def _commit(self, claim: Claim, result: ShardResult) -> bool:
        """Save the result; whether that closed the run."""
        results.save(self.db, claim, result)
        return runs.finalise(self.db, claim.run_id)

    def plan(self, run_id: str) -> AuditPlan:
        """The plan of a run, read once; threads may ask about different runs.

        Raises ConfigurationError where what the run has saved so far cannot be read by this
        version: its shards would be computed in vain.
        """
        known = self._plan
        if known is None or known[0] != run_id:
            check_versions(run_totals.aggregate_versions(self.db, run_id))
            known = self._plan = (run_id, runs.get(self.db, run_id).plan)
        return known[1]

    def keeper(self, claim: Claim, revoked: Callable[[], bool] = _never) -> LeaseKeeper:
        """Who keeps the lease of a claim while this process works on it."""
        return LeaseKeeper(
            self.db,
            claim,
            lease_seconds=self.settings.lease_seconds,
            item_deadline=self.settings.item_deadline,
            meter=self.meter,
            stop=self.stop,
            revoked=revoked,
            on_hang=self.on_hang,
        )
