"""Shards of one run overlapped: read the next and commit the last while the device computes.

Three threads touch a shard in turn: the reader claims it, reads it and encodes its items, the
caller's thread computes, the writer commits. Its lease is kept from claim to commit, and the
token is compared at the commit as ever. At most one shard waits before the device and one behind.
"""

import logging
import math
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from types import TracebackType
from typing import Self

from transexplain.errors import DatabaseError, FencedError
from transexplain.plans import ShardResult
from transexplain.store import results, runs, shards
from transexplain.store.records import Claim
from transexplain.supervision import NO_CAUTION
from workers import logs
from workers.computing import compute, model_for
from workers.held import Held, Watch
from workers.read_ahead import ReadAhead
from workers.shard_work import End, Workbench

log = logging.getLogger(__name__)

OnEnd = Callable[[Claim, End], None]


class Pipeline:
    """A workbench whose shards overlap; leaving it waits for the last commit and raises its error.

    `on_end` is told how each shard ended, from the thread where it did.
    """

    def __init__(self, bench: Workbench, on_end: OnEnd | None = None) -> None:
        self._bench = bench
        self._on_end = on_end or (lambda claim, end: None)
        self._reader = ThreadPoolExecutor(1, "shard-reader")
        self._writer = ThreadPoolExecutor(1, "shard-writer")
        self._commit: Future[None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.settle()
        finally:
            self._reader.shutdown()
            self._writer.shutdown()

    def settle(self) -> None:
        """Wait for the commit under way; raises the DatabaseError that it ended with."""
        commit, self._commit = self._commit, None
        if commit is not None:
            commit.result()

    def stint(
        self,
        run_id: str,
        shard_index: int | None = None,
        *,
        seconds: float = math.inf,
        most: float = math.inf,
    ) -> int:
        """Work on this shard (or any), then on more of the run; returns how many were computed.

        None is begun after `seconds` or `most` shards. When it returns the last commit may be
        under way. Raises DatabaseError where one failed: its shard comes back by its lease.
        """
        until = time.monotonic() + seconds
        computed = 0
        held = self._open(run_id, shard_index)
        while held is not None:
            computed += 1
            # a shard that died before may take the process along, and the one ahead with it
            last = computed >= most or held.claim.attempt > 1
            watch = Watch(held, partial(self._claim_ahead, run_id, until, last))
            try:
                self._compute(held, watch)
            except BaseException:
                self._give_up(watch)
                raise
            # one that was claimed is worked on: nobody else may
            held = watch.next.result() if watch.next is not None else None
        return computed

    def _claim_ahead(self, run_id: str, until: float, last: bool) -> "Future[Held | None]":
        if last or time.monotonic() >= until or self._bench.stop.is_set():
            nothing: Future[Held | None] = Future()
            nothing.set_result(None)
            return nothing
        return self._reader.submit(copy_context().run, self._open, run_id, None)

    def _open(self, run_id: str, shard_index: int | None) -> Held | None:
        """Claim a shard, keep its lease and begin to read it; None: none is free, or it failed."""
        bench = self._bench
        lease = bench.settings.lease_seconds
        claim = shards.claim(bench.db, run_id, bench.name, lease, shard_index)
        if claim is None:
            return None
        keeper = bench.keeper(claim)
        keeper.__enter__()
        try:
            plan = bench.plan(run_id)
            model = model_for(plan, bench.models)
            items = None
            if model is not None and claim.caution == NO_CAUTION:
                items = ReadAhead(self._reader, plan, claim.shard, model)
        except BaseException as error:
            keeper.__exit__(None, None, None)
            if isinstance(error, DatabaseError) or not isinstance(error, Exception):
                raise
            self._fail(claim, error)
            return None
        return Held(claim=claim, plan=plan, keeper=keeper, model=model, items=items)

    def _compute(self, held: Held, watch: Watch) -> None:
        """Explain one shard and hand it to the writer; how it ended otherwise is written down."""
        from transexplain.explaining import Stopped

        claim = held.claim
        logs.note(run=claim.run_id, shard=claim.shard.index, attempt=claim.attempt)
        try:
            result = compute(
                held.plan,
                claim.shard,
                held.model,
                observer=watch,
                caution=claim.caution,
                items=held.items,
            )
        except (Stopped, KeyboardInterrupt) as ended:
            self._stopped(held)
            if isinstance(ended, KeyboardInterrupt):
                raise
        except DatabaseError:
            held.release()
            raise
        except Exception as error:  # noqa: BLE001 - written to the shard's row, seen in `status`
            held.release()
            self._fail(claim, error)
        else:
            self._hand_over(held, result)

    def _hand_over(self, held: Held, result: ShardResult) -> None:
        """Queue the commit behind the one before, whose error is raised once this one is safe."""
        before = self._commit
        self._commit = self._writer.submit(copy_context().run, self._save, held, result)
        if before is not None:
            before.result()

    def _save(self, held: Held, result: ShardResult) -> None:
        claim, db = held.claim, self._bench.db
        held.keeper.touch()
        try:
            results.save(db, claim, result)
            runs.finalise(db, claim.run_id)
        except FencedError:
            self._on_end(claim, "fenced")
        except DatabaseError as error:
            log.error("commit failed, the shard comes back when its lease ends: %s", error)
            raise
        except Exception as error:  # noqa: BLE001 - written to the shard's row, seen in `status`
            self._fail(claim, error)
        else:
            self._on_end(claim, "done")
        finally:
            held.release()

    def _stopped(self, held: Held) -> None:
        held.release()
        if not held.keeper.lost:
            shards.give_back(self._bench.db, held.claim)
        self._on_end(held.claim, "fenced" if held.keeper.lost else "stopped")

    def _give_up(self, watch: Watch) -> None:
        """Give back the shard that was claimed ahead; the error that ended the work goes on."""
        if watch.next is None or watch.next.exception() is not None:
            return
        if waiting := watch.next.result():
            try:
                self._stopped(waiting)
            except DatabaseError as error:
                log.warning("shard claimed ahead not given back: %s", error)

    def _fail(self, claim: Claim, error: BaseException) -> None:
        shards.fail(self._bench.db, claim, f"{type(error).__name__}: {error}")
        self._on_end(claim, "failed")
