"""The device of a process: one shard has it at a time, others wait, are read or are committed."""

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from contextvars import copy_context
from typing import TypeVar

from transexplain.store.runs import Claim
from workers.heartbeat import LeaseKeeper

Made = TypeVar("Made")

#: share of a shard's items after which the next is claimed: earlier would keep it from others
NEAR_END = 0.75
#: seconds that shards may take at most where the next are claimed even earlier: a fast device would
#: wait for their first items
SOON = 2.0


class Device:
    """The device of a process: it computes one shard while the next is read and the last committed.

    Without an `executor` of one thread the caller's thread computes. `on_room` is called, from any
    thread, when `room` may have changed. `most_ahead` shards may wait where they are short: of
    two one is ready, even where one took long to read; but all that wait lose an attempt where the
    process is killed, so in a fleet it is one.
    """

    def __init__(
        self,
        executor: Executor | None = None,
        on_room: Callable[[], None] | None = None,
        *,
        most_ahead: int = 1,
    ) -> None:
        self._executor, self.most_ahead = executor, most_ahead
        self.on_room = on_room or (lambda: None)
        self._waiting: list[LeaseKeeper] = []
        self._ahead = 0  # shards that may wait for the one that is computed
        self._committing = 0
        self._pace: tuple[str, float] | None = None  # of the last shard: its run, seconds an item
        self._lock = threading.Lock()

    @property
    def room(self) -> int:
        """The number of shards that the process may hold now, at least one."""
        return 1 + self._committing + self._ahead

    def compute(self, claim: Claim, keeper: LeaseKeeper, call: Callable[["Watch"], Made]) -> Made:
        """Return the result of `call` when it is this shard's turn; raises as it does."""
        watch = Watch(self, claim, keeper)
        if self._executor is None:
            return self._compute(watch, call)
        self._waiting.append(keeper)
        return self._executor.submit(
            copy_context().run, self._compute, watch, call, keeper
        ).result()

    @contextmanager
    def committing(self) -> Iterator[None]:
        """A block in which a shard whose computation has ended is finished and written."""
        self.change(committing=1)
        try:
            yield
        finally:
            self.change(committing=-1)

    def moved(self) -> None:
        """The device makes progress, so shards that wait for it do not hang."""
        for keeper in tuple(self._waiting):
            keeper.touch()

    def _compute(
        self,
        watch: "Watch",
        call: Callable[["Watch"], Made],
        waited: LeaseKeeper | None = None,
    ) -> Made:
        if waited is not None:
            self._waiting.remove(waited)
            waited.touch()
        begun, last = time.monotonic(), self._pace
        watch.begins(last[1] if last is not None and last[0] == watch.run else None)
        try:
            result = call(watch)
            self._pace = watch.run, (time.monotonic() - begun) / max(1, watch.items)
            return result
        finally:
            self.change(ahead=0)

    def change(self, *, committing: int = 0, ahead: int | None = None) -> None:
        """Count shards that are committed, or let this many wait for one that ends soon."""
        with self._lock:
            self._committing += committing
            if ahead is not None:
                self._ahead = ahead
        self.on_room()


class Watch:
    """Observer of the shard that is computed: its lease keeper, and the device's progress."""

    def __init__(self, device: Device, claim: Claim, keeper: LeaseKeeper) -> None:
        self._device = device
        self._keeper = keeper
        self.run = claim.run_id
        self._left = self.items = claim.shard.stop - claim.shard.start
        self._few = self.items - math.ceil(self.items * NEAR_END)
        # a shard that died before may take the process along, and one that waits with it
        self._waits = claim.attempt == 1
        self._begun: float | None = None  # when the first batch did

    def begins(self, pace: float | None) -> None:
        """The device has the shard; `pace`: seconds an item of the run's last one, where known."""
        if pace is not None and self.items * pace <= SOON:
            self._make_room(min(self._device.most_ahead, int(SOON / max(self.items * pace, 1e-9))))

    def batch_started(self, item_ids: Sequence[str]) -> None:
        """Progress; a shard that waits does not hang either."""
        if self._begun is None:
            self._begun = time.monotonic()
        self._keeper.batch_started(item_ids)
        self._device.moved()

    def check_started(self, item_ids: Sequence[str]) -> None:
        """Note a check as `batch_started` does."""
        self._keeper.check_started(item_ids)
        self._device.moved()

    def item_done(self, *item_ids: str) -> None:
        """Progress, and after enough of it there is room for the next shard."""
        self._keeper.item_done(*item_ids)
        self._left -= len(item_ids)
        if self._left <= self._few or self._is_soon_over():
            self._make_room()

    def _make_room(self, ahead: int = 1) -> None:
        if self._waits:
            self._waits = False
            self._device.change(ahead=ahead)

    def _is_soon_over(self) -> bool:
        if self._begun is None:
            return False
        done = self.items - self._left
        return self._left * (time.monotonic() - self._begun) <= SOON * done

    def should_stop(self) -> bool:
        """Return the keeper's answer."""
        return self._keeper.should_stop()
